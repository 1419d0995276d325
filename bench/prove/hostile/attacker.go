package hostile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wait"
)

// Target is what an attacker knows of the cluster: its own names, and names of others that anybody can guess.
type Target struct {
	// Namespace is the attacker's own. It must exist.
	Namespace string
	// Queue is the attacker's own leaf queue, limited to QueueCPU milli-cores.
	Queue    string
	QueueCPU int64
	// Shared is a leaf queue of the attacker below an ancestor that others use too; SharedCPU is all that the ancestor may
	// hold, in milli-cores.
	Shared    string
	SharedCPU int64
	// Preempting is another leaf queue of the attacker, limited to QueueCPU, in which gangs of the PriorityClass High are preferred to others, and others
	// evicted for them.
	Preempting, High string
	// Victim is the queue of somebody else.
	Victim string
	// Nodes are the names of nodes, each with NodeCPU milli-cores.
	Nodes   []string
	NodeCPU int64
	// Gang returns the UID of a gang of somebody else, "" when there is none.
	Gang func() string
	// Writes limits the attacker's writes a second; 0 for no limit. An API server shared between tenants limits each of them,
	// and without a limit the attack is on the processor that all share.
	Writes float64
	// Scale multiplies the number of objects that an attack makes; 1 is the full attack.
	Scale float64
}

// user is the name under which the attacker of a namespace is known to the API server.
func user(namespace string) string { return "tenant:" + namespace }

// Attacker is a tenant with the ClusterRole edit in one namespace and bad intentions. One Attacker runs several attacks at a
// time, if asked to.
type Attacker struct {
	Target
	core    kubernetes.Interface
	ours    rest.Interface
	seed    uint64
	rounds  atomic.Int64
	writes  atomic.Int64 // accepted
	refused atomic.Int64 // by the API server
	limit   flowcontrol.RateLimiter
}

// NewAttacker gives the user of the target's namespace the ClusterRole edit there, by the rights of admin, and returns a
// client with these rights. Each role that aggregates to edit is bound by itself: nothing depends on the controller that
// sums them up.
func NewAttacker(ctx context.Context, admin *rest.Config, target Target, seed uint64) (*Attacker, error) {
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	roles, err := client.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list roles: %w", err)
	}
	const aggregate = "rbac.authorization.k8s.io/aggregate-to-"
	for _, r := range roles.Items {
		if r.Labels[aggregate+"edit"] == "true" || r.Labels[aggregate+"view"] == "true" {
			if err := bind(ctx, client, target.Namespace, r.Name); err != nil {
				return nil, err
			}
		}
	}
	a := &Attacker{Target: target, seed: seed}
	if a.Scale == 0 {
		a.Scale = 1
	}
	if a.limit = flowcontrol.NewFakeAlwaysRateLimiter(); a.Target.Writes > 0 {
		a.limit = flowcontrol.NewTokenBucketRateLimiter(float32(a.Target.Writes), 1+int(a.Target.Writes/4))
	}
	config := rest.CopyConfig(admin)
	config.Impersonate = rest.ImpersonationConfig{UserName: user(target.Namespace), Groups: []string{"system:authenticated"}}
	config.WarningHandler = rest.NoWarnings{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counter{a, next} })
	clients, err := kube.ConnectConfig(config, "hostile-tenant")
	if err != nil {
		return nil, err
	}
	a.core, a.ours = clients.Core, clients.Basalt
	return a, nil
}

// bind grants a ClusterRole in a namespace to the namespace's user.
func bind(ctx context.Context, client kubernetes.Interface, namespace, role string) error {
	b := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tenant-" + strings.ReplaceAll(role, ":", "-")},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user(namespace)}},
	}
	if _, err := client.RbacV1().RoleBindings(namespace).Create(ctx, b, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("bind role %s in namespace %s: %w", role, namespace, err)
	}
	return nil
}

// counter counts the writes of an attacker.
type counter struct {
	a    *Attacker
	next http.RoundTripper
}

func (c counter) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		if err := c.a.limit.Wait(r.Context()); err != nil {
			return nil, err
		}
	}
	resp, err := c.next.RoundTrip(r)
	if r.Method != http.MethodGet {
		if err == nil && resp.StatusCode < 300 {
			c.a.writes.Add(1)
		} else {
			c.a.refused.Add(1)
		}
	}
	return resp, err
}

// Run runs one attack until the context ends or the attack has nothing more to do. Errors are not reported: the API server is
// expected to refuse much of it. See Count.
func (a *Attacker) Run(ctx context.Context, attack Attack) {
	round := a.rounds.Add(1)
	h := uint64(0)
	for _, b := range []byte(attack.Name) {
		h = h*131 + uint64(b)
	}
	attack.run(ctx, &strike{Attacker: a, prefix: fmt.Sprintf("%s-%d", attack.Name, round), rand: rand.New(rand.NewPCG(a.seed, h))})
}

// Count returns how many writes of the attacker the API server has accepted and refused.
func (a *Attacker) Count() (accepted, refused int64) { return a.writes.Load(), a.refused.Load() }

// strike is one run of an attack: its randomness and the prefix of its objects' names.
type strike struct {
	*Attacker
	prefix string
	rand   *rand.Rand // for the goroutine of the attack itself; see each
}

// n scales a number of objects, and gives at least 1.
func (s *strike) n(full int) int { return max(1, int(float64(full)*s.Scale)) }

// name names the i-th object.
func (s *strike) name(i int) string { return fmt.Sprintf("%s-%d", s.prefix, i) }

// each calls f with 0 to n-1 on some goroutines, each call with randomness of its own.
func (s *strike) each(ctx context.Context, n, workers int, f func(i int, r *rand.Rand)) {
	seed := s.rand.Uint64()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(workers, n) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || ctx.Err() != nil {
					return
				}
				f(i, rand.New(rand.NewPCG(seed, uint64(i))))
			}
		})
	}
	wg.Wait()
}

// forever calls f again and again, at most rate times a second, until the context ends.
func (s *strike) forever(ctx context.Context, rate float64, f func(i int)) {
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		f(i)
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// amounts is a resource list from pairs of a name and a quantity.
func amounts(pairs ...string) v1.ResourceList {
	out := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func milli(n int64) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: *resource.NewMilliQuantity(n, resource.DecimalSI)}
}

// pod describes a pod of the attacker's own queue that asks for 10 m of CPU.
func (s *strike) pod(name string) *v1.Pod {
	zero, no := int64(0), false
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name, Labels: map[string]string{api.LabelQueue: s.Queue}},
		Spec: v1.PodSpec{
			SchedulerName: api.SchedulerName, RestartPolicy: v1.RestartPolicyNever, TerminationGracePeriodSeconds: &zero, AutomountServiceAccountToken: &no,
			Containers: []v1.Container{{Name: "c", Image: "none", Resources: v1.ResourceRequirements{Requests: milli(10)}}},
		},
	}
}

// ask makes a pod ask for so much; extended resources need limits too.
func ask(p *v1.Pod, list v1.ResourceList) *v1.Pod {
	r := &p.Spec.Containers[0].Resources
	r.Requests, r.Limits = list, v1.ResourceList{}
	for name, q := range list {
		if strings.Contains(string(name), "/") {
			r.Limits[name] = q
		}
	}
	return p
}

// of puts a pod into a PodGroup.
func of(p *v1.Pod, group string) *v1.Pod {
	delete(p.Labels, api.LabelQueue)
	p.Labels[api.LabelPodGroup] = group
	return p
}

func (s *strike) create(ctx context.Context, p *v1.Pod) (*v1.Pod, error) {
	return s.core.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
}

func (s *strike) remove(ctx context.Context, name string) {
	_ = s.core.CoreV1().Pods(s.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
}

func (s *strike) patchPod(ctx context.Context, name, body string) error {
	_, err := s.core.CoreV1().Pods(s.Namespace).Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	return err
}

// label sets labels of a pod; "null" removes one.
func (s *strike) label(ctx context.Context, name string, pairs ...string) {
	var parts []string
	for i := 0; i < len(pairs); i += 2 {
		value := fmt.Sprintf("%q", pairs[i+1])
		if pairs[i+1] == "null" {
			value = "null"
		}
		parts = append(parts, fmt.Sprintf("%q:%s", pairs[i], value))
	}
	_ = s.patchPod(ctx, name, fmt.Sprintf(`{"metadata":{"labels":{%s}}}`, strings.Join(parts, ",")))
}

// group creates a PodGroup.
func (s *strike) group(ctx context.Context, name, queue string, least int, edit ...func(*v1beta1.PodGroup)) error {
	g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}
	g.Spec.Queue, g.Spec.SchedulingPolicy.Gang.MinCount = queue, int32(least)
	for _, f := range edit {
		f(g)
	}
	return s.ours.Post().Namespace(s.Namespace).Resource("podgroups").Body(g).Do(ctx).Error()
}

func (s *strike) removeGroup(ctx context.Context, name string) {
	_ = s.ours.Delete().Namespace(s.Namespace).Resource("podgroups").Name(name).Do(ctx).Error()
}

func (s *strike) patchGroup(ctx context.Context, name, body string) error {
	return s.ours.Patch(types.MergePatchType).Namespace(s.Namespace).Resource("podgroups").Name(name).Body([]byte(body)).Do(ctx).Error()
}

// bound waits until a pod has a node; false when the context ended first, or the pod is gone.
func (s *strike) bound(ctx context.Context, name string) bool {
	for ctx.Err() == nil {
		p, err := s.core.CoreV1().Pods(s.Namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false
		}
		if err == nil && p.Spec.NodeName != "" {
			return true
		}
		wait.For(ctx, 30*time.Millisecond)
	}
	return false
}
