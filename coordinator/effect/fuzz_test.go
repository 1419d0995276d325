package effect

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"basalt.dev/basalt/api/v1beta1"
)

// lost are the quantities that Kubernetes does not come back from reading: no Queue has them.
var lost = regexp.MustCompile(`[0-9.]{18}|[eE][+-]?[0-9]{9}|[eE]-[0-9]{3}`)

// A Queue that validation let through by mistake is read, or what is wrong with it is said with the field's name.
func FuzzQueueSeen(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"a.b","uid":"u"},"spec":{"capability":{"cpu":"4","memory":"1Gi"},"guarantee":{"cpu":1}},"status":{"epoch":-1}}`))
	f.Add([]byte(`{"metadata":{"name":"a"},"spec":{"capability":{"cpu":"1e400"}}}`))
	f.Add([]byte(`{"metadata":{"name":"a"},"spec":{"guarantee":{"example.com/gpu":"-1e20000000"}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		q := &v1beta1.Queue{}
		if lost.Match(b) || len(b) > 5000 || json.Unmarshal(b, q) != nil {
			return
		}
		ev := QueueSeen(q)
		if ev.Invalid != "" {
			if !strings.Contains(ev.Invalid, "queue") && !strings.HasPrefix(ev.Invalid, "spec.") {
				t.Fatalf("%q names no field", ev.Invalid)
			}
			return
		}
		for _, r := range append(ev.Capability, ev.Guarantee...) {
			if r.Value <= 0 || r.Resource == "" && len(q.Spec.Capability)+len(q.Spec.Guarantee) == 0 {
				t.Fatalf("a limit of %d %s", r.Value, r.Resource)
			}
		}
	})
}
