package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/stage/kubelet"
)

// Part 3: two teams share a queue. Team batch runs on all of it while team prod is idle. Then prod comes back and gets what it deserves:
// whole gangs of batch are evicted for whole gangs of prod. When prod ends, the evicted gangs start again.
//
// All numbers follow from these, whatever the scale, and are few enough to be checked by hand.
const (
	shared, batchTeam, prodTeam = "teams", "teams.batch", "teams.prod"

	teamsNamespace = "teams" // of its own, so that its events have a budget of their own
	teamPods       = 8       // of each gang
	teamPodCores   = 4
	teamGangCores  = teamPods * teamPodCores
	batchGangs     = 12
	prodGangs      = batchGangs / 2 // as many as prod deserves
	sharedCores    = batchGangs * teamGangCores
	deservedCores  = sharedCores / 2

	reclaimMinRuntime = 0
	preemptionDelay   = 2 * time.Second
)

// waitTeams bounds part 3 as a whole. It takes about 10 s where nothing else runs.
const (
	waitTeams = 90 * time.Second
	waitSaid  = 20 * time.Second // until a status tells what has happened
)

func teamQueues() []*v1beta1.Queue {
	cores := func(n int64) v1.ResourceList {
		return v1.ResourceList{"cpu": *resource.NewQuantity(n, resource.DecimalSI)}
	}
	return []*v1beta1.Queue{
		{ObjectMeta: metav1.ObjectMeta{Name: shared}, Spec: v1beta1.QueueSpec{Capability: cores(sharedCores),
			ReclaimMinRuntime: &metav1.Duration{Duration: reclaimMinRuntime}, PreemptionDelay: &metav1.Duration{Duration: preemptionDelay}}},
		{ObjectMeta: metav1.ObjectMeta{Name: batchTeam}, Spec: v1beta1.QueueSpec{Deserved: cores(deservedCores)}},
		{ObjectMeta: metav1.ObjectMeta{Name: prodTeam}, Spec: v1beta1.QueueSpec{Deserved: cores(deservedCores)}},
	}
}

// teamGang is a gang of part 3, as the watches show it.
type teamGang struct {
	name, queue string
	uid         string // of its reservation
	made        int    // pods, of which each has a name of its own

	state   runState
	running map[types.UID]bool
	since   time.Time // of the first Binding, or of the first pod that left
	runs    int       // how often it ran as a whole
	evicted int       // how often it was evicted as a whole
	yields  *wire.Yielding
	claim   claimSeen
	gone    time.Time // of the last of its pods that is gone
	status  *v1beta1.PodGroupStatus
	target  *metav1.Condition // DisruptionTarget=True, when it was last seen
}

// claimSeen is what the watches showed of a gang's first claim, and when.
type claimSeen struct {
	asked          time.Time // its pods were made
	written        time.Time // its record has the claim: this put decides
	victims        []string
	closed         time.Time // the record of the last victim is closed
	leaves, gone   time.Time // the first pod of a victim is being deleted, and the last one is gone
	granted, whole time.Time // what they leave is charged to the gang, and all of its pods have nodes
}

// runState is how far a gang's run is. It goes round: idle, starting, whole, leaving.
type runState int

const (
	idle     runState = iota // no pod has a node
	starting                 // some have
	whole                    // all have
	leaving                  // some of them have left
)

// teams tracks part 3. The tracker's lock guards it.
type teams struct {
	gangs  []*teamGang
	byName map[string]*teamGang
	pods   map[types.UID]*teamGang // that were seen, and have neither ended nor gone
	lost   []*teamGang             // a pod of theirs was deleted, and nobody has replaced it yet
	inPart []string                // what was seen of gangs that ran in part

	toStart, toLeave time.Duration // the longest time from a gang's first Binding to its last, and between its pods' departures
	moments          []moment
}

// moment is what both teams have after something happened.
type moment struct {
	at          time.Time
	batch, prod int // cores of pods with a node
	what        string
	step        bool // of the demo's, not of Basalt's
}

func newTeams() *teams {
	t := &teams{byName: map[string]*teamGang{}, pods: map[types.UID]*teamGang{}}
	for _, of := range []struct {
		prefix, queue string
		n             int
	}{{"batch", batchTeam, batchGangs}, {"prod", prodTeam, prodGangs}} {
		for i := range of.n {
			g := &teamGang{name: fmt.Sprintf("%s-%02d", of.prefix, i), queue: of.queue, running: map[types.UID]bool{}}
			t.gangs, t.byName[g.name] = append(t.gangs, g), g
		}
	}
	return t
}

func (t *teams) of(queue string) (out []*teamGang) {
	for _, g := range t.gangs {
		if g.queue == queue {
			out = append(out, g)
		}
	}
	return out
}

// cores returns what the pods of a team have that have a node.
func (t *teams) cores(queue string) (n int) {
	for _, g := range t.of(queue) {
		n += len(g.running) * teamPodCores
	}
	return n
}

// in returns how many gangs of a team are in a state.
func (t *teams) in(queue string, s runState) (n int) {
	for _, g := range t.of(queue) {
		if g.state == s {
			n++
		}
	}
	return n
}

func (t *teams) evicted() (out []*teamGang) {
	for _, g := range t.gangs {
		if g.yields != nil || g.evicted > 0 {
			out = append(out, g)
		}
	}
	return out
}

func (t *teams) mark(at time.Time, format string, args ...any) {
	t.moments = append(t.moments, moment{at, t.cores(batchTeam), t.cores(prodTeam), fmt.Sprintf(format, args...), false})
}

// said returns the moments that have words, after the first n of them.
func (t *teams) said(n int) (out []moment) {
	for _, m := range t.moments {
		if m.what != "" {
			out = append(out, m)
		}
	}
	return out[n:]
}

func (t *teams) observe(at time.Time, e audit.Event) {
	switch e := e.(type) {
	case audit.Listed[*v1.Pod]:
		there := map[types.UID]bool{}
		for _, p := range e.Objects {
			there[p.UID] = true
			t.podSeen(at, p)
		}
		for uid, g := range t.pods {
			if !there[uid] {
				t.podGone(at, g, uid)
			}
		}
	case audit.Seen[*v1.Pod]:
		t.podSeen(at, e.Object)
	case audit.Gone[*v1.Pod]:
		if g := t.pods[e.Object.UID]; g != nil {
			t.podGone(at, g, e.Object.UID)
		}
	case audit.PodGroupsReplaced:
		for _, g := range e.PodGroups {
			t.groupSeen(g)
		}
	case audit.PodGroupSeen:
		t.groupSeen(e.PodGroup)
	}
}

func (t *teams) groupSeen(g *v1beta1.PodGroup) {
	if x := t.byName[g.Name]; x != nil && g.Namespace == teamsNamespace && g.Status != nil {
		x.status = g.Status
		if c := x.condition(v1beta1.ConditionDisruptionTarget); c != nil && c.Status == metav1.ConditionTrue {
			x.target = c
		}
	}
}

func (t *teams) podSeen(at time.Time, p *v1.Pod) {
	g := t.byName[p.Labels[api.LabelPodGroup]]
	if g == nil || p.Namespace != teamsNamespace {
		return
	}
	t.pods[p.UID] = g
	ended := p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
	switch runs := g.running[p.UID]; {
	case runs && (ended || p.DeletionTimestamp != nil):
		t.left(at, g, p.UID, !ended)
	case !runs && p.Spec.NodeName != "" && !ended && p.DeletionTimestamp == nil:
		t.bound(at, g, p.UID)
	}
	if ended {
		delete(t.pods, p.UID)
	}
}

func (t *teams) podGone(at time.Time, g *teamGang, uid types.UID) {
	delete(t.pods, uid)
	g.gone = at
	t.lost = append(t.lost, g)
	if g.running[uid] {
		t.left(at, g, uid, true)
	}
}

func (t *teams) bound(at time.Time, g *teamGang, uid types.UID) {
	g.running[uid] = true
	switch g.state {
	case idle:
		g.state, g.since = starting, at
	case whole, leaving:
		t.inPart = append(t.inPart, fmt.Sprintf("a pod of gang %s was bound while %d others ran or left", g.name, len(g.running)-1))
	}
	if g.state == starting && len(g.running) == teamPods {
		g.state, t.toStart = whole, max(t.toStart, at.Sub(g.since))
		g.runs++
		if c := &g.claim; !c.written.IsZero() && c.whole.IsZero() {
			c.whole = at
			for _, name := range c.victims {
				if v := t.byName[name]; v != nil && v.gone.After(c.gone) {
					c.gone = v.gone
				}
			}
		}
	}
	t.mark(at, "")
}

func (t *teams) left(at time.Time, g *teamGang, uid types.UID, evicted bool) {
	delete(g.running, uid)
	switch g.state {
	case starting:
		t.inPart = append(t.inPart, fmt.Sprintf("a pod of gang %s left while the gang was starting", g.name))
	case whole:
		g.state, g.since = leaving, at
		if evicted {
			if c := t.claimant(g); c != nil && (c.leaves.IsZero() || at.Before(c.leaves)) {
				c.leaves = at
			}
			t.mark(at, "%s is evicted%s", g.name, g.forWhom())
		}
	}
	if len(g.running) == 0 {
		g.state, t.toLeave = idle, max(t.toLeave, at.Sub(g.since))
		if evicted {
			g.evicted++
		}
	}
	t.mark(at, "")
}

// forWhom says for which gang this one was evicted last.
func (g *teamGang) forWhom() string {
	if g.yields == nil {
		return ""
	}
	return " for " + g.yields.GetTo().GetName()
}

// claimant returns the claim that a gang is evicted for, nil if it is not known.
func (t *teams) claimant(g *teamGang) *claimSeen {
	if by := t.byName[g.yields.GetTo().GetName()]; by != nil {
		return &by.claim
	}
	return nil
}

// reserved is called when a reservation was written.
func (t *teams) reserved(at time.Time, r *wire.ReservationRecord) {
	g := t.byName[r.GetGang().GetName()]
	if g == nil || r.GetGang().GetNamespace() != teamsNamespace {
		return
	}
	g.uid = r.GetGang().GetUid()
	c := &g.claim
	switch {
	case r.GetYields() != nil:
		if g.yields == nil {
			g.yields = r.GetYields()
			if of := t.claimant(g); of != nil && of.whole.IsZero() {
				of.closed = at
			}
		}
	case r.GetClaim() != nil && c.written.IsZero():
		c.written = at
		for _, v := range r.GetClaim().GetVictims() { // the record has their UIDs
			if i := slices.IndexFunc(t.gangs, func(o *teamGang) bool { return o.uid == v.GetGang().GetUid() }); i >= 0 {
				c.victims = append(c.victims, t.gangs[i].name)
			}
		}
	case r.GetClaim() == nil && !c.written.IsZero() && c.granted.IsZero() && len(r.GetDemand()) > 0:
		c.granted = at
	}
}

// traced returns what happened to a claim, a line for each step: when it was seen, how long after the step before, and as a picture.
func (g *teamGang) traced() (out []string) {
	c := &g.claim
	const width = 40
	whole := c.whole.Sub(c.asked)
	if c.written.IsZero() || whole <= 0 {
		return nil
	}
	type step struct {
		at   time.Time
		what string
	}
	steps := []step{
		{c.asked, "its pods are made; its queue deserves what it asks for, and others have it"},
		{c.written, fmt.Sprintf("after %s without room: rooms are promised, and the claim is written, which decides: %s is to go", preemptionDelay, strings.Join(c.victims, ", "))},
		{c.closed, "the victim's reservation is closed: no pod of it can be bound any more"},
		{c.leaves, "the first of its pods is being deleted"},
		{c.gone, "the last of them is gone"},
		{c.granted, "what they left is charged to the gang"},
		{c.whole, "all of its pods have nodes"},
	}
	steps = slices.DeleteFunc(steps, func(s step) bool { return s.at.IsZero() })
	slices.SortStableFunc(steps, func(a, b step) int { return a.at.Compare(b.at) }) // they were seen by different watches
	last := c.asked
	for _, s := range steps {
		from, to := int(width*last.Sub(c.asked)/whole), int(width*s.at.Sub(c.asked)/whole)
		from, to = max(0, min(from, width)), max(0, min(to, width))
		bar := strings.Repeat(" ", from) + strings.Repeat("=", max(1, to-from))
		out = append(out, fmt.Sprintf("%6.2f s  %-*s  %s", s.at.Sub(c.asked).Seconds(), width+1, bar, s.what))
		last = s.at
	}
	return out
}

// condition returns a condition of the gang's PodGroup, nil if it has none.
func (g *teamGang) condition(kind string) *metav1.Condition {
	if g.status == nil {
		return nil
	}
	return meta.FindStatusCondition(g.status.Conditions, kind)
}

// waits reports whether the PodGroup says that the gang does not run, and waits for quota.
func (g *teamGang) waits() bool {
	started, quota := g.condition(v1beta1.ConditionPodGroupInitiallyScheduled), g.condition(v1beta1.ConditionQuotaReserved)
	return started != nil && started.Status == metav1.ConditionFalse && quota != nil && quota.Status == metav1.ConditionFalse && quota.Reason == v1beta1.ReasonQuotaExceeded
}

func say(c *metav1.Condition) string {
	return fmt.Sprintf("%s=%s, %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
}

// thirdPart is what part 3 showed beside what teams has.
type thirdPart struct {
	came      time.Time // when the gangs of prod were made
	took      time.Duration
	whole     bool   // both teams ended as they should
	evicted   string // the gang of which the rest tells
	claimant  string
	event     string // that the evicted gang's PodGroup has
	claimed   string // that of the gang for which it was evicted
	target    string // the condition that the gang had while it was evicted
	condition string // those that it had afterwards
	why       string // what basalt why said of it
	queues    string // what basalt queue list said meanwhile
}

func (d *demo) partThree(ctx context.Context) (r *thirdPart, err error) {
	r = &thirdPart{}
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	t := d.track.teams
	limit := time.Now().Add(waitTeams)
	wait := func(what string, holds func() bool) bool {
		if d.until(ctx, max(time.Second, time.Until(limit)), func() bool { d.track.mu.Lock(); defer d.track.mu.Unlock(); return holds() }) {
			return true
		}
		if ctx.Err() == nil {
			d.note("part 3: it did not come to this within %s: %s", waitTeams, what)
		}
		return false
	}
	mark := func(format string, args ...any) {
		d.track.mu.Lock()
		defer d.track.mu.Unlock()
		t.mark(time.Now(), format, args...)
		t.moments[len(t.moments)-1].step = true
	}

	d.phase.Store("part 3: batch borrows what prod does not use")
	if err := d.makeTeam(ctx, batchTeam); err != nil {
		return r, err
	}
	wg.Go(func() {
		if err := d.replaceLost(ctx); err != nil {
			cancel(err)
		}
	})
	if !wait("all of batch runs", func() bool { return t.in(batchTeam, whole) == batchGangs }) {
		return r, context.Cause(ctx)
	}

	d.phase.Store("part 3: prod takes back what it deserves")
	r.came = time.Now()
	mark("prod creates %d gangs", prodGangs)
	if err := d.makeTeam(ctx, prodTeam); err != nil {
		return r, err
	}
	if !wait("prod has what it deserves, and batch the rest", func() bool {
		return t.in(prodTeam, whole) == prodGangs && t.in(batchTeam, whole) == batchGangs-prodGangs && t.in(batchTeam, idle) == prodGangs
	}) {
		return r, context.Cause(ctx)
	}
	r.took = time.Since(r.came)
	mark("both teams have what they deserve")
	d.ask(ctx, r, limit)

	d.phase.Store("part 3: prod ends, batch comes back")
	mark("prod ends")
	if err := d.endTeam(ctx, prodTeam); err != nil {
		return r, err
	}
	r.whole = wait("what was evicted runs again", func() bool {
		return t.in(prodTeam, idle) == prodGangs && t.in(batchTeam, whole) == batchGangs
	})
	if r.whole {
		mark("all that was evicted runs again")
	}
	return r, context.Cause(ctx)
}

// makeTeam creates the gangs of a team, one after another.
func (d *demo) makeTeam(ctx context.Context, queue string) error {
	for _, g := range d.track.teams.of(queue) {
		d.track.mu.Lock()
		g.claim.asked = time.Now()
		d.track.mu.Unlock()
		group := &v1beta1.PodGroup{
			ObjectMeta: metav1.ObjectMeta{Namespace: teamsNamespace, Name: g.name},
			Spec: v1beta1.PodGroupSpec{Queue: g.queue, SchedulingPolicy: v1beta1.SchedulingPolicy{Gang: v1beta1.GangSchedulingPolicy{MinCount: teamPods}},
				Preemptible: new(true)}, // its pods have no controller but the demo
		}
		if err := d.kube.Basalt.Post().Namespace(teamsNamespace).Resource("podgroups").Body(group).Do(ctx).Error(); err != nil {
			return fmt.Errorf("create PodGroup %s: %w", g.name, err)
		}
		if err := parallel(ctx, teamPods, slices.Repeat([]*teamGang{g}, teamPods), d.makeTeamPod); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) makeTeamPod(ctx context.Context, g *teamGang) error {
	d.track.mu.Lock()
	name := fmt.Sprintf("%s-%03d", g.name, g.made)
	g.made++
	d.track.mu.Unlock()
	grace := int64(1)
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: teamsNamespace, Name: name, Labels: map[string]string{api.LabelPodGroup: g.name, "team": g.queue}},
		Spec: v1.PodSpec{
			SchedulerName: api.SchedulerName, RestartPolicy: v1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace,
			Containers: []v1.Container{{Name: "main", Image: "none", Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{"cpu": *resource.NewQuantity(teamPodCores, resource.DecimalSI)}}}},
		},
	}
	if _, err := d.kube.Core.CoreV1().Pods(teamsNamespace).Create(ctx, p, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create pod %s: %w", name, err)
	}
	return nil
}

// replaceLost does what the controllers of evicted pods do: it makes another pod for each that was deleted, until the context ends.
func (d *demo) replaceLost(ctx context.Context) error {
	for {
		var lost []*teamGang
		d.until(ctx, time.Hour, func() bool {
			d.track.mu.Lock()
			defer d.track.mu.Unlock()
			lost, d.track.teams.lost = d.track.teams.lost, nil
			return len(lost) > 0
		})
		if ctx.Err() != nil {
			return nil
		}
		if err := parallel(ctx, teamPods, lost, d.makeTeamPod); err != nil {
			return err
		}
	}
}

// endTeam has all pods of a team run to their end.
func (d *demo) endTeam(ctx context.Context, queue string) error {
	list, err := d.kube.Core.CoreV1().Pods(teamsNamespace).List(ctx, metav1.ListOptions{LabelSelector: "team=" + queue})
	if err != nil {
		return fmt.Errorf("list pods of %s: %w", queue, err)
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"0.1"}}}`, kubelet.RunSeconds)
	return parallel(ctx, teamPods, list.Items, func(ctx context.Context, p v1.Pod) error {
		if _, err := d.kube.Core.CoreV1().Pods(teamsNamespace).Patch(ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("end pod %s: %w", p.Name, err)
		}
		return nil
	})
}

// ask gathers what a user of an evicted gang can read while it waits.
func (d *demo) ask(ctx context.Context, r *thirdPart, limit time.Time) {
	if !d.until(ctx, max(time.Second, min(waitSaid, time.Until(limit))), func() bool {
		d.track.mu.Lock()
		defer d.track.mu.Unlock()
		evicted := d.track.teams.evicted()
		for _, g := range evicted {
			if !g.waits() || g.yields == nil {
				return false
			}
		}
		for _, g := range evicted[:1] {
			r.evicted, r.claimant, r.condition = g.name, g.yields.GetTo().GetName(), ""
			if g.target != nil {
				r.target = say(g.target)
			}
			for i := range g.status.Conditions {
				if c := &g.status.Conditions[i]; c.Status != metav1.ConditionTrue {
					r.condition += say(c)
				}
			}
		}
		return true
	}) {
		if ctx.Err() == nil {
			d.note("part 3: not all evicted gangs said within %s that they wait for quota", waitSaid)
		}
		return
	}
	read := func(gang, reason string) (said string) {
		d.until(ctx, 5*time.Second, func() bool { // events may be dropped where there are many; the conditions say the same
			list, err := d.kube.Core.CoreV1().Events(teamsNamespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason + ",involvedObject.kind=PodGroup,involvedObject.name=" + gang})
			if err == nil && len(list.Items) > 0 {
				e := list.Items[0]
				said = fmt.Sprintf("%s  %s  %s", e.Type, e.Reason, e.Message)
			}
			return said != ""
		})
		return said
	}
	r.event, r.claimed = read(r.evicted, v1beta1.ReasonPreempted), read(r.claimant, v1beta1.ReasonClaimed)
	var err error
	if r.why, err = d.system.command(ctx, "why", teamsNamespace+"/"+r.evicted); err != nil {
		d.note("basalt why: %v", err)
	}
	d.until(ctx, 5*time.Second, func() bool { // a queue's status is written once a second
		for path, want := range map[string][2]int64{shared: {batchGangs, prodGangs}, batchTeam: {batchGangs - prodGangs, prodGangs}, prodTeam: {prodGangs, 0}} {
			var q v1beta1.Queue
			err := d.kube.Basalt.Get().Resource("queues").Name(path).Do(ctx).Into(&q)
			if err != nil || q.Status == nil || int64(q.Status.AdmittedGangs) != want[0] || int64(q.Status.WaitingGangs) != want[1] {
				return false
			}
		}
		return true
	})
	if r.queues, err = d.system.command(ctx, "queue", "list", shared); err != nil {
		d.note("basalt queue list: %v", err)
	}
}
