package home

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1alpha1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// A write of a status took effect, was seen, and only then failed for want of an answer; what it said is not true any more
// by then. What was true before it must not be taken for what the object shows. (Found by bench/sim: a queue showed an
// admitted gang for as long as it did not change.)
func TestStatusWriteThatFailedAfterItWasSeen(t *testing.T) {
	c := New(Config{Self: "a", Strict: true})
	now := epoch0
	var written []event.WriteQueueStatus
	step := func(ev event.Event) {
		c.Step(now, ev)
		for _, o := range c.Outputs() {
			if w, ok := o.(event.WriteQueueStatus); ok {
				written = append(written, w)
			}
		}
	}
	wait := func(d time.Duration) {
		for end := now.Add(d); now.Before(end); {
			now = now.Add(100 * time.Millisecond)
			step(event.Tick{})
		}
	}
	admitted := func(n int32, version uint64) {
		step(event.Message{From: event.ToCoordinator, Body: &wire.Envelope{Body: &wire.Envelope_QueueUsages{QueueUsages: &wire.QueueUsages{
			Term: 1, Queues: []*wire.QueueUsage{{Queue: "q", Uid: "u", Admitted: n, Version: version}}}}}})
	}
	queue := func(status *v1alpha1.QueueStatus) event.QueueSeen {
		return event.QueueSeen{Queue: &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q", UID: "u"}, Status: status}}
	}
	table := &api.Table{Epoch: 1, Revision: 10, Members: []api.Member{{Incarnation: "a", Name: "a"}}}
	step(event.TableSeen{Table: table})
	step(event.StoreRead{Sequence: 1, Revision: 10})
	step(event.PodsReplaced{Sequence: 1})
	step(queue(nil))

	admitted(0, 1)
	wait(time.Second)
	if len(written) != 1 {
		t.Fatalf("%d writes of the first status", len(written))
	}
	step(event.StatusWritten{ID: written[0].ID, Outcome: event.StatusOK})
	step(queue(written[0].Status))
	admitted(1, 2)
	wait(2 * time.Second)
	if len(written) != 2 {
		t.Fatalf("%d writes after a gang was admitted", len(written))
	}
	step(queue(written[1].Status))
	admitted(0, 3)
	step(event.StatusWritten{ID: written[1].ID, Outcome: event.StatusFailed})
	wait(5 * time.Second)
	if len(written) != 3 || written[2].Status.AdmittedGangs != 0 {
		t.Fatalf("the object shows an admitted gang; writes: %d", len(written))
	}
}
