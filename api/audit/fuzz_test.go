package audit_test

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api/audit"
)

// Nothing that stands in the control store or that the API server shows ends an auditor.
func FuzzObserve(f *testing.F) {
	f.Add("reservations/0001/u", []byte{}, []byte{}, uint8(0))
	f.Add("intents/inc-1/0000000000000001", []byte("\x0a\x00"), []byte{}, uint8(1))
	f.Add("queues/a", []byte("\x0a\x01a"), []byte{}, uint8(2))
	f.Add("table", []byte{}, []byte{}, uint8(3))
	f.Add("seq", []byte("\x08\x05\x10\x05"), []byte{}, uint8(4))
	f.Fuzz(func(t *testing.T, key string, value, object []byte, how uint8) {
		if len(value)+len(object) > 20000 {
			return
		}
		w := newWorld(t, audit.Config{})
		w.reserve("g", 2000)
		w.intend(1, "g", 2000, map[string]string{"g": "n1"})
		for range 2 { // a new key, then the same again
			w.revision++
			w.a.Observe(w.now, audit.StoreRevision{Revision: w.revision, Snapshot: how&1 != 0, Replaced: how&2 != 0, Changes: []audit.StoreChange{
				{Key: key, Value: value, Deleted: how&4 != 0, CreateRevision: w.revision, ModRevision: w.revision}}})
			pod := &v1.Pod{}
			if pod.Unmarshal(object) == nil {
				w.a.Observe(w.now, audit.Seen[*v1.Pod]{Object: pod})
			}
			node := &v1.Node{}
			if node.Unmarshal(object) == nil {
				w.a.Observe(w.now, audit.Seen[*v1.Node]{Object: node})
			}
			w.pass(time.Minute)
		}
		for _, v := range w.a.Report().Violations {
			if v.Message == "" || !strings.Contains(v.String(), string(v.Kind)) {
				t.Fatalf("a violation without words: %+v", v)
			}
		}
	})
}
