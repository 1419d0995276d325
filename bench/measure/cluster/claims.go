package cluster

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/measure/report"
	"basalt.dev/basalt/bench/measure/scenario"
	"basalt.dev/basalt/bench/measure/workload"
)

// Claims is what became of the gangs that claimed what others were lent: first one large gang, then many at once, and then many at once
// while the leader of the coordinators changes. All times of a round begin when the first of its gangs asked for quota, which is a moment
// before it is denied: queues have no preemptionDelay.
type Claims struct {
	Rounds []*Round

	// From the end of a leader's lease until a gang that comes then, and lacks nothing, is bound: while nobody claims, and while the claims
	// of the last round stand, of which there were so many.
	Failover, FailoverClaiming time.Duration
	Standing                   int

	Problems []string // victims that two claims took, or what kept a figure from being taken
}

// Round is some gangs that claimed at once.
type Round struct {
	Name       string
	Gangs      int
	Victims    int // gangs that claims took, each once
	VictimPods int // that were evicted
	Mandates   int // that the coordinator gave

	Decided *report.Latency // until a gang's claim was in the control store
	Closed  *report.Latency // until a victim's record was closed there
	Gone    time.Duration   // until the last victim's pod was gone, which took as long to leave as the scenario says
	Bound   time.Duration   // until the last claimant had its last node

	Probe, Plan, Claim *report.Latency // the steps of a claim, from its home's spans
	Unseen             int             // claimants whose spans did not arrive
}

// claimants runs the rounds, one at a time.
type claimants struct {
	Claims
	run     *run
	ledger  *ledger
	over    atomic.Bool
	failed  error // once it is over: what ended it early
	evicted chan evictedPod

	now *gangsOfRound // nil between two rounds; the world's lock
}

// gangsOfRound is what the API showed of a round.
type gangsOfRound struct {
	missing map[string]bool // claimants that are not bound
	left    map[string]bool // and that are not gone
	bound   time.Time       // when the last one was
	victims int             // evicted pods
	gone    time.Time       // when the last of these was
}

type evictedPod struct {
	gang *gang
	name string
}

func (c *claimants) done() bool { return c.over.Load() }

// roundWithin is how long one round may take, from its first gang until what it evicted runs again.
const roundWithin = 5 * time.Minute

// startClaims makes the claimants once the cluster is full. fail ends the run.
func (r *run) startClaims(ctx context.Context, wg *sync.WaitGroup, fail func(error)) (*claimants, error) {
	c := &claimants{run: r, evicted: make(chan evictedPod, 1<<20)}
	var err error
	if c.ledger, err = followClaims(ctx, wg, r.plant.store, fail); err != nil {
		return nil, err
	}
	w := r.world
	w.mu.Lock()
	w.evicted = func(g *gang, p *v1.Pod) {
		if c.now != nil {
			c.now.victims++
			c.now.gone = time.Now()
		}
		c.evicted <- evictedPod{g, p.Name}
	}
	w.whole = func(g *gang) {
		if c.now != nil && c.now.missing[g.Name] {
			delete(c.now.missing, g.Name)
			c.now.bound = time.Now()
		}
	}
	w.gone = func(g *gang) {
		if c.now != nil {
			delete(c.now.left, g.Name)
		}
	}
	w.mu.Unlock()
	wg.Go(func() { c.makeAgain(ctx, fail) })
	wg.Go(func() {
		defer c.over.Store(true)
		c.failed = c.rounds(ctx)
	})
	return c, nil
}

// makeAgain stands in for the controllers of evicted pods.
func (c *claimants) makeAgain(ctx context.Context, fail func(error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-c.evicted:
			i, err := strconv.Atoi(p.name[strings.LastIndexByte(p.name, '-')+1:])
			if err == nil {
				c.run.world.mu.Lock()
				p.gang.complete = time.Now()
				c.run.world.mu.Unlock()
				err = c.run.load.makePods(p.gang, i, i+1)
			}
			if err != nil {
				fail(fmt.Errorf("make an evicted pod again: %w", err))
				return
			}
		}
	}
}

func (c *claimants) rounds(ctx context.Context) (err error) {
	of := c.run.Scenario.Claims
	if c.Failover, err = c.failover(ctx, "newcomer-0"); err != nil {
		return err
	}
	if err := c.round(ctx, fmt.Sprintf("a gang of %d", of.Pods), "one", 1, nil); err != nil {
		return err
	}
	together := fmt.Sprintf("%d gangs at once", of.Together)
	if err := c.round(ctx, together, "many", of.Together, nil); err != nil {
		return err
	}
	return c.round(ctx, together+", leader lost", "lost", of.Together, func(ctx context.Context, uids []string) (err error) {
		if err = c.ledger.allDecided(ctx, uids); err != nil {
			return err
		}
		c.Standing = c.ledger.claims()
		c.FailoverClaiming, err = c.failover(ctx, "newcomer-1")
		return err
	})
}

// failover has the leader lose its lease, and returns how long a gang that comes then and lacks nothing waits until it is bound.
func (c *claimants) failover(ctx context.Context, name string) (time.Duration, error) {
	leaves := c.run.load.leaves
	g := &scenario.Gang{Name: name, Kind: "newcomer", Plain: true, Queue: leaves[len(leaves)-1], MinCount: 1, Lifetime: time.Second, Pods: []workload.Shape{{MemoryMiB: 1}}}
	bound := make(chan time.Time, 1)
	w := c.run.world
	w.mu.Lock()
	whole := w.whole
	w.whole = func(o *gang) {
		if whole(o); o.Name == name {
			bound <- time.Now()
		}
	}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.whole = whole
		w.mu.Unlock()
	}()
	began := time.Now()
	if err := c.run.plant.Depose(ctx); err != nil {
		return 0, err
	}
	if err := c.run.load.make(g, true); err != nil {
		return 0, err
	}
	select {
	case at := <-bound:
		return at.Sub(began), nil
	case <-time.After(roundWithin):
		return 0, fmt.Errorf("gang %s was not bound within %s of the end of the leader's lease", name, roundWithin)
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// round has some gangs claim at once, and waits until they have ended and what they evicted runs again. meanwhile is called when all are made;
// it may be nil.
func (c *claimants) round(ctx context.Context, title, name string, count int, meanwhile func(ctx context.Context, uids []string) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, roundWithin, fmt.Errorf("it took more than %s", roundWithin))
	defer cancel()
	latency := func(stage string) *report.Latency { return report.NewLatency(title, stage) }
	out := &Round{Name: title, Gangs: count, Decided: latency("denied to claim decided"), Closed: latency("denied to victim closed"),
		Probe: latency("mandate to rooms known"), Plan: latency("rooms known to rooms promised"), Claim: latency("claim sent to decided")}
	seen := &gangsOfRound{missing: map[string]bool{}, left: map[string]bool{}}
	all := c.run.Scenario.MakeClaimants(name, count)
	for _, g := range all {
		seen.missing[g.Name], seen.left[g.Name] = true, true
	}
	c.run.world.mu.Lock()
	c.now = seen
	c.run.world.mu.Unlock()
	c.ledger.begin()
	mandates := c.mandates()
	uids, err := c.make(all)
	if err != nil {
		return err
	}
	if meanwhile != nil {
		if err := meanwhile(ctx, uids); err != nil {
			return fmt.Errorf("%s: %w", title, err)
		}
	}
	for c.unfinished() {
		if pause(ctx, 10*time.Millisecond); ctx.Err() != nil {
			wait := c.wait()
			c.run.world.mu.Lock()
			defer c.run.world.mu.Unlock()
			return fmt.Errorf("%s: %d claimants are not bound, %d not gone, %d evicted pods do not run again, %d claims stand: %w; %s", title,
				len(seen.missing), len(seen.left), c.run.world.waitingPods, c.ledger.claims(), context.Cause(ctx), wait)
		}
	}
	c.run.world.mu.Lock()
	c.now = nil
	c.run.world.mu.Unlock()
	out.Mandates = c.mandates() - mandates
	c.tell(ctx, out, seen, uids)
	c.Rounds = append(c.Rounds, out)
	return nil
}

// make makes gangs that are complete at once, and returns the UIDs of their PodGroups.
func (c *claimants) make(all []*scenario.Gang) (uids []string, err error) {
	var gangs []*gang
	for _, sg := range all {
		g, uid, err := c.run.load.begin(sg, true)
		if err != nil {
			return nil, err
		}
		c.run.spans.want(uid)
		if err := c.run.load.makePods(g, 0, len(sg.Pods)-1); err != nil {
			return nil, err
		}
		gangs, uids = append(gangs, g), append(uids, uid)
	}
	for _, g := range gangs {
		if err := c.run.load.makePods(g, len(g.Pods)-1, len(g.Pods)); err != nil {
			return nil, err
		}
	}
	return uids, nil
}

// unfinished reports whether claimants have not been bound and gone, or evicted pods do not run again.
func (c *claimants) unfinished() bool {
	c.run.world.mu.Lock()
	defer c.run.world.mu.Unlock()
	return len(c.now.missing)+len(c.now.left) > 0 || c.run.world.waitingPods > 0
}

// wait says of some gangs why they wait.
func (c *claimants) wait() string {
	const few = 3
	names := map[string][]string{}
	c.run.world.mu.Lock()
	for name, g := range c.run.world.gangs {
		if g.bound < g.MinCount {
			names[g.Kind] = append(names[g.Kind], name)
		}
	}
	c.run.world.mu.Unlock()
	var out []string
	for _, kind := range api.SortedKeys(names) {
		slices.Sort(names[kind])
		for _, name := range names[kind][:min(few, len(names[kind]))] {
			o, err := c.run.api.Get("podgroups", namespace, name)
			if err != nil {
				continue // one without a PodGroup, or gone
			}
			if status := o.(*v1beta1.PodGroup).Status; status != nil {
				for _, is := range status.Conditions {
					out = append(out, fmt.Sprintf("%s %s=%s %s: %s", name, is.Type, is.Status, is.Reason, is.Message))
				}
			}
		}
	}
	return strings.Join(out, "; ")
}

func (c *claimants) mandates() int {
	return int(c.run.plant.metric("basalt_coordinator_messages_total").byLabel["Mandate"])
}

// tell writes down a round that is over, once the claimants' spans have come, which they do in batches of some seconds.
func (c *claimants) tell(ctx context.Context, out *Round, seen *gangsOfRound, uids []string) {
	steps := make([]map[string]step, len(uids))
	for range 150 {
		whole := 0
		for i, uid := range uids {
			steps[i] = c.run.spans.of(uid)
			if _, is := steps[i]["gang"]; is {
				whole++
			}
		}
		if whole == len(uids) || ctx.Err() != nil {
			break
		}
		pause(ctx, 100*time.Millisecond)
	}
	var asked time.Time
	for _, of := range steps {
		if q, is := of["queue wait"]; is && (asked.IsZero() || q.end.Before(asked)) {
			asked = q.end
		}
		for name, into := range map[string]*report.Latency{"probe": out.Probe, "plan": out.Plan, "claim": out.Claim} {
			if s, is := of[name]; is {
				into.Record(s.end.Sub(s.start))
			}
		}
		if _, is := of["claim"]; !is {
			out.Unseen++
		}
	}
	if asked.IsZero() {
		c.Problems = append(c.Problems, out.Name+": no span says when its gangs asked for quota")
		return
	}
	c.Problems = append(c.Problems, c.ledger.tell(out, asked, uids)...)
	out.VictimPods, out.Gone, out.Bound = seen.victims, max(0, seen.gone.Sub(asked)), seen.bound.Sub(asked)
}
