package coordinator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// What is said of queues stays small, however many resources are charged there and however long their names are: a status
// has room for api.MaxResources, and a message for so many bytes. What is left out is said.
func TestUsagesAreBounded(t *testing.T) {
	p := newScripted(t)
	p.quiet = true
	run := func(command string) { p.do(strings.Fields(command)) }
	long := func(group, i int) string {
		return fmt.Sprintf("%0*d", api.MaxResourceName, 1000*group+i)
	}
	run("start s1")
	const queues = 30
	var limits []string
	for i := range api.MaxResources {
		limits = append(limits, long(0, i)+":7")
	}
	run("queue a cap=zz:99")
	for q := range queues {
		run(fmt.Sprintf("queue a.q%02d cap=%s guarantee=%s", q, strings.Join(limits, ","), strings.Join(limits, ",")))
		for g := range 3 {
			if q > 2 {
				break
			}
			asks := []string{"cpu:1", "zz:1"}
			for i := range 50 {
				asks = append(asks, long(1+g, i)+":1")
			}
			list := strings.Join(asks, ",")
			run(fmt.Sprintf("reserve q%02dg%d queue=a.q%02d ask=%s bound=%s", q, g, q, list, list))
		}
	}
	seen, messages := map[string]*wire.QueueUsage{}, 0
	check := func(m *wire.QueueUsages) {
		messages++
		if size := proto.Size(m); size > chunkBytes+100<<10 {
			t.Fatalf("%d queues in a message of %d bytes", len(m.GetQueues()), size)
		}
		for _, u := range m.GetQueues() {
			seen[u.GetQueue()] = u
			for what, list := range map[string][]*wire.Amount{"charged": u.GetCharged(), "guarantee": u.GetGuarantee(), "capability": u.GetCapability()} {
				if len(list) > api.MaxResources {
					t.Fatalf("%s of %s names %d resources", what, u.GetQueue(), len(list))
				}
			}
		}
	}
	for range 20 {
		p.now = p.now.Add(200 * time.Millisecond)
		p.tell(Tick{}, func(o Output) []Event {
			switch o := o.(type) {
			case Send:
				if m := o.Body.GetQueueUsages(); m != nil {
					check(m)
				}
			case Txn:
				return []Event{TxnDone{ID: o.ID, Revision: p.store.commit(o)}}
			}
			return nil
		})
	}
	if len(seen) != queues+2 || messages < 2 {
		t.Fatalf("%d queues in %d messages", len(seen), messages)
	}
	for path, names := range map[string]string{"a": "cpu zz", "root": "cpu", "a.q01": "cpu"} {
		u := seen[path]
		charged, err := wire.ToResources(u.GetCharged())
		if err != nil || len(charged) != api.MaxResources {
			t.Errorf("%s: charged %d resources, %v", path, len(charged), err)
		}
		for _, name := range strings.Fields(names) {
			if charged.Value(name) == 0 {
				t.Errorf("%s: %s is not named", path, name)
			}
		}
		if !strings.HasSuffix(u.GetMessage(), "; 88 more charged resources are not among the 64 listed") {
			t.Errorf("%s: %q", path, u.GetMessage())
		}
	}
	if s := p.core.Status(); len(s.GetQueues()) != queues+3 || s.GetQueuesTotal() != queues+3 || proto.Size(s) > statusBytes+1<<20 {
		t.Errorf("a status of %d bytes with %d of %d queues", proto.Size(s), len(s.GetQueues()), s.GetQueuesTotal())
	}
}
