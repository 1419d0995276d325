// Package audit judges Basalt from outside: from every revision of the control store and from what a watch on the API
// server shows, it recomputes what must always hold, and reports each breach with the revisions that prove it.
//
// It owns nothing but its own sums and refuses to trust any: it reads records and objects (packages api, api/wire and
// api/v1beta1) and shares no code with the deciding cores. It decides nothing that anyone acts on. It is a pure core like
// theirs: Observe takes one event and its time, and the same events give the same report. The folder follow holds the
// shell that watches.
//
// What it checks, by the kinds below: limits at each revision and against the Queues that they come from, guarantees,
// reservations and the pods that they name, terms and the coordinator's fence, tables, intents, nodes, gangs, bindings and
// where they put a pod and beside whom, the topology domains of gangs, evictions, claims and their victims, the writers and the sums of statuses, the order of a queue, and what outlives its reason.
// What a pod takes it computes itself (requests.go), and a reservation's claim that it is forced it checks against the pods
// that are bound.
//
// Invariants of the judging itself:
//   - What can be judged within one stream (one revision of the store; the pods in watch order) is judged at once.
//   - What needs two streams is judged only when it has lasted longer than the streams can lag: they are not ordered
//     against each other, and an auditor that cries wolf is switched off.
//   - Violations older than the auditor are reported only if they worsen.
package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
)

// Kind is what sort of invariant was broken.
type Kind string

// The kinds, with the ids of the design's list of what must always hold.
const (
	Quota       Kind = "quota"       // I1: reservations, or bound pods, above a limit in force
	Reservation Kind = "reservation" // I2: a second record, or a transition that is not allowed
	Term        Kind = "term"        // I3: a write of an old term, or without the coordinator's fence
	Intent      Kind = "intent"      // I7 and more: old epoch, written twice, foreign node, no open reservation
	Table       Kind = "table"       // I7: epochs that do not grow
	Binding     Kind = "binding"     // I4: a pod on two nodes, or bound without an intent
	Overcommit  Kind = "overcommit"  // I5: a node with more than it has
	Partial     Kind = "partial"     // I6: a gang without its minimum, for too long
	Status      Kind = "status"      // I8: two writers in one epoch, or a stamp that goes back
	Leak        Kind = "leak"        // I9: reservations, intents or charges that outlive their reason, and pods without them
	Record      Kind = "record"      // a record that cannot be read
	Limits      Kind = "limits"      // limits in force that are not those of the Queue, for too long
	Guarantee   Kind = "guarantee"   // a grant out of what is kept free for another queue, or could not be given back to it
	Placement   Kind = "placement"   // a pod on a node that its own constraints exclude
	Eviction    Kind = "eviction"    // I15: a pod evicted whose reservation was not closing, or that has started and yields to nobody
	Condition   Kind = "condition"   // a pod called Unschedulable that never had quota
	Order       Kind = "order"       // I10: a gang passed over by a younger one of its queue that asks for no less

	Claim Kind = "claim" // I13, I17: a claim that takes from whom it may not, or more than it needs, or ends too early
	// I20, I21, I26: a gang in a claim that is protected; or closed for one that did not claim it, or twice; or as
	// stale, and not short.
	Victim Kind = "victim"

	AntiAffinity Kind = "anti-affinity" // C2: a pod bound where one is that it repels, or that repels it
	Affinity     Kind = "affinity"      // C2: a pod bound to a domain without a pod that its affinity asks for
	Spread       Kind = "spread"        // C2: a pod bound to a domain with too many of those that its spread counts
	Domain       Kind = "domain"        // C3: a gang, or a slice of it, in more topology domains than the one that its PodGroup requires
)

// Kinds lists them all in the order of reports.
var Kinds = []Kind{Quota, Reservation, Term, Intent, Table, Binding, Overcommit, Partial, Status, Leak, Record, Limits, Guarantee, Placement, Eviction, Condition, Order, AntiAffinity, Affinity, Spread, Domain, Claim, Victim}

// Violation is one breach.
type Violation struct {
	Kind      Kind
	Object    string // what counts as one violation however often it is seen: "queue a.b cpu", "node n1", "gang <uid>"
	Message   string
	Time      time.Time
	Revisions []int64  // of the control store
	Versions  []string // resourceVersions of the API server
}

func (v Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: %s", v.Kind, v.Object, v.Message)
	if len(v.Revisions) > 0 {
		fmt.Fprintf(&b, " (control store revisions %v)", v.Revisions)
	}
	if len(v.Versions) > 0 {
		fmt.Fprintf(&b, " (resourceVersions %v)", v.Versions)
	}
	return b.String()
}

// Config of an Auditor. Zero durations take the defaults named.
type Config struct {
	// Schedulers are the names in spec.schedulerName that Basalt is configured to serve: "basalt" alone.
	Schedulers []string
	// Volcano says that pods may belong to PodGroups of scheduling.volcano.sh.
	Volcano bool
	// Ignore names the resources that Basalt is configured to ignore.
	Ignore map[string]bool
	// Lag bounds how far the streams may be apart: 2 s.
	Lag time.Duration
	// Exact says that both streams are seen at once, in one order and by the cluster's clock, as in a simulator: what is judged of claims is judged
	// then, whatever Lag is.
	Exact bool
	// Grace is for how long a gang may be partly bound, a reservation without pods, a bound pod without reservation: 30 s.
	Grace time.Duration
	// Unresolved is for how long an intent may stand: 60 s.
	Unresolved time.Duration
	// Passed is for how long a gang may be denied while younger ones of its queue that ask for no less are admitted: 3 min.
	Passed time.Duration
	// Keep is how many violations are kept with their words; all are counted: 200.
	Keep int
}

// Event is something seen: StoreRevision, Seen and the like, Tick.
type Event interface{ event() }

type (
	// StoreRevision is everything that one revision of the control store changed. Keys come without the store's prefix.
	// With Snapshot set it is instead all that exists at that revision: what happened before is not known. With Replaced set,
	// too, it is of another store, or of this one gone back: nothing that was known of the old one holds for it.
	StoreRevision struct {
		Revision int64
		Changes  []StoreChange
		Snapshot bool
		Replaced bool
	}
	// StoreChange is a key that was put, or with Deleted one that is gone.
	StoreChange struct {
		Key            string
		Value          []byte
		Deleted        bool
		CreateRevision int64
		ModRevision    int64
	}
	// Listed is a new list of pods, nodes, namespaces, claims, volumes, CSINodes or Queues: those that it does not name
	// are gone.
	Listed[T metav1.Object] struct{ Objects []T }
	// Seen is one of them as it is now, and Gone one that is gone.
	Seen[T metav1.Object] struct{ Object T }
	Gone[T metav1.Object] struct{ Object T }

	// PodGroupsReplaced is a list of PodGroups of one kind. Those of another kind than Basalt's are given as Basalt's, without a status.
	PodGroupsReplaced struct {
		PodGroups []*v1beta1.PodGroup
		Kind      api.GroupKind
		Floors    map[types.UID]v1.ResourceList // minResources of those that are Volcano's
	}
	PodGroupSeen struct {
		PodGroup *v1beta1.PodGroup
		Kind     api.GroupKind
		Floor    v1.ResourceList // minResources, if it is Volcano's
	}
	PodGroupGone struct{ PodGroup *v1beta1.PodGroup }

	// Tick lets time pass; a few a second are enough. Blind says that a stream may be behind by more than Lag (its server is
	// not reached, its watch was cut): time then passes for nothing that would be wrong only if it lasted.
	Tick struct{ Blind bool }
)

func (StoreRevision) event()     {}
func (Listed[T]) event()         {}
func (Seen[T]) event()           {}
func (Gone[T]) event()           {}
func (PodGroupsReplaced) event() {}
func (PodGroupSeen) event()      {}
func (PodGroupGone) event()      {}
func (Tick) event()              {}

// Auditor is the judging core.
type Auditor struct {
	cfg Config
	findings
	gap      time.Time // until then, pods may show that were bound while revisions were missed
	revision int64
	renamed  []renamed // reservations of the revision being judged,
	grown    []growth  // and what they grew by

	store   store
	cluster cluster
	volumes volumes
}

// New makes an Auditor that has seen nothing.
func New(cfg Config) *Auditor {
	if len(cfg.Schedulers) == 0 {
		cfg.Schedulers = []string{api.SchedulerName}
	}
	cfg.Lag = cmp.Or(cfg.Lag, 2*time.Second)
	cfg.Grace = cmp.Or(cfg.Grace, 30*time.Second)
	cfg.Unresolved = cmp.Or(cfg.Unresolved, 60*time.Second)
	cfg.Passed = cmp.Or(cfg.Passed, 3*time.Minute)
	cfg.Keep = cmp.Or(cfg.Keep, 200)
	return &Auditor{
		cfg: cfg, findings: newFindings(cfg.Keep),
		store: newStore(), cluster: newCluster(), volumes: newVolumes(),
	}
}

// Observe takes one event, seen at the time given.
func (a *Auditor) Observe(now time.Time, e Event) {
	if now.After(a.now) {
		a.now = now
	}
	switch e := e.(type) {
	case StoreRevision:
		a.storeRevision(e)
	case Listed[*v1.Pod]:
		a.podsReplaced(e.Objects)
	case Seen[*v1.Pod]:
		a.podSeen(e.Object)
	case Gone[*v1.Pod]:
		a.podGone(string(e.Object.UID))
	case Listed[*v1.Node]:
		a.nodesReplaced(e.Objects)
	case Seen[*v1.Node]:
		a.nodeSeen(e.Object)
	case Gone[*v1.Node]:
		a.nodeGone(e.Object.Name)
	case Listed[*v1.Namespace]:
		a.spacesReplaced(e.Objects)
	case Seen[*v1.Namespace]:
		a.spaceSeen(e.Object)
	case Gone[*v1.Namespace]:
		delete(a.cluster.spaces, e.Object.Name)
	case Listed[*v1beta1.Queue]:
		a.queuesReplaced(e.Objects)
	case Seen[*v1beta1.Queue]:
		a.queueSeen(e.Object)
	case Gone[*v1beta1.Queue]:
		a.queueGone(e.Object.Name, string(e.Object.UID))
	case PodGroupsReplaced:
		a.podGroupsReplaced(e)
	case PodGroupSeen:
		a.podGroupSeen(e.PodGroup, e.Kind, e.Floor)
	case PodGroupGone:
		a.podGroupGone(string(e.PodGroup.UID))
	case Tick:
		a.tick(e.Blind)
	default:
		a.storageEvent(e)
	}
}

// Report is what was found.
type Report struct {
	// Counts holds for each kind the number of distinct objects concerned; kinds without any are absent.
	Counts map[Kind]int
	// Violations holds the first ones, in the order of being found, one for each kind and object.
	Violations []Violation
	// Standing counts, of what is wrong only when it lasts, what still is: "leak: reservation without pods" and the like.
	Standing map[string]int
	Revision int64 // of the control store: the newest that was judged
	Pods     int   // that are known now
	Gangs    int
	Intents  int
	Recounts int // pods whose affinity and spread were judged, and times that the domains of a gang were
	Spared   int // those for which too little was known to do so
}

// Sum counts the violations of all kinds.
func (r Report) Sum() int {
	n := 0
	for _, c := range r.Counts {
		n += c
	}
	return n
}

// StandingOf sums what still stands of a kind.
func (r Report) StandingOf(k Kind) int {
	n := 0
	for what, count := range r.Standing {
		if kind, _, _ := strings.Cut(what, ": "); kind == string(k) {
			n += count
		}
	}
	return n
}

// Report returns what was found so far.
func (a *Auditor) Report() Report {
	r := Report{
		Counts: map[Kind]int{}, Standing: map[string]int{}, Violations: slices.Clone(a.found), Revision: a.revision,
		Pods: len(a.cluster.pods), Gangs: len(a.cluster.gangs), Intents: len(a.store.intents),
		Recounts: a.cluster.recounts, Spared: a.cluster.spared,
	}
	for k, objects := range a.counts {
		r.Counts[k] = len(objects)
	}
	for k, l := range a.lasting {
		if l.fired {
			r.Standing[string(k.kind)+": "+k.what]++
		}
	}
	return r
}

// Found returns the violations that were kept, beginning with the nth.
func (a *Auditor) Found(n int) []Violation { return slices.Clone(a.found[min(n, len(a.found)):]) }

func (a *Auditor) tick(blind bool) {
	passed, first := a.findings.tick()
	if blind {
		if !first {
			a.hold(passed)
		}
		if a.gap.After(a.now.Add(-passed)) {
			a.gap = a.gap.Add(passed)
		}
		return
	}
	a.judgeQueues()
	a.fire()
	a.forget()
}
