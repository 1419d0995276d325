package home

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// Domains as data: what a survey found of them, which of them a gang tried, and the area that it is confined to
// (domain.go).

// room is what a domain has.
type room struct {
	values []string
	pods   []int64 // by class
	at     map[api.Incarnation][]int64
	said   int64 // pods of all classes, before any was asked for
	spare  int64
}

func (r *room) id() string { return strings.Join(r.values, "\x00") }

// survey is a question to all node shards, and their answers.
type survey struct {
	id       string
	keys     []string
	classes  []*api.Class
	body     *wire.Probe
	asked    time.Time
	sent     time.Time
	answered time.Time // when all had answered, or time was up
	answers  poll
	heard    heard
	more     bool // one has left out domains with little room
	taken    bool // some of it was asked for since
	rooms    map[string]*room
	gangs    map[string]bool // that wait for it
}

// heard is what the answers to a survey say of the labels of its domains.
type heard uint8

const (
	heardNothing heard = iota // none has come
	heardAnswer               // no node has all of them
	heardLabels               // some node has
)

// surveys are the questions that are open, and those whose answers may be used.
type surveys struct {
	of     map[string]*survey       // by what is asked
	open   map[uint64]*survey       // by serial
	silent map[api.Incarnation]bool // did not answer the last question in time
	serial uint64

	founded []founding
}

// area is the domain that a round is confined to, or the domains, one for each pod.
type area struct {
	*survey
	all    *room            // of all pods,
	of     map[string]*room // or of each by its UID,
	parts  []part           // which are these
	values []string         // of the first labels, which all pods have in common
	fails  fails            // what becomes of holds if it has no room for all that is missing
	level  int              // of the gang's levels of domains
}

// fails is what becomes of what a gang holds if there is no room for the rest of it in an area.
type fails uint8

const (
	failsWhole fails = iota // it lets go of all
	failsParts              // of slices that lack pods: a domain for some of it will do
	failsNone               // of nothing: the domain is only preferred
)

// tried is what a gang has tried of one level of domains.
type tried struct {
	areas  int                // in this search
	cut    bool               // node shards left out domains: those that the gang is in are to be named
	failed map[string]failure // domains that had less room than was said, by their values
}

// take counts a domain that is tried.
func (t *tried) take() { t.areas++ }

// failure is the last time that a domain failed.
type failure struct {
	search int                  // search.count then
	said   int64                // room that it was said to have
	held   map[*api.Class]int64 // pods for which it had some, by class
}

func (f failure) took() (pods int) {
	for _, n := range f.held {
		pods += int(n)
	}
	return pods
}

// skips reports whether a domain has failed, and has no more room now than was said then.
func (t *tried) skips(id string, r *room) bool {
	f, known := t.failed[id]
	return known && r.said <= f.said
}

// fail remembers that a domain had less room than was said.
func (t *tried) fail(r *room, search int, held map[*api.Class]int64) {
	if len(t.failed) >= maxFailed && !t.retry(search) {
		return
	}
	if t.failed == nil {
		t.failed = map[string]failure{}
	}
	t.failed[r.id()] = failure{search, r.said, held}
}

// retry has domains tried again that failed in earlier searches, and reports whether there are any.
func (t *tried) retry(search int) bool {
	n := len(t.failed)
	maps.DeleteFunc(t.failed, func(_ string, f failure) bool { return f.search < search })
	return len(t.failed) < n
}

// roomOf returns the domain that a pod is to be in, nil if it is not to be placed in this round.
func (a *area) roomOf(p *pod) *room {
	if a.of != nil {
		return a.of[p.UID]
	}
	return a.all
}

// forgetSurvey keeps of an area only what awaitSlices reads: a gang runs for days.
func (a *area) forgetSurvey() *area {
	if a == nil || a.of == nil {
		return nil
	}
	if a.rooms == nil { // it has done so
		return a
	}
	out := &area{survey: &survey{keys: a.keys}, parts: a.parts, fails: a.fails}
	if a.of != nil {
		out.of = make(map[string]*room, len(a.of))
	}
	for uid, r := range a.of {
		out.of[uid] = &room{values: r.values}
	}
	return out
}

// within returns the labels that all nodes of the area have.
func (a *area) within() (out []*wire.Label) {
	if a == nil {
		return nil
	}
	for i, value := range a.values {
		out = append(out, &wire.Label{Key: a.keys[i], Value: value})
	}
	return out
}

// named returns a domain with the labels that it is of.
func (x *survey) named(r *room) string { return strings.Join(x.keys, "\x00") + "=" + r.id() }

// add notes that a shard has room for a pod of a class more or less.
func (r *room) add(shard api.Incarnation, class int, n int64) {
	if r != nil && class >= 0 && r.at[shard] != nil {
		r.at[shard][class], r.pods[class] = max(0, r.at[shard][class]+n), max(0, r.pods[class]+n)
	}
}

// classOf returns the number of a class, -1 if it was not asked about.
func (x *survey) classOf(class *api.Class) int {
	return slices.IndexFunc(x.classes, func(o *api.Class) bool { return o == class || o.Key == class.Key })
}

// columns returns classOf, which remembers what it returned: it compares keys of many KiB.
func (x *survey) columns() func(class *api.Class) int {
	known := map[*api.Class]int{}
	return func(class *api.Class) int {
		i, ok := known[class]
		if !ok {
			i = x.classOf(class)
			known[class] = i
		}
		return i
	}
}

// need returns how many pods of each class there are.
func (x *survey) need(kinds []kind) []int64 {
	need := make([]int64, len(x.classes))
	for _, k := range kinds {
		if i := x.classOf(k.class); i >= 0 {
			need[i] += int64(len(k.pods))
		}
	}
	return need
}

// pinned returns the values of labels that most of some pods' nodes have, nil if no node has all of them, and whether
// all have the same.
func (c *census) pinned(g *gang, keys []string, which func(*pod) bool) (values []string, same bool) {
	counts := map[string]int{}
	best := ""
	for _, p := range g.pick(which) {
		n := c.clusterNodes[cmp.Or(p.Node, p.node)]
		if n == nil {
			continue
		}
		has := make([]string, len(keys))
		all := true
		for i, key := range keys {
			value, ok := n.Labels[key]
			has[i], all = value, all && ok
		}
		if !all {
			continue
		}
		id := strings.Join(has, "\x00")
		counts[id]++
		if k := counts[id]; values == nil || k > counts[best] || k == counts[best] && id < best {
			best, values = id, has
		}
	}
	return values, len(counts) <= 1
}
