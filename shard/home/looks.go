package home

import (
	"fmt"
	"log/slog"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/fair"
	"basalt.dev/basalt/shard/home/intake"
)

// common is what the core and each of its parts have: the time, the gangs and pods, who is looked at again, and when;
// and what is said to the outside. Everybody calls its methods, and they call nobody.
type common struct {
	*Counters

	cfg     Config
	now     time.Time
	table   *api.Table
	gangs   map[string]*gang  // of active buckets
	active  [api.Buckets]bool // buckets that are ours
	term    int64             // of the coordinator
	objects *intake.Objects
	pods    map[string]*pod // of the cluster, whoever owns what (pods.go)
	index   index           // of them and of groups

	// goneGroups are the queues of PodGroups that are gone, by UID, "" for one that was not seen before. A late event
	// does not bring one back.
	goneGroups recent[string, string]

	out, spare     []event.Output // spare is what Outputs returned last
	dirty          []*gang
	large          map[*gang]bool         // with many pods, and touched: looked at soon
	counter        uint32                 // of serials
	epochs         [api.Buckets]api.Epoch // under which an active bucket was taken over
	sent           fair.Budget            // bytes of classes (classes.go)
	writes         map[uint64]write       // outputs whose StatusWritten is awaited
	writeID        uint64                 // the last one
	writesStatusOf map[api.GroupKind]bool // groups of other kinds (admission.go); of Volcano's: Basalt holds its Lease
}

// Counters are for metrics.
type Counters struct {
	Broken     uint64 // invariants of ours found broken
	Placed     uint64 // gangs that got their minimum
	GaveUp     uint64
	RolledBack uint64 // or that were evicted as stale

	ClaimsMade      uint64 // accepted
	ClaimsRefused   uint64
	ClaimsDropped   uint64 // after they were accepted
	ClaimsUnplanned uint64 // mandates for which no plan was found, or the room had changed
	Reclaimed       uint64 // gangs that were evicted so that a queue takes back what it may have,
	Preempted       uint64 // or for one of higher priority
	Condemned       uint64 // surplus pods that were evicted for either

	Disrupted     uint64 // pods that were evicted although a PodDisruptionBudget did not allow it
	EventsDropped uint64 // that there was no budget for
	BoundByOthers uint64 // pods that were to be placed here (foreign.go)
}

// timer wakes a gang; it is stale unless the gang still waits for exactly this time.
type timer struct {
	at   time.Time
	gang string
}

type timers []timer

func (t timers) Len() int { return len(t) }
func (t timers) Less(i, j int) bool {
	if !t[i].at.Equal(t[j].at) {
		return t[i].at.Before(t[j].at)
	}
	return t[i].gang < t[j].gang
}
func (t timers) Swap(i, j int) { t[i], t[j] = t[j], t[i] }
func (t *timers) Push(x any)   { *t = append(*t, x.(timer)) }
func (t *timers) Pop() any {
	old := *t
	x := old[len(old)-1]
	*t = old[:len(old)-1]
	return x
}

// touch has a gang looked at: at the end of this step, or, when it has many pods, soon (lookAtLarge), for a look
// costs as much as the gang has pods. What a peer answers about the gang as a whole is looked at in its own step: see
// mark.
func (c *common) touch(g *gang) {
	if len(g.members) > c.cfg.LargeGang {
		if g.look != dirty {
			c.large[g] = true
		}
		return
	}
	c.mark(g)
}

// lookAtLarge looks at the large gangs that were touched: all of them at a Tick, and when no more events wait those
// that were not looked at just now, in the measure of their size.
func (c *common) lookAtLarge(all bool) {
	for g := range c.large {
		if all || !c.now.Before(g.looked.Add(time.Duration(len(g.members))*10*time.Microsecond)) {
			delete(c.large, g)
			c.mark(g)
		}
	}
}

// mark has a gang looked at at the end of this step.
func (c *common) mark(g *gang) {
	if g.mark() {
		c.dirty = append(c.dirty, g)
	}
}

// wakeAt asks for the gang to be looked at again at a time; the earliest of all asked for counts.
func (c *common) wakeAt(g *gang, at time.Time) {
	if !at.After(c.now) {
		at = c.now.Add(time.Nanosecond)
	}
	if g.next.IsZero() || at.Before(g.next) {
		g.next = at
	}
}

// serial returns the next serial of a gang: it only grows, also from one owner of its queue's bucket to the next.
func (c *common) serial(g *gang) uint64 {
	return c.serialIn(g.bucket)
}

// serialIn returns the next serial in a bucket.
func (c *common) serialIn(bucket api.BucketID) uint64 {
	c.counter++
	return uint64(c.epochs[bucket])<<32 + uint64(c.counter)
}

// skipSerials leaves serials out that a predecessor may have used.
func (c *common) skipSerials() { c.counter += 1 << 16 }

func (c *common) emit(o event.Output) { c.out = append(c.out, o) }

func (c *common) send(to api.Incarnation, body *wire.Envelope) {
	c.emit(event.Send{To: to, Body: body})
}

func (c *common) log(level slog.Level, message string, attrs ...slog.Attr) {
	c.emit(event.Log{Level: level, Message: message, Attrs: attrs})
}

// broken reports an invariant of ours that does not hold. The caller leaves the object concerned alone or starts it
// over.
func (c *common) broken(message string, attrs ...slog.Attr) {
	c.Broken++
	if c.cfg.Strict {
		panic(fmt.Sprint("home: ", message, " ", attrs))
	}
	c.log(slog.LevelError, message, attrs...)
}

func (c *common) isMember(shard api.Incarnation) bool { return c.table.Has(shard) }

// write is an output whose StatusWritten is awaited.
type write struct {
	kind            writeKind
	uid             string // of the pod or PodGroup
	queue           string
	reason, message string // of a pod's condition
}

func (c *common) nextWrite(w write) uint64 {
	c.writeID++
	c.writes[c.writeID] = w
	return c.writeID
}

// withholds reports whether a pod is of a scheduler's name that is lent, and the Lease is not Basalt's now: another
// scheduler may place it. What is under way for such a pod goes on; nothing new is begun.
func (c *common) withholds(p *api.Pod) bool { return p.Lent && !c.writesStatusOf[api.VolcanoGroup] }
