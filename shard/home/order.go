package home

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home/intake"
	"basalt.dev/basalt/shard/home/report"
)

// The order of gangs of equal priority, where their queue says one (Queue.spec.order): an integer, the smaller first,
// and then the older gang. It goes with Reserve to the coordinator, which serves the waiting gangs of a leaf in that
// order. It is evaluated once for what the objects of a gang say, and again when they say something else. Nothing of
// it is stored: an heir finds the same from the same objects.
//
// A gang that waits asks anew when its value is another one, as often as it may for any edit (pacing.go). When the
// Queue is edited, orderedByTick of its waiting gangs are looked at each Tick, for there may be 100,000. A gang that
// has started is left alone: its next request, for pods that it lacks, says what its value is then.
//
// Tenants edit labels as often as they like, and an evaluation may take 0.7 ms. So what it costs to find places anew is
// limited for each namespace; gangs for which it has too little keep their places until they are looked at.
const (
	// orderedByTick is how many gangs are looked at in a Tick because their place is to be found anew.
	orderedByTick = 200
	// orderedCost is what a namespace may spend in a second on places that are found anew, in units of
	// intake.MaxOrderCost. It takes about 65 ms.
	orderedCost = 100 * intake.MaxOrderCost
	// orderRead is what it costs to read the labels and annotations of a gang.
	orderRead = intake.MaxOrderCost / 100
)

// ordered is the place that its queue's expression gives to a gang.
type ordered struct {
	value  int64
	failed string // why there is none: it counts as 0

	by          *intake.Order     // what it was evaluated by,
	labels      map[string]string // and from: of its PodGroup,
	annotations map[string]string
	ofPod       *api.Labels // or of its oldest pod
	priority    int64
	created     time.Time
	told        string // of what failed
	waits       bool   // in pacing.reordered, for its namespace has spent too much
}

// orderOf returns the place that its queue's expression gives to a gang, nil where it gives none. It evaluates the
// expression if the gang is not what it was.
func (c *pacing) orderOf(g *gang) *ordered {
	by := c.objects.Order(g.queue)
	if !by.Valid() {
		g.ordered = nil
		return nil
	}
	was := g.ordered
	now := &ordered{by: by, priority: g.tally.priority}
	if g.group != nil && g.name.Kind == api.BasaltGroup {
		now.labels, now.annotations, now.created = g.group.Labels, g.group.Annotations, g.group.Created
	} else if first := oldest(g); first == nil {
		return nil // nothing of it was seen yet
	} else if now.ofPod, now.created = first.Labels, first.Created; g.group != nil && !g.group.Created.IsZero() {
		now.created = g.group.Created
	}
	if was.like(now) {
		return was
	}
	if was != nil && c.ordering.Spent(c.now, g.name.Namespace) >= orderedCost {
		if !was.waits {
			was.waits = true
			c.reordered = append(c.reordered, g)
		}
		return was
	}
	labels := now.labels
	if now.ofPod != nil {
		labels = now.ofPod.Of
	}
	place, cost, err := by.Of(labels, now.annotations, now.priority, now.created)
	if now.value = place; err != nil {
		now.failed = err.Error()
	}
	if was != nil {
		now.told = was.told
		c.ordering.Spend(c.now, g.name.Namespace, orderRead+int64(cost))
	}
	g.ordered = now
	return now
}

// like reports whether a gang was evaluated by the same expression, and says the same.
func (o *ordered) like(p *ordered) bool {
	return o != nil && o.by == p.by && maps.Equal(o.labels, p.labels) && maps.Equal(o.annotations, p.annotations) &&
		o.ofPod.Equal(p.ofPod) && o.priority == p.priority && o.created.Equal(p.created)
}

// oldest returns the oldest pod of a gang that has not finished, nil for none.
func oldest(g *gang) *pod {
	for _, p := range g.inOrder() {
		if !p.Finished {
			return p
		}
	}
	return nil
}

// message returns the value as messages have it.
func (o *ordered) message() *int64 {
	if o == nil {
		return nil
	}
	return new(o.value)
}

// place is the value, 0 for none.
func (o *ordered) place() int64 {
	if o == nil {
		return 0
	}
	return o.value
}

// sameOrder reports whether an open request says what a gang's place is.
func (a *reserveCall) sameOrder(now *int64) bool {
	return (a.order == nil) == (now == nil) && (now == nil || *a.order == *now)
}

// inQueue orders gangs of one queue as the coordinator does: priority, the queue's expression, age, id. It goes by
// what was evaluated last, for it is asked of many gangs at once.
func inQueue(a, b *gang) int {
	return cmp.Or(cmp.Compare(b.tally.priority, a.tally.priority), cmp.Compare(a.ordered.place(), b.ordered.place()),
		compareGangs(a, b))
}

// seeOrder takes note of what a Queue says of the order of its gangs, nil for one that is gone, and reports whether it
// said something else before.
func (c *reports) seeOrder(queue, uid string, spec *v1beta1.QueueSpec) bool {
	if !c.objects.SeeOrder(queue, uid, spec) {
		return false
	}
	said := c.objects.Order(queue)
	c.queues.Orders(queue, said != nil, said.Problem())
	return true
}

// reorder has the places of a queue's gangs found anew.
func (c *pacing) reorder(queue string) {
	for _, g := range c.gangs {
		if g.queue == queue && !g.started {
			c.reordered = append(c.reordered, g)
		}
	}
	slices.SortFunc(c.reordered, func(a, b *gang) int { return strings.Compare(a.id, b.id) })
	c.reordered = slices.Compact(c.reordered)
}

// lookAtReordered has some of the gangs looked at whose place is to be found anew. Those for which their namespace has
// spent too much go on waiting.
func (c *pacing) lookAtReordered() {
	n := min(len(c.reordered), orderedByTick)
	looked := c.reordered[:n]
	c.reordered = c.reordered[n:]
	for _, g := range looked {
		switch o := g.ordered; {
		case g.dropped():
		case o != nil && c.ordering.Spent(c.now, g.name.Namespace) >= orderedCost:
			o.waits = true
			c.reordered = append(c.reordered, g)
		default:
			if c.touch(g); o != nil {
				o.waits = false
			}
		}
	}
}

// tellOrder says at a gang that its queue's expression fails for it: once for each way in which it does. What there is
// no budget for is said later, also when the gang has started: its next one will fail likewise.
func (c *reports) tellOrder(g *gang) {
	o := g.ordered
	if o == nil || o.failed == o.told {
		return
	}
	about := aboutGroup(g)
	if g.group == nil || g.name.Kind != api.BasaltGroup {
		first := oldest(g)
		if first == nil {
			return
		}
		about = aboutPod(first)
	}
	if o.failed == "" || c.tell(event.ObjectEvent{About: about, Warning: true, Reason: v1beta1.ReasonOrderFailed,
		Message: report.Short(orderFails(g.queue, o.failed))}) {
		o.told = o.failed
		return
	}
	c.wakeAt(g, c.now.Add(c.cfg.ConditionAfter))
}

// orderFails says that an expression fails for a gang.
func orderFails(queue, why string) string {
	return fmt.Sprintf("spec.order of queue %q fails for it, so it counts as 0 among gangs of equal priority: %s",
		queue, why)
}
