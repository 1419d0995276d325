package failures

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/audit/follow"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/prove/auditlog"
	"basalt.dev/basalt/bench/prove/seeds"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/bench/stage/observe"
)

var long = flag.Int("long", 1, "make the storms so many times as long")

// size is how much there is of something in a storm: n in full, a third of it otherwise, and more if asked for. With a
// bug it is n in any case: that storm ends when the bug shows.
func (w *world) size(n int) int {
	if !seeds.InFull() && w.faulty == "" {
		n /= 3
	}
	return n * *long
}

func TestMain(m *testing.M) { localtest.Run(m) }

// limit is for what must happen but has no time of its own: generous, it ends hung tests only.
const limit = time.Minute

// failure is a scenario with the bug that it must find.
type failure struct {
	bug      fault.Fault
	evidence string // a regular expression: what is found with the bug must look like this at least once
	scenario func(*world)

	shardFlags []string
	ignored    []string // resources that the auditor leaves out, too
	tagged     bool     // the sound run needs a program with the tag, too
	firstEnv   []string // environment of the first shard
}

// show runs the scenario on Basalt as it is, and then with the bug: two of the bugs a day, all in full.
func (f failure) show(t *testing.T) {
	t.Run("sound", func(t *testing.T) {
		for _, found := range f.run(t, "") {
			t.Error(found)
		}
	})
	bugs := []fault.Fault{
		fault.AncestorsNotAsked, fault.NamesNotUIDs, fault.PanicBelowZero, fault.SharedNodes, fault.TwoStatusWriters,
	}
	turn, at := seeds.Turn(t, len(bugs)), slices.Index(bugs, f.bug)
	if at < 0 {
		t.Fatalf("%s is not among the bugs that take turns", f.bug)
	}
	if !seeds.InFull() && at != turn && at != (turn+2)%len(bugs) {
		return
	}
	t.Run(string(f.bug), func(t *testing.T) {
		found := f.run(t, f.bug)
		like := regexp.MustCompile(f.evidence)
		for _, s := range found {
			if like.MatchString(s) {
				t.Logf("found: %s", s)
				return
			}
		}
		t.Fatalf("the bug %s was not found, but: %q", f.bug, found) // what does not come from the bug proves nothing
	})
}

var runs int

// run runs the scenario once and returns what was found wrong.
func (f failure) run(t *testing.T, bug fault.Fault) []string {
	runs++
	w := &world{t: t, failure: f, name: fmt.Sprintf("run%d", runs), begin: time.Now(), offsets: map[string]int64{}, ends: map[string]int{}, seen: newView(), intents: auditlog.NewIntents()}
	w.faulty = bug
	w.start(bug)
	if !w.found() {
		f.scenario(w)
	}
	w.finish()
	return w.findings
}

// world is a cluster with Basalt in it and everybody who watches.
type world struct {
	failure
	t       *testing.T
	faulty  fault.Fault // the bug that is switched on in this run
	name    string      // of the run: its namespace, and the prefix of its processes' names
	begin   time.Time
	cluster *local.Cluster
	kube    *kube.Clients
	etcd    *clientv3.Client
	auditor *follow.Auditor
	shards  []*local.Basalt
	all     []*local.Basalt
	logFrom int64 // where the API server's audit log was when the run began
	onEvent func(time.Time, audit.Event)
	beside  []func() // stop what runs beside

	mu       sync.Mutex
	seen     *view
	intents  *auditlog.Intents
	findings []string
	offsets  map[string]int64 // of the processes' logs
	ends     map[string]int   // of a process's lives, for a reason: killed by the test, or it said that it starts over
	strict   bool             // no status write of any kind may be refused
	evicts   bool             // Basalt may delete pods
}

// view is what the auditor's watches showed.
type view struct {
	observe.Store
	pods     map[types.UID]*v1.Pod // that exist
	node     map[types.UID]string  // of every pod that was ever seen bound
	finished map[types.UID]bool    // of every pod that was ever seen finished
	nodes    map[string]*v1.Node
	groups   map[string]*v1beta1.PodGroup // by name
	queues   map[string]*v1beta1.Queue
}

func newView() *view {
	return &view{
		pods: map[types.UID]*v1.Pod{}, node: map[types.UID]string{}, finished: map[types.UID]bool{}, nodes: map[string]*v1.Node{},
		groups: map[string]*v1beta1.PodGroup{}, queues: map[string]*v1beta1.Queue{},
	}
}

func (v *view) pod(p *v1.Pod) {
	v.pods[p.UID] = p
	if p.Spec.NodeName != "" {
		v.node[p.UID] = p.Spec.NodeName
	}
	if p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
		v.finished[p.UID] = true
	}
}

func (v *view) observe(e audit.Event) {
	switch e := e.(type) {
	case audit.StoreRevision:
		v.Store.Observe(e)
	case audit.Listed[*v1.Pod]:
		clear(v.pods)
		for _, p := range e.Objects {
			v.pod(p)
		}
	case audit.Seen[*v1.Pod]:
		v.pod(e.Object)
	case audit.Gone[*v1.Pod]:
		delete(v.pods, e.Object.UID)
	case audit.Listed[*v1.Node]:
		clear(v.nodes)
		for _, n := range e.Objects {
			v.nodes[n.Name] = n
		}
	case audit.Seen[*v1.Node]:
		v.nodes[e.Object.Name] = e.Object
	case audit.Gone[*v1.Node]:
		delete(v.nodes, e.Object.Name)
	case audit.PodGroupsReplaced:
		clear(v.groups)
		for _, g := range e.PodGroups {
			v.groups[g.Name] = g
		}
	case audit.PodGroupSeen:
		v.groups[e.PodGroup.Name] = e.PodGroup
	case audit.PodGroupGone:
		if g := v.groups[e.PodGroup.Name]; g != nil && g.UID == e.PodGroup.UID {
			delete(v.groups, g.Name)
		}
	case audit.Listed[*v1beta1.Queue]:
		clear(v.queues)
		for _, q := range e.Objects {
			v.queues[q.Name] = q
		}
	case audit.Seen[*v1beta1.Queue]:
		v.queues[e.Object.Name] = e.Object
	case audit.Gone[*v1beta1.Queue]:
		delete(v.queues, e.Object.Name)
	}
}

// ---- what was found

func (w *world) find(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.findings) < 50 {
		w.findings = append(w.findings, fmt.Sprintf(format, args...))
	}
}

func (w *world) found() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.findings) > 0
}

// check returns false when the test cannot go on.
func (w *world) check(err error) {
	w.t.Helper()
	if err != nil && w.t.Context().Err() == nil {
		w.t.Fatal(err)
	}
}

// wait returns true when the condition holds. It returns false when something was found wrong, and that is also a
// condition that does not hold in time. The view is locked while it runs.
func (w *world) wait(within time.Duration, what string, holds func(v *view) bool) bool {
	w.t.Helper()
	deadline := time.Now().Add(within)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		w.mu.Lock()
		ok := holds(w.seen)
		w.mu.Unlock()
		switch {
		case ok:
			return true
		case w.found():
			return false
		case time.Now().After(deadline):
			w.find("waited %s for %s; %s", within, what, w.explain())
			return false
		}
		if i%20 == 0 {
			w.judgeProcesses()
		}
		select {
		case <-tick.C:
		case <-w.t.Context().Done():
			w.find("waiting for %s: %v", what, context.Cause(w.t.Context()))
			return false
		}
	}
}

// explain says what waits, for whoever has to find out why.
func (w *world) explain() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	unbound, silent := 0, 0
	for _, p := range w.seen.pods {
		if p.Spec.NodeName != "" || p.Spec.SchedulerName != api.SchedulerName {
			continue
		}
		unbound++
		said := slices.IndexFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodScheduled })
		if said < 0 {
			silent++
		} else if c := p.Status.Conditions[said]; len(out) < 4 {
			out = append(out, fmt.Sprintf("pod %s: %s: %s", p.Name, c.Reason, c.Message))
		}
	}
	if silent > 0 {
		out = append(out, fmt.Sprintf("%d pods say nothing", silent))
	}
	n := 0
	for _, name := range slices.Sorted(maps.Keys(w.seen.groups)) {
		g := w.seen.groups[name]
		if g.Status == nil {
			continue
		}
		for _, c := range g.Status.Conditions {
			if c.Status != metav1.ConditionTrue && n < 4 {
				n++
				out = append(out, fmt.Sprintf("PodGroup %s: %s %s: %s", name, c.Type, c.Reason, c.Message))
			}
		}
	}
	return fmt.Sprintf("%d pods wait, %d reservations, %d intents: %s", unbound, len(w.seen.Reservations), len(w.seen.Intents), strings.Join(out, "; "))
}

// startsOver reports whether a line is the last of a process that ends because its session is over, for example, or because
// somebody was faster with its port: on a busy machine it happens, and it is as it should be.
func startsOver(line string) bool {
	return strings.HasPrefix(line, "basalt: ") && (strings.Contains(line, "start over") || strings.Contains(line, "address already in use"))
}

// restarts counts the lives that ended for a reason.
func (w *world) restarts() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.ends {
		n += k
	}
	return n
}

// judgeProcesses finds processes that ended, and what none of them may write into its log.
func (w *world) judgeProcesses() {
	for _, b := range w.all {
		starts := b.Starts() // first: what it said before is in the log
		w.mu.Lock()
		from := w.offsets[b.Log()]
		w.mu.Unlock()
		f, err := os.Open(b.Log())
		if err != nil {
			w.find("open log: %v", err)
			continue
		}
		_, _ = f.Seek(from, io.SeekStart)
		text, _ := io.ReadAll(f)
		_ = f.Close()
		whole := bytes.LastIndexByte(text, '\n') + 1
		w.mu.Lock()
		w.offsets[b.Log()] = from + int64(whole)
		w.mu.Unlock()
		lines := strings.Split(string(text[:whole]), "\n")
		for i, line := range lines {
			if strings.Contains(line, "WARNING: DATA RACE") || strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") || strings.Contains(line, "level=ERROR") {
				w.find("%s wrote: %s", b.Name(), strings.Join(lines[i:min(i+25, len(lines))], "\n"))
				break
			}
		}
		w.mu.Lock()
		for _, line := range lines {
			if startsOver(line) {
				w.ends[b.Name()]++
			}
		}
		ends := w.ends[b.Name()]
		w.mu.Unlock()
		if starts-1 > ends {
			w.find("%s ended by itself: %v; %s", b.Name(), b.Err(), local.Tail(b.Log(), 25))
		}
	}
}

// ---- beginning and end

func (w *world) start(bug fault.Fault) {
	t, ctx := w.t, w.t.Context()
	t.Helper()
	w.cluster = localtest.Shared(t)
	program := ""
	if bug == "" && !w.tagged {
		program = localtest.Basalt(t)
	} else {
		program = localtest.BasaltWithFaults(t)
	}
	var err error
	w.kube, err = kube.ConnectConfig(w.cluster.Config(local.Load), "failures")
	w.check(err)
	w.etcd, err = clientv3.New(clientv3.Config{Endpoints: w.cluster.ControlStore(), DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	w.check(err)
	t.Cleanup(func() { _ = w.etcd.Close() })
	if s, err := os.Stat(w.cluster.AuditLog()); err == nil {
		w.logFrom = s.Size()
	}
	t.Cleanup(w.wipe)

	ignore := map[string]bool{}
	for _, r := range w.ignored {
		ignore[r] = true
	}
	w.auditor, err = follow.New(follow.Options{
		Etcd: w.etcd, Kube: w.cluster.Config(local.Admin), Judge: audit.Config{Ignore: ignore},
		Found: func(v audit.Violation) { w.find("auditor: %s", v) },
		Tap: func(at time.Time, e audit.Event) {
			w.mu.Lock()
			w.seen.observe(e)
			if r, ok := e.(audit.StoreRevision); ok {
				w.intents.Observe(at, r)
			}
			hook := w.onEvent
			w.mu.Unlock()
			if hook != nil {
				hook(at, e)
			}
		},
	})
	w.check(err)
	w.besides(func(ctx context.Context) {
		if err := w.auditor.Run(ctx); err != nil {
			w.find("auditor: %v", err)
		}
	})
	select {
	case <-w.auditor.Synced():
	case <-time.After(limit):
		t.Fatal("the auditor did not list the cluster")
	}
	_, err = w.kube.Core.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.name}}, metav1.CreateOptions{})
	w.check(err)
	standIn, err := kube.ConnectConfig(w.cluster.Config(local.NodeStandIn), "node-stand-in")
	w.check(err)
	w.besides(func(ctx context.Context) {
		_ = kubelet.Run(ctx, kubelet.Options{Client: standIn.Core, SkipRunning: true})
	})

	w.t.Logf("%s: the auditor watches after %s", w.name, time.Since(w.begin).Round(time.Millisecond))
	o := local.BasaltOptions{Program: program, Restart: true}
	o.Env = []string{"BASALT_FAULTS=" + string(bug), "GOGC=100"} // memory as it is in production
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i := range 5 {
		wg.Go(func() {
			o := o
			o.Env = slices.Clone(o.Env)
			var b *local.Basalt
			var err error
			if i < 2 {
				b, err = w.cluster.StartCoordinator(ctx, fmt.Sprintf("%s-coordinator-%d", w.name, i), o)
			} else {
				o.Flags = w.shardFlags
				if i == 2 {
					o.Env = append(o.Env, w.firstEnv...)
				}
				b, err = w.cluster.StartShard(ctx, fmt.Sprintf("%s-shard-%d", w.name, i-2), o)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			w.all = append(w.all, b)
			if i >= 2 {
				w.shards = append(w.shards, b)
			}
		})
	}
	wg.Wait()
	t.Cleanup(w.stopProcesses)
	if t.Failed() {
		t.FailNow()
	}
	byName := func(a, b *local.Basalt) int { return strings.Compare(a.Name(), b.Name()) }
	slices.SortFunc(w.all, byName)
	slices.SortFunc(w.shards, byName)
	w.t.Logf("%s: processes listen after %s", w.name, time.Since(w.begin).Round(time.Millisecond))
	w.wait(limit, "three shards with their buckets", func(v *view) bool {
		if v.Table == nil || len(v.Table.Members) != 3 {
			return false
		}
		for b := range api.BucketID(api.Buckets) {
			if v.Table.Owner(b) == "" {
				return false
			}
		}
		return true
	})
	t.Logf("%s: started after %s", w.name, time.Since(w.begin).Round(time.Millisecond))
}

// besides runs f until the run ends.
func (w *world) besides(f func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); f(ctx) }()
	stop = func() { cancel(); <-done }
	w.beside = append(w.beside, stop)
	return stop
}

// finish takes the load away and judges what is left: nothing may be.
func (w *world) finish() {
	ctx := w.t.Context()
	if !w.found() {
		w.deleteLoad(ctx)
		w.wait(limit, "every reservation and intent to end with its pods", func(v *view) bool {
			return len(v.pods) == 0 && len(v.groups) == 0 && len(v.Reservations) == 0 && len(v.Intents) == 0
		})
	}
	w.judgeProcesses()
	if !w.found() {
		for _, s := range w.shards {
			w.wait(limit, "the metrics of "+s.Name(), func(*view) bool {
				m, err := s.Samples(ctx)
				if err != nil {
					return false
				}
				if n := m["basalt_shard_broken_invariants_total"]; n != 0 {
					w.findings = append(w.findings, fmt.Sprintf("%s counts %g broken invariants of its own", s.Name(), n))
				}
				return true
			})
		}
	}
	w.stopProcesses()
	w.judgeProcesses()
	w.judgeAuditLog()
	for i := len(w.beside) - 1; i >= 0; i-- {
		w.beside[i]()
	}
	r := w.auditor.Report()
	w.t.Logf("%s: %s, %d pods were bound, audit %v at revision %d", w.name, time.Since(w.begin).Round(time.Millisecond), len(w.seen.node), r.Counts, r.Revision)
	if r.Sum() > 0 && !w.found() {
		w.find("auditor: %v", r.Counts)
	}
}

func (w *world) stopProcesses() {
	var wg sync.WaitGroup
	for _, b := range w.all {
		wg.Go(func() { _ = b.Stop() }) // how it ends is judged by its log
	}
	wg.Wait()
}

// judgeAuditLog judges what Basalt asked of the API server.
func (w *world) judgeAuditLog() {
	f, err := os.Open(w.cluster.AuditLog())
	if err != nil {
		w.find("open audit log: %v", err)
		return
	}
	defer f.Close()
	_, _ = f.Seek(w.logFrom, io.SeekStart)
	text, err := io.ReadAll(f)
	if err != nil {
		w.find("read audit log: %v", err)
		return
	}
	w.mu.Lock()
	r, err := auditlog.Read(bytes.NewReader(text), w.intents)
	w.mu.Unlock()
	if err != nil {
		w.find("read audit log: %v", err)
		return
	}
	w.t.Logf("%s: %d writes by Basalt: %v; refused: %v", w.name, r.Writes, r.Requests, r.Failed)
	for what, names := range map[string][]string{"Bindings to two nodes": r.TwoNodes, "Bindings without an intent": r.NoIntent, "Bindings without a UID": r.NoUID} {
		if len(names) > 0 {
			w.find("%s: %v", what, names[:min(3, len(names))])
		}
	}
	for what, n := range r.Failed {
		code := what[strings.LastIndexByte(what, ' ')+1:]
		if (code == "409" || code == "422") && (strings.Contains(what, "queues/status") || w.strict && strings.Contains(what, "groups/status")) {
			w.find("the API server refused %d of Basalt's status writes: %s", n, what)
		}
	}
	if n := r.Requests["delete pods"]; n > 0 && !w.evicts {
		w.find("Basalt deleted %d pods", n)
	}
	for _, twice := range writers(text) {
		w.find("%s", twice)
	}
}

// writers returns the queues whose status two processes tried to write in the same epoch.
func writers(log []byte) []string {
	type line struct {
		User          struct{ Username string }
		ObjectRef     struct{ Resource, Subresource, Name string }
		RequestObject json.RawMessage
	}
	by := map[string]string{}
	var out []string
	in := bufio.NewScanner(bytes.NewReader(log))
	in.Buffer(nil, 4<<20)
	for in.Scan() {
		if !bytes.Contains(in.Bytes(), []byte(`"subresource":"status"`)) || !bytes.Contains(in.Bytes(), []byte(`"resource":"queues"`)) {
			continue
		}
		var l line
		if json.Unmarshal(in.Bytes(), &l) != nil || !strings.HasPrefix(l.User.Username, auditlog.Users) {
			continue
		}
		var patch []struct{ Value json.RawMessage }
		if json.Unmarshal(l.RequestObject, &patch) != nil {
			continue
		}
		uid := ""
		for _, p := range patch {
			var s v1beta1.Stamp
			if json.Unmarshal(p.Value, &uid) == nil || json.Unmarshal(p.Value, &s) != nil || s.Writer == "" {
				continue
			}
			key := fmt.Sprintf("queue %s (%s) in epoch %d", l.ObjectRef.Name, uid, s.Epoch)
			if first := by[key]; first == "" {
				by[key] = s.Writer
			} else if first != s.Writer {
				out = append(out, fmt.Sprintf("the status of %s was written by %s and %s", key, first, s.Writer))
			}
		}
	}
	return out
}

// deleteLoad deletes all pods and PodGroups of the run.
func (w *world) deleteLoad(ctx context.Context) {
	zero := int64(0)
	if err := w.kube.Core.CoreV1().Pods(w.name).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &zero}, metav1.ListOptions{}); err != nil {
		w.find("delete pods: %v", err)
	}
	if err := w.kube.Basalt.Delete().Namespace(w.name).Resource("podgroups").Do(ctx).Error(); err != nil {
		w.find("delete PodGroups: %v", err)
	}
}

// wipe leaves nothing for the next run: no object of ours, and an empty control store.
func (w *world) wipe() {
	w.stopProcesses()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var queues v1beta1.QueueList
	err := w.kube.Basalt.Get().Resource("queues").Do(ctx).Into(&queues)
	for _, q := range queues.Items {
		if err == nil && len(q.Finalizers) > 0 {
			err = w.kube.Basalt.Patch(types.MergePatchType).Resource("queues").Name(q.Name).Body([]byte(`{"metadata":{"finalizers":null}}`)).Do(ctx).Error()
		}
		if err == nil {
			err = w.kube.Basalt.Delete().Resource("queues").Name(q.Name).Do(ctx).Error()
		}
	}
	zero := int64(0)
	now := metav1.DeleteOptions{GracePeriodSeconds: &zero}
	pods, listErr := w.kube.Core.CoreV1().Pods(w.name).List(ctx, metav1.ListOptions{})
	if listErr != nil {
		w.t.Error(listErr)
		return
	}
	for _, p := range pods.Items {
		if err == nil && len(p.Finalizers) > 0 {
			_, err = w.kube.Core.CoreV1().Pods(w.name).Patch(ctx, p.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		}
	}
	if err == nil {
		err = w.kube.Core.CoreV1().Pods(w.name).DeleteCollection(ctx, now, metav1.ListOptions{})
	}
	if err == nil {
		err = w.kube.Basalt.Delete().Namespace(w.name).Resource("podgroups").Do(ctx).Error()
	}
	if err == nil {
		err = w.kube.Core.CoreV1().Nodes().DeleteCollection(ctx, now, metav1.ListOptions{})
	}
	if err == nil {
		_, err = w.etcd.Delete(ctx, "", clientv3.WithPrefix())
	}
	if err != nil && !apierrors.IsNotFound(err) {
		w.t.Errorf("clean up: %v", err)
	}
}
