package unlike

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	scheduling "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/visibility"
	"basalt.dev/basalt/api/wait"
	"basalt.dev/basalt/bench/prove/progress"
	"basalt.dev/basalt/bench/prove/seeds"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/audittest"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

const (
	soon    = 20 * time.Second // in which a gang starts that can
	settles = time.Minute      // in which those that wait are those that have to, and say so
	abreast = 8                // cases at a time
)

var (
	patience = flag.Duration("patience", 2*time.Minute, "after what time a gang that has not started never does")

	first = flag.Uint64("first", 0, "the first seed; 0: by the date")
	gangs = flag.Int("gangs", 0, "how many gangs; 0: 24, and 1,000 in full")
)

func TestMain(m *testing.M) { localtest.Run(m) }

// TestUnlike judges gangs whose seeds follow each other. It takes long because of those that cannot start: each is
// looked at for some seconds, and says why when it has tried for a while.
func TestUnlike(t *testing.T) {
	n := *gangs
	switch {
	case n == 0 && seeds.InFull():
		n = 1000
	case n == 0:
		n = 24
	}
	seed := *first
	if seed == 0 {
		seed = seeds.ByDate(t, n)
	}
	w := start(t)
	queue := make(chan uint64)
	var wg sync.WaitGroup
	for range abreast {
		wg.Go(func() {
			for seed := range queue {
				w.run(Draw(seed))
			}
		})
	}
	for i := range n {
		queue <- seed + uint64(i)
	}
	close(queue)
	wg.Wait()
	f := &w.figures
	t.Logf("%d gangs: %d can start, %d have, the longest wait was %s, after %s %d had not and %d never have; "+
		"%d cannot start, %d have too many ways to tell", n, f.startable, f.started, f.longest.Round(time.Millisecond),
		soon, len(f.missed), len(f.never), f.hopeless, f.undecided)
	if late := len(f.missed); late > 2+n/200 { // of some, hardly any order and choice will do
		t.Errorf("%d gangs did not start within %s: seeds %v", late, soon, f.missed)
	}
	if len(f.never) > 1+n/500 {
		t.Errorf("gangs that could start did not in %s: seeds %v", *patience, f.never)
	}
	w.noViolations()
}

// world is a cluster with three shards.
type world struct {
	t            *testing.T
	cluster      *local.Cluster
	kube         *kube.Clients
	noViolations func()
	pods         cache.Store
	why          string // URL at which a shard answers users

	mu      sync.Mutex
	figures struct {
		startable, started, hopeless, undecided int
		longest                                 time.Duration
		missed, never                           []uint64 // seeds
	}
}

func start(t *testing.T) *world {
	w := &world{t: t}
	w.cluster = localtest.Cluster(t, local.Options{Basalt: localtest.Basalt(t)})
	var err error
	w.kube, err = kube.ConnectConfig(w.cluster.Config(local.Admin), "unlike")
	w.check(err)
	for name, value := range Classes {
		class := &scheduling.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
		_, err := w.kube.Core.SchedulingV1().PriorityClasses().Create(t.Context(), class, metav1.CreateOptions{})
		w.check(err)
	}
	w.noViolations = audittest.Start(t, w.cluster, audit.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	wg.Go(func() { _ = kubelet.Run(ctx, kubelet.Options{Client: w.kube.Core}) })
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(w.kube.Core.CoreV1().RESTClient(), "pods", "", fields.Everything()),
		ObjectType:    &corev1.Pod{}, Handler: cache.ResourceEventHandlerFuncs{},
	})
	w.pods = store
	wg.Go(func() { informer.RunWithContext(ctx) })
	all, err := w.cluster.StartBasalt(t.Context(), 1, 3, local.BasaltOptions{Restart: true})
	w.check(err)
	w.check(local.WaitReady(t.Context(), all))
	w.why = all[1].Visibility
	return w
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// wrong reports what is wrong with a case.
func (w *world) wrong(c *Case, format string, args ...any) {
	w.t.Errorf("seed %d: %s\n%s", c.Seed, fmt.Sprintf(format, args...), c)
}

// run makes a case, judges it and takes it away again.
func (w *world) run(c *Case) {
	if w.t.Context().Err() != nil {
		return
	}
	nodes, err := c.Start(nil, c.Pods, c.Least())
	if errors.Is(err, progress.ErrTooMany) {
		w.count(func() { w.figures.undecided++ })
		return
	}
	if err := w.create(c); err != nil {
		w.wrong(c, "%v", err)
		return
	}
	created := time.Now()
	if nodes != nil {
		w.count(func() { w.figures.startable++ })
		w.starts(c, created, nodes)
	} else {
		w.count(func() { w.figures.hopeless++ })
		w.waits(c)
	}
	if err := w.remove(c); err != nil {
		w.wrong(c, "%v", err)
	}
}

func (w *world) count(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// starts judges a gang that can start.
func (w *world) starts(c *Case, created time.Time, nodes map[string]string) {
	missed := false
	for {
		bound, _ := w.placed(c)
		took := time.Since(created)
		if len(bound) >= c.Least() {
			w.count(func() { w.figures.started++; w.figures.longest = max(w.figures.longest, took) })
			if took > 5*time.Second {
				w.t.Logf("seed %d: started after %s", c.Seed, took.Round(time.Millisecond))
			}
			break
		}
		if took > soon && !missed {
			missed = true
			w.count(func() { w.figures.missed = append(w.figures.missed, c.Seed) })
			w.t.Logf("seed %d: not started after %s, and could as %v: %s\n%s", c.Seed, soon, nodes, w.words(c), c)
		}
		if took > *patience {
			w.count(func() { w.figures.never = append(w.figures.never, c.Seed) })
			return
		}
		if !wait.For(w.t.Context(), 20*time.Millisecond) {
			return
		}
	}
	w.rests(c, w.noneLeftOut)
}

// noneLeftOut says which pod waits that has a place beside those that are bound.
func (w *world) noneLeftOut(c *Case) error {
	bound, waiting := w.placed(c)
	for _, p := range waiting {
		if nodes, _ := c.Start(bound, []*corev1.Pod{p}, 1); nodes != nil {
			return fmt.Errorf("its minimum has started, and pod %s waits, which fits beside it: %v; %s",
				p.Name, nodes, w.words(c))
		}
	}
	if c.required() {
		in := map[string]bool{}
		for _, p := range bound {
			in[c.node(p.Spec.NodeName).Labels[zone]] = true
		}
		if len(in) > 1 || in[""] {
			w.wrong(c, "it requires one zone, and is in %v", in)
		}
	}
	return nil
}

// rests waits until what is to hold at rest does.
func (w *world) rests(c *Case, holds func(*Case) error) {
	deadline := time.Now().Add(settles)
	for {
		err := holds(c)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.wrong(c, "%v", err)
			return
		}
		if !wait.For(w.t.Context(), 500*time.Millisecond) {
			return
		}
	}
}

func (c *Case) node(name string) *corev1.Node {
	i := slices.IndexFunc(c.Nodes, func(n *corev1.Node) bool { return n.Name == name })
	return c.Nodes[i]
}

// waits judges a gang that cannot start: the PodGroup and `basalt why` come to give the same reason, which is true.
func (w *world) waits(c *Case) {
	wait.For(w.t.Context(), 2*time.Second) // in which most others would start
	w.rests(c, w.saysWhy)
	if bound, _ := w.placed(c); len(bound) > 0 {
		w.wrong(c, "it cannot start, and %d pods are bound: %s", len(bound), w.words(c))
	}
}

// placed returns the pods with and without a node.
func (w *world) placed(c *Case) (bound, waiting []*corev1.Pod) {
	for _, p := range c.Pods {
		obj, exists, _ := w.pods.GetByKey(c.Name + "/" + p.Name)
		switch {
		case !exists:
		case obj.(*corev1.Pod).Spec.NodeName != "":
			bound = append(bound, obj.(*corev1.Pod))
		default:
			waiting = append(waiting, obj.(*corev1.Pod))
		}
	}
	return bound, waiting
}

// saysWhy is nil when the PodGroup says why it waits.
func (w *world) saysWhy(c *Case) error {
	var g v1beta1.PodGroup
	err := w.kube.Basalt.Get().Namespace(c.Name).Resource("podgroups").Name(c.Name).Do(w.t.Context()).Into(&g)
	if err != nil {
		return err
	}
	if g.Status == nil || g.Status.Reason == "" || g.Status.Message == "" {
		return fmt.Errorf("it cannot start, and its status is %+v", g.Status)
	}
	placing := slices.IndexFunc(g.Status.Conditions, func(o metav1.Condition) bool {
		return o.Type == v1beta1.ConditionPodGroupInitiallyScheduled && o.Status == metav1.ConditionFalse
	})
	if placing < 0 || g.Status.Conditions[placing].Reason != g.Status.Reason {
		return fmt.Errorf("the reason of its status is %s, and its conditions are %+v", g.Status.Reason, g.Status.Conditions)
	}
	if err := c.isTrue(g.Status.Reason, g.Status.Message); err != nil {
		return err
	}
	why, err := w.ask(c)
	if err != nil {
		return err
	}
	if why.Reason != g.Status.Reason || why.Message != g.Status.Message {
		return fmt.Errorf("why says %s: %s; the status says %s: %s",
			why.Reason, why.Message, g.Status.Reason, g.Status.Message)
	}
	return nil
}

// isTrue judges words about a gang that waits because no nodes take it.
func (c *Case) isTrue(reason, message string) error {
	about := []string{v1beta1.ReasonUnschedulable, v1beta1.ReasonConstraintUnmet, v1beta1.ReasonNoNodeFits,
		v1beta1.ReasonSupplyExceeded}
	if !slices.Contains(about, reason) {
		return fmt.Errorf("nodes keep it from starting, and it says %s: %s", reason, message)
	}
	has := func(is func(p *corev1.Pod) bool) bool { return slices.ContainsFunc(c.Pods, is) }
	requests := func(r corev1.ResourceName) bool {
		return has(func(p *corev1.Pod) bool { _, is := p.Spec.Containers[0].Resources.Requests[r]; return is })
	}
	anti := func(p *corev1.Pod) bool { return p.Spec.Affinity != nil && p.Spec.Affinity.PodAntiAffinity != nil }
	affine := func(p *corev1.Pod) bool { return p.Spec.Affinity != nil && p.Spec.Affinity.PodAffinity != nil }
	for words, is := range map[string]bool{
		"Insufficient memory":            requests(corev1.ResourceMemory),
		"Insufficient ephemeral-storage": requests(corev1.ResourceEphemeralStorage),
		"Insufficient " + gpus:           requests(gpus),
		"free ports":                     has(func(p *corev1.Pod) bool { return len(p.Spec.Containers[0].Ports) > 0 }),
		"anti-affinity":                  has(anti),
		"match pod affinity":             has(affine),
		"topology spread":                has(func(p *corev1.Pod) bool { return len(p.Spec.TopologySpreadConstraints) > 0 }),
	} {
		if strings.Contains(message, words) && !is {
			return fmt.Errorf("it has nothing to do with %q, and says %s: %s", words, reason, message)
		}
	}
	return nil
}

// words is what the PodGroup says, and why.
func (w *world) words(c *Case) string {
	why, err := w.ask(c)
	if err != nil {
		return err.Error()
	}
	return why.Reason + ": " + why.Message
}

// ask asks a shard why the gang waits.
func (w *world) ask(c *Case) (*visibility.Why, error) {
	url := fmt.Sprintf("%s/v1/namespaces/%s/gangs/%s/why", w.why, c.Name, c.Name)
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+w.cluster.Config(local.Admin).BearerToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var why visibility.Why
	if err := json.NewDecoder(resp.Body).Decode(&why); err != nil || resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("basalt why %s answers %s: %v", c.Name, resp.Status, err)
	}
	return &why, nil
}

func (w *world) create(c *Case) error {
	ctx, core := w.t.Context(), w.kube.Core.CoreV1()
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Name}}
	if _, err := core.Namespaces().Create(ctx, space, metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, n := range c.Nodes {
		if _, err := core.Nodes().Create(ctx, n, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	if err := w.kube.Basalt.Post().Namespace(c.Name).Resource("podgroups").Body(c.Group).Do(ctx).Error(); err != nil {
		return err
	}
	for _, p := range c.Pods {
		if _, err := core.Pods(c.Name).Create(ctx, p, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// remove takes a case away: its nodes last, when nothing is on them. No controller ends its namespace here.
func (w *world) remove(c *Case) error {
	ctx, core, now := w.t.Context(), w.kube.Core.CoreV1(), int64(0)
	at := metav1.DeleteOptions{GracePeriodSeconds: &now}
	if err := core.Pods(c.Name).DeleteCollection(ctx, at, metav1.ListOptions{}); err != nil {
		return err
	}
	if err := w.kube.Basalt.Delete().Namespace(c.Name).Resource("podgroups").Name(c.Name).Do(ctx).Error(); err != nil {
		return err
	}
	for _, n := range c.Nodes {
		if err := core.Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
