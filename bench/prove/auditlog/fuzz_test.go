package auditlog

import (
	"bytes"
	"testing"
)

// A log is read to its end, or the line that cannot be read is named.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"stage":"ResponseComplete","verb":"create","user":{"username":"system:serviceaccount:basalt-system:basalt-shard"},"objectRef":{"resource":"pods","subresource":"binding","name":"p"},"responseStatus":{"code":201},"requestObject":{"metadata":{"uid":"u"},"target":{"name":"n"}}}` + "\n"))
	f.Add([]byte("system:serviceaccount:basalt-system:\n{"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Read(bytes.NewReader(b), NewIntents())
		if r == nil || r.Lines != bytes.Count(b, []byte("\n")) && err == nil {
			t.Fatalf("%+v of %d lines, %v", r, bytes.Count(b, []byte("\n")), err)
		}
		if r.Bindings < len(r.TwoNodes)+len(r.NoUID) {
			t.Fatalf("%+v", r)
		}
	})
}
