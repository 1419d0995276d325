// Package hostile lets a tenant with the ClusterRole edit in one namespace do its worst to Basalt's real processes on a real
// API server, beside well-behaved tenants, and measures and judges what comes of it.
//
// It owns the catalog of attacks, the honest load, and a judge of its own: what runs in a queue, summed from pods, against what is
// charged, as the control store and the statuses say it. The auditor watches too, and a fresh one begins after each attack,
// which must come to the same result. The seed decides what the attacks do, not when the processes do what.
//
// What must hold under every attack: no process ends, no coordinator loses its term, no limit is exceeded, no charge differs from
// what runs, everything of the honest tenants is placed, and each pod of the attacker that waits is told why. Safety may not
// rest on an admission policy, so those of deploy/ are not in force here unless they are asked for.
package hostile

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/audit/follow"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wait"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
)

// Options of a run.
type Options struct {
	Cluster *local.Cluster // started, without Basalt; with kube-controller-manager if Controllers is set
	Seed    uint64
	For     time.Duration // how long the attacks last together
	Attacks []Attack
	// Together is how many attacks run at a time; 1 if 0.
	Together int
	// Scale multiplies the number of objects of each attack; 1 if 0.
	Scale float64
	// Writes limits the attacker's writes a second; 0 for no limit.
	Writes float64
	// Rate is how many gangs and single pods the honest tenants create a second; 8 if 0.
	Rate         float64
	Shards       int  // 3 if 0
	Coordinators int  // 2 if 0
	Controllers  bool // kube-controller-manager runs: the attacks that need it are made
	Policies     bool // the admission policies of deploy/ stay in force
	// Measure leaves out the auditor that begins after each attack, which takes half a minute.
	Measure bool
	// Patience is how long after an attack everything of the honest tenants may take to be placed; 90 s if 0.
	Patience time.Duration
	// Busy says that this machine has other work: what is judged by time is judged generously.
	Busy bool
	// Profiles is a folder for CPU profiles of Basalt's processes and the API server, taken in the second half of each attack.
	Profiles string
	Log      func(format string, args ...any)
}

// Row is what one attack, or several together, did.
type Row struct {
	Attack       string
	Accepted     int64         // writes of the attacker that the API server accepted
	Refused      int64         // and refused
	For          time.Duration // how long it went on
	Quiet, Under Waits         // before the attack and during it
	Standing     Waits         // and after it, while the attacker writes nothing and its objects are still there
	QuietUsage   Usage         // before the attack
	UnderUsage   Usage         // during it
	Deaths       int           // ends of processes
	Terms        int           // changes of the leading coordinator
	Violations   int           // by the auditor
	Told         int           // pods of the attacker that waited at the end and whose condition was judged
	Problems     []string
}

// Result is what a run found.
type Result struct {
	Seed     uint64
	Writes   float64 // Options.Writes: what the attacker's rate was limited to
	Rate     float64 // Options.Rate: items a second of the honest tenants, and as many of the control group
	Rows     []Row
	Quiet    Waits // of all quiet phases
	Items    int   // that honest tenants had placed
	Problems []string
}

// Failed returns every problem of the run, one a line.
func (r *Result) Failed() (all []string) {
	for _, row := range r.Rows {
		for _, p := range row.Problems {
			all = append(all, row.Attack+": "+p)
		}
	}
	return append(all, r.Problems...)
}

// How long something may take that has no time of its own. These bounds are for a system that hangs; they measure nothing.
const (
	tellingBy = 60 * time.Second // until each waiting pod of a sample has its condition
	cleanBy   = 2 * time.Minute  // until nothing is charged for pods that are gone
)

// The cluster. The attacker may use 16 CPUs of 384, and cannot fill a node that the others need.
const (
	nodeCount = 12
	nodeCPU   = 32 // cores
	nodePods  = 2_000
	evil      = "evil"
	evilQueue = "org.evil"
	evilCPU   = 16
	evilHigh  = "hostile-high"
	preempts  = "org.preempts"
	poolCPU   = 48
)

type queue struct {
	name           string
	cpu, guarantee int64  // cores; 0 for none
	tenant         string // the namespace that may use it; "" for everybody
}

var queues = []queue{
	{"org", 200, 0, ""}, {"org.good1", 0, 40, "good-1"}, {"org.good2", 100, 0, "good-2"}, {evilQueue, evilCPU, 0, evil},
	{"pool", poolCPU, 0, ""}, {"pool.good", 0, 0, "good-3"}, {"pool.filler", 0, 0, "filler"}, {"pool.evil", 0, 0, evil},
	{"lab", 0, 0, ""}, {"lab.good", 0, 0, "good-4"},
	{preempts, evilCPU, 0, evil},
}

type run struct {
	Options
	admin    *kube.Clients
	etcd     *clientv3.Client
	view     *view
	auditor  *follow.Auditor
	honest   *honest
	attacker *Attacker
	target   Target
	basalts  []*local.Basalt
	begin    time.Time
	quiet    [][2]time.Time // phases without an attack
	result   Result
	shown    atomic.Int64 // violations that were logged
}

// Run makes one run. An error is about the harness, or says that Basalt did not come back after an attack; what Basalt did wrong
// is in the result, which is there with an error, too, once the first attack began.
func Run(ctx context.Context, o Options) (*Result, error) {
	if o.Together == 0 {
		o.Together = 1
	}
	if o.Rate == 0 {
		o.Rate = 8
	}
	if o.Shards == 0 {
		o.Shards = 3
	}
	if o.Coordinators == 0 {
		o.Coordinators = 2
	}
	if o.Scale == 0 {
		o.Scale = 1
	}
	if o.Patience == 0 {
		o.Patience = 90 * time.Second
	}
	r := &run{Options: o, view: newView(), begin: time.Now(), result: Result{Seed: o.Seed, Writes: o.Writes, Rate: o.Rate}}
	beside, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if err := r.prepare(beside, &wg); err != nil {
		return nil, err
	}
	if err := r.start(ctx); err != nil {
		return nil, err
	}
	loading, stopLoad := context.WithCancel(beside)
	wg.Go(func() { r.honest.run(loading, beside) })
	defer r.honest.wg.Wait()
	defer cancel()
	err := r.attack(ctx)
	stopLoad()
	r.result.Quiet = r.honest.between(r.quiet...)
	if err != nil {
		return &r.result, err
	}
	r.finish(ctx)
	return &r.result, ctx.Err()
}

func (r *run) logf(format string, args ...any) {
	r.Log("%7.2fs %s", time.Since(r.begin).Seconds(), fmt.Sprintf(format, args...))
}

// prepare makes everything but Basalt's processes.
func (r *run) prepare(ctx context.Context, wg *sync.WaitGroup) (err error) {
	if err := r.Cluster.Install(ctx); err != nil {
		return err
	}
	config := r.Cluster.Config(local.Load)
	config.WarningHandler = rest.NoWarnings{}
	if r.admin, err = kube.ConnectConfig(config, "hostile-harness"); err != nil {
		return err
	}
	if !r.Policies {
		all := r.admin.Core.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
		if err := all.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			return fmt.Errorf("remove admission policies: %w", err)
		}
	}
	r.etcd, err = clientv3.New(clientv3.Config{Endpoints: r.Cluster.ControlStore(), DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return fmt.Errorf("connect to the control store: %w", err)
	}
	wg.Go(func() { <-ctx.Done(); _ = r.etcd.Close() })
	if r.auditor, err = r.audit(ctx, wg, r.grace(30*time.Second), r.view.observe); err != nil {
		return err
	}
	for _, q := range queues {
		if err := r.createQueue(ctx, q); err != nil {
			return err
		}
		if q.cpu > 0 {
			r.view.mu.Lock()
			r.view.limits[q.name] = q.cpu * 1000
			r.view.mu.Unlock()
		}
	}
	high := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: evilHigh}, Value: 1000}
	if _, err := r.admin.Core.SchedulingV1().PriorityClasses().Create(ctx, high, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create priority class %s: %w", evilHigh, err)
	}
	namespaces := []string{evil, "filler", controlNamespace}
	for _, t := range tenants {
		namespaces = append(namespaces, t.namespace)
	}
	for _, name := range namespaces {
		if err := r.createNamespace(ctx, name); err != nil {
			return err
		}
	}
	var nodes []string
	for i := range nodeCount {
		n := kubelet.Node(fmt.Sprintf("node-%02d", i), fmt.Sprint(nodeCPU), "128Gi", nodePods)
		nodes = append(nodes, n.Name)
		if _, err := r.admin.Core.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create node %s: %w", n.Name, err)
		}
	}
	own := kubelet.Node(controlNode, fmt.Sprint(nodeCPU), "128Gi", nodePods) // for the control group alone
	own.Spec.Unschedulable = true
	if _, err := r.admin.Core.CoreV1().Nodes().Create(ctx, own, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create node %s: %w", own.Name, err)
	}
	standIn, err := kube.ConnectConfig(r.Cluster.Config(local.NodeStandIn), "node-stand-in")
	if err != nil {
		return err
	}
	room := v1.ResourceList{v1.ResourceCPU: amounts("cpu", fmt.Sprint(nodeCPU))["cpu"], v1.ResourcePods: amounts("pods", fmt.Sprint(nodePods))["pods"]}
	wg.Go(func() {
		_ = kubelet.Run(ctx, kubelet.Options{Client: standIn.Core, Room: func(node string) v1.ResourceList {
			if slices.Contains(nodes, node) {
				return room
			}
			return nil
		}})
	})
	r.honest = &honest{kube: r.admin, view: r.view, rand: rand.New(rand.NewPCG(r.Seed, 0x900d)), rate: r.Rate}
	r.target = Target{Namespace: evil, Queue: evilQueue, QueueCPU: evilCPU * 1000, Shared: "pool.evil", SharedCPU: poolCPU * 1000, Victim: "org.good1",
		Preempting: preempts, High: evilHigh,
		Nodes: nodes, NodeCPU: nodeCPU * 1000, Gang: r.honest.victim, Scale: r.Scale, Writes: r.Writes}
	r.attacker, err = NewAttacker(ctx, r.Cluster.Config(local.Admin), r.target, r.Seed)
	return err
}

// audit starts an auditor.
func (r *run) audit(ctx context.Context, wg *sync.WaitGroup, grace time.Duration, tap func(time.Time, audit.Event)) (*follow.Auditor, error) {
	a, err := follow.New(follow.Options{
		Etcd: r.etcd, Kube: r.Cluster.Config(local.Admin), Tap: tap,
		Judge: audit.Config{Lag: 10 * time.Second, Grace: grace},
		Found: r.found,
	})
	if err != nil {
		return nil, err
	}
	failed := make(chan error, 1)
	wg.Go(func() { failed <- a.Run(ctx) })
	select {
	case <-a.Synced():
		return a, nil
	case err := <-failed:
		return nil, errors.Join(err, ctx.Err())
	case <-time.After(r.Patience):
		return nil, errors.New("it could not list the cluster")
	}
}

// found logs a violation. An attack that stops everything makes thousands: they are counted, and the first are shown.
func (r *run) found(v audit.Violation) {
	if n := r.shown.Add(1); n <= 50 {
		r.logf("VIOLATION %s", cut(v.String()))
	}
}

func (r *run) createNamespace(ctx context.Context, name string) error {
	_, err := r.admin.Core.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	return nil
}

func (r *run) createQueue(ctx context.Context, q queue) error {
	o := &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: q.name}}
	if q.cpu > 0 {
		o.Spec.Capability = milli(q.cpu * 1000)
	}
	if q.guarantee > 0 {
		o.Spec.Guarantee = milli(q.guarantee * 1000)
	}
	if q.name == preempts {
		o.Spec.PreemptionPolicy = v1beta1.PreemptLowerPriority
		o.Spec.PreemptMinRuntime, o.Spec.PreemptionDelay = &metav1.Duration{}, &metav1.Duration{}
	}
	if q.tenant == evil {
		o.Spec.Order = costlyOrder
	}
	if q.tenant != "" {
		o.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{v1.LabelMetadataName: q.tenant}}
	}
	if err := r.admin.Basalt.Post().Resource("queues").Body(o).Do(ctx).Error(); err != nil {
		return fmt.Errorf("create queue %s: %w", q.name, err)
	}
	return nil
}

// start starts Basalt and waits until it places pods.
func (r *run) start(ctx context.Context) error {
	var err error
	if r.basalts, err = r.Cluster.StartBasalt(ctx, r.Coordinators, r.Shards, local.BasaltOptions{Restart: true}); err != nil {
		return err
	}
	if err := local.WaitReady(ctx, r.basalts); err != nil {
		return err
	}
	s := &strike{Attacker: &Attacker{Target: Target{Namespace: "filler", Queue: "pool.filler"}, core: r.admin.Core, ours: r.admin.Basalt}}
	for i := range 8 { // somebody honest always uses some of the shared queue
		if _, err := s.create(ctx, ask(s.pod(fmt.Sprintf("filler-%d", i)), milli(1000))); err != nil {
			return fmt.Errorf("create pod: %w", err)
		}
	}
	for i := range 8 {
		if !s.bound(ctx, fmt.Sprintf("filler-%d", i)) {
			return fmt.Errorf("a first pod was not placed: %w", context.Cause(ctx))
		}
	}
	return nil
}

// attack makes all attacks, with a quiet phase before each.
func (r *run) attack(ctx context.Context) error {
	var attacks []Attack
	for _, a := range r.Attacks {
		if a.Controllers && !r.Controllers {
			continue
		}
		attacks = append(attacks, a)
	}
	rand.New(rand.NewPCG(r.Seed, 0x0bad)).Shuffle(len(attacks), func(i, j int) { attacks[i], attacks[j] = attacks[j], attacks[i] })
	if len(attacks) == 0 {
		return errors.New("there is nothing to do: no attack was chosen, or those that were need kube-controller-manager")
	}
	// Those that put pods on nodes past Basalt keep to themselves: less can be said of what runs after them.
	var groups [][]Attack
	for _, bypass := range []bool{false, true} {
		alike := slices.DeleteFunc(slices.Clone(attacks), func(a Attack) bool { return a.Bypass != bypass })
		groups = slices.AppendSeq(groups, slices.Chunk(alike, r.Together))
	}
	wait.For(ctx, 2*time.Second) // the first pods of a process take longer
	for _, group := range groups {
		if err := r.phase(ctx, group, r.For/time.Duration(len(groups))); err != nil {
			return err
		}
	}
	return nil
}

// phase is a quiet time, some attacks, and the judgement of what they did.
func (r *run) phase(ctx context.Context, attacks []Attack, lasts time.Duration) error {
	var row Row
	var all []string
	long := lasts > 5*time.Second // in a short run no attack lasts as long as it would have to
	for _, a := range attacks {
		all = append(all, a.Name)
		if long {
			lasts = max(lasts, a.Least)
		}
	}
	row.Attack = strings.Join(all, "+")
	quiet, used := time.Now(), r.usage(ctx)
	calm := lasts / 2
	if len(r.quiet) > 0 {
		calm = lasts / 4 // the quiet phases are measured together
	}
	if !wait.For(ctx, max(time.Second, min(calm, 20*time.Second))) {
		return ctx.Err()
	}
	r.quiet = append(r.quiet, [2]time.Time{quiet, time.Now()})
	row.Quiet = r.honest.between(r.quiet[len(r.quiet)-1:]...)
	row.QuietUsage = r.usage(ctx).since(used)

	before := r.state()
	strikers, err := r.strikers(ctx, attacks)
	if err != nil {
		return err
	}
	for _, a := range attacks {
		if err := r.grant(ctx, a.Right); err != nil {
			return err
		}
	}
	begin, used := time.Now(), r.usage(ctx)
	attacking, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	if r.Profiles != "" {
		wg.Go(func() { r.profile(attacking, row.Attack, begin.Add(lasts/2), lasts/2-time.Second) })
	}
	strikers.strike(attacking, lasts)
	cancel()
	wg.Wait()
	end := time.Now()
	row.For = end.Sub(begin)
	if err := ctx.Err(); err != nil {
		return err
	}
	row.UnderUsage = r.usage(ctx).since(used)
	row.Accepted, row.Refused = strikers.count()
	strikers.empty(ctx)
	if row.Accepted == 0 {
		row.Problems = append(row.Problems, "the attack did nothing: the API server accepted none of its writes")
	}
	judged := r.judge(ctx, attacks, begin, end, before, &row)
	r.logf("%s: %d writes, %d refused; others %s, before %s, standing %s; judged in %s", row.Attack, row.Accepted, row.Refused, row.Under, row.Quiet, row.Standing,
		time.Since(end).Round(time.Second))
	return r.leave(ctx, attacks, row, judged)
}

// leave removes what attacks have left after they were judged. The row of the attacks is in the result, too, if Basalt did not
// come back after them, or the run is stopped meanwhile; if the run was stopped before, the judgement says nothing.
func (r *run) leave(ctx context.Context, attacks []Attack, row Row, judged error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	defer func() {
		for _, p := range row.Problems {
			r.logf("PROBLEM %s: %s", row.Attack, p)
		}
		r.result.Rows = append(r.result.Rows, row)
	}()
	if judged != nil {
		return judged
	}
	began := time.Now()
	if err := r.clean(ctx, &row); err != nil {
		return err
	}
	for _, a := range attacks {
		if err := r.revoke(ctx, a.Right); err != nil {
			return err
		}
	}
	r.logf("%s: cleaned in %s", row.Attack, time.Since(began).Round(time.Second))
	return nil
}

// clean removes everything of the attacker and waits until nothing is charged for it.
func (r *run) clean(ctx context.Context, row *Row) error {
	empty(ctx, r.admin, evil)
	err := r.poll(ctx, cleanBy, func() error {
		if n := r.view.count(evil); n > 0 {
			empty(ctx, r.admin, evil)
			return fmt.Errorf("%d pods of the attacker are left", n)
		}
		r.view.mu.Lock()
		defer r.view.mu.Unlock()
		for _, rec := range r.view.control.Reservations {
			if g := rec.GetGang(); strings.HasPrefix(g.GetNamespace(), evil) {
				return fmt.Errorf("gang %s/%s is charged to queue %s, and all pods of the attacker are gone", g.GetNamespace(), g.GetName(), g.GetQueue())
			}
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		row.Problems = append(row.Problems, fmt.Sprintf("%s after the attacker was removed: %v", cleanBy, err))
	}
	return ctx.Err()
}

// grant gives the attacker the right to patch a subresource; revoke takes it away.
func (r *run) grant(ctx context.Context, right string) error {
	if right == "" {
		return nil
	}
	group := ""
	if strings.HasPrefix(right, "podgroups") {
		group = v1beta1.GroupName
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "hostile-" + strings.ReplaceAll(right, "/", "-")},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{right}, Verbs: []string{"patch"}}}}
	if _, err := r.admin.Core.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create role %s: %w", role.Name, err)
	}
	return bind(ctx, r.admin.Core, evil, role.Name)
}

func (r *run) revoke(ctx context.Context, right string) error {
	if right == "" {
		return nil
	}
	return r.admin.Core.RbacV1().RoleBindings(evil).Delete(ctx, "tenant-hostile-"+strings.ReplaceAll(right, "/", "-"), metav1.DeleteOptions{})
}

// revive restarts all processes after an attack that stopped them, so that the attacks that follow say something.
func (r *run) revive(ctx context.Context) error {
	empty(ctx, r.admin, evil)
	for _, b := range r.basalts {
		b.Kill()
	}
	ready, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, b := range r.basalts {
		if err := b.WaitReady(ready); err != nil {
			return fmt.Errorf("start Basalt anew after an attack: %w", err)
		}
	}
	now := time.Now()
	return r.poll(ctx, r.Patience, func() error {
		if n := r.honest.tenants.waiting(now); n > 0 {
			return fmt.Errorf("started anew, and %d gangs and pods of honest tenants are not placed", n)
		}
		return nil
	})
}

// finish judges the end: nothing honest waits, and no process has spoken of a broken invariant.
func (r *run) finish(ctx context.Context) {
	if err := r.poll(ctx, r.Patience, func() error {
		if n := r.honest.tenants.waiting(time.Now()); n > 0 {
			return fmt.Errorf("%d gangs and pods of honest tenants are not placed", n)
		}
		return nil
	}); err != nil {
		r.result.Problems = append(r.result.Problems, fmt.Sprintf("at the end: %v", err))
	}
	r.honest.tenants.mu.Lock()
	r.result.Items = len(r.honest.tenants.samples)
	r.honest.tenants.mu.Unlock()
	r.honest.mu.Lock()
	r.result.Problems = append(r.result.Problems, r.honest.broken...)
	r.honest.mu.Unlock()
	for _, b := range r.basalts {
		if samples, err := b.Samples(ctx); err == nil {
			for name, n := range samples {
				if strings.Contains(name, "broken_invariants_total") && n > 0 {
					r.result.Problems = append(r.result.Problems, fmt.Sprintf("%s counts %g broken invariants of its own", b.Name(), n))
				}
			}
		}
		seen := 0
		eachLine(b.Log(), func(line string) {
			if strings.Contains(line, "level=ERROR") || strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
				if seen++; seen <= 3 {
					r.result.Problems = append(r.result.Problems, b.Name()+" wrote: "+cut(line))
				}
			}
		})
	}
}

// poll asks until there is no complaint, and returns the last one when time is over.
func (r *run) poll(ctx context.Context, within time.Duration, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		if !wait.For(ctx, 200*time.Millisecond) {
			return err
		}
	}
}
