package node

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// TestRecordsAreBoundedByBytes: however large the classes, names and commits are that come together, no record is larger than
// MaxBytes, none is larger than it was estimated, and every commit is answered.
func TestRecordsAreBoundedByBytes(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 0))
		now := epoch0
		c := logged(New(Config{Self: "a", Strict: true, SummaryEvery: time.Hour, WriteEvery: time.Duration(r.IntN(2)) * 50 * time.Millisecond, MaxBytes: 200<<10 + r.IntN(600<<10), MaxClassBytes: 100 << 10}))
		table := &api.Table{Epoch: 5, Revision: 5, Members: []api.Member{{Incarnation: "a", Name: "a"}}}
		for b := range table.Owners {
			table.Changed[b] = 5
		}
		c.Step(now, event.TableSeen{Table: table})
		node := strings.Repeat("n", 253)
		c.Step(now, event.NodeSeen{Node: &api.Node{Name: node, UID: "n", Allocatable: api.Resources{{Resource: "pods", Value: 1e9}}}})
		c.Step(now, event.StoreRead{Sequence: 1, Revision: 5})
		c.Step(now, event.PodsReplaced{Sequence: 1})
		c.Outputs()
		class := func() *api.Class {
			spec := v1.PodSpec{Tolerations: []v1.Toleration{{Key: strings.Repeat("k", r.IntN(120<<10)>>r.IntN(12))}}}
			constraints, err := spec.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			requests := map[string]int64{"pods": 1}
			for i := range r.IntN(64) { // zeros: no node has to have them
				requests[fmt.Sprintf("r%0*d", 3+r.IntN(300), i)] = 0
			}
			return api.NewClass(api.FromMap(requests), constraints)
		}
		asked, answered, rows := 0, map[string]bool{}, 0
		step := func(ev event.Event) {
			c.Step(now, ev)
			for outputs := c.Outputs(); len(outputs) > 0; outputs = c.Outputs() {
				for _, o := range outputs {
					switch o := o.(type) {
					case event.WriteIntents:
						rows += len(o.Record.GetRows())
						if size := proto.Size(o.Record); size > c.cfg.MaxBytes || size > c.writes.writing.size+20 {
							t.Fatalf("seed %d: a record of %d bytes, estimated at %d, the limit is %d", seed, size,
								c.writes.writing.size, c.cfg.MaxBytes)
						}
						c.Step(now, event.IntentsWritten{N: o.N, Outcome: event.Written, ModRevision: int64(o.N) + 10})
					case event.Send:
						if m := o.Body.GetCommitReply(); m != nil {
							answered[m.GetGangUid()] = true
						}
					}
				}
			}
		}
		for range 60 {
			asked++
			gang := &wire.GangRef{Uid: fmt.Sprintf("%036d", asked), Namespace: strings.Repeat("s", 63), Name: strings.Repeat("g", 253), Queue: strings.Repeat("q", 63)}
			m := &wire.Commit{Gang: gang, Serial: 1, TableRevision: 5, ReservationRevision: 50, Bind: true}
			for i := range 1 + r.IntN(3) {
				class := class()
				m.Classes = append(m.Classes, &wire.PodClass{Requests: wire.FromResources(class.Requests), Constraints: class.Constraints})
				for j := range r.IntN(40) {
					m.Pods = append(m.Pods, &wire.PodRef{Uid: fmt.Sprintf("%012d-%012d-%010d", asked, i, j), ResourceVersion: "12345678901234567890", Namespace: strings.Repeat("s", 63),
						Name: strings.Repeat("p", 253), Node: node, PodClass: uint32(i)})
				}
			}
			step(event.Message{From: "a", Body: &wire.Envelope{Body: &wire.Envelope_Commit{Commit: m}}})
		}
		for range 200 {
			now = now.Add(100 * time.Millisecond)
			step(event.Tick{})
		}
		if len(answered) != asked || rows == 0 {
			t.Fatalf("seed %d: %d of %d commits were answered, %d rows written", seed, len(answered), asked, rows)
		}
	}
}
