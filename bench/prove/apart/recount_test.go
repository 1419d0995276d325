package apart

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/watch"

	"basalt.dev/basalt/api"
)

// recount holds what a watch of all pods shows, and compares each pod that gets a node with every other one.
type recount struct {
	mu         sync.Mutex
	known      map[types.UID]*corev1.Pod
	since      map[types.UID]time.Time      // when a pod was first seen with its node
	namespaces map[string]map[string]string // labels as they were last seen, and
	relabelled time.Time                    // when one last changed
	bindings   int
	found      []string
	late       time.Duration // what another scheduler bound may be unknown for so long
	spread     string        // the app whose pods are spread over zones with maxSkew 1, wherever their nodes are
	spreadOver []spreadPod   // in the order in which they were seen
}

// spreadPod is one of the pods that are spread.
type spreadPod struct {
	at   time.Time
	zone string
	ours bool
}

// unsure is for how long after a namespace got other labels nothing is judged by them: shards see them by another watch.
const unsure = 10 * time.Second

// follow watches pods and namespaces until the context ends.
func (r *recount) follow(ctx context.Context, client kubernetes.Interface) error {
	there, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range there.Items {
		r.pod(&there.Items[i], false)
	}
	// An API server may end a watch at any time; these go on from where they were.
	pods, err := watch.NewRetryWatcherWithContext(ctx, there.ResourceVersion, &cache.ListWatch{WatchFuncWithContext: client.CoreV1().Pods("").Watch})
	if err != nil {
		return err
	}
	defer pods.Stop()
	spaces, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	r.mu.Lock()
	for _, n := range spaces.Items {
		r.namespaces[n.Name] = n.Labels
	}
	r.mu.Unlock()
	namespaces, err := watch.NewRetryWatcherWithContext(ctx, spaces.ResourceVersion, &cache.ListWatch{WatchFuncWithContext: client.CoreV1().Namespaces().Watch})
	if err != nil {
		return err
	}
	defer namespaces.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, open := <-pods.ResultChan():
			p, ok := e.Object.(*corev1.Pod)
			if !open || !ok {
				return fmt.Errorf("the watch of pods ended: %+v", e.Object)
			}
			r.pod(p, e.Type == "DELETED")
		case e, open := <-namespaces.ResultChan():
			n, ok := e.Object.(*corev1.Namespace)
			if !open || !ok {
				return fmt.Errorf("the watch of namespaces ended: %+v", e.Object)
			}
			r.mu.Lock()
			if old, known := r.namespaces[n.Name]; known && old["team"] != n.Labels["team"] {
				r.relabelled = time.Now()
			}
			r.namespaces[n.Name] = n.Labels
			r.mu.Unlock()
		}
	}
}

func (r *recount) pod(p *corev1.Pod, gone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if gone {
		delete(r.known, p.UID)
		return
	}
	r.known[p.UID] = p
	if p.Spec.NodeName == "" || !r.since[p.UID].IsZero() {
		return
	}
	r.since[p.UID] = time.Now()
	if r.spread != "" && p.Labels["app"] == r.spread {
		r.spreads(p)
	}
	if p.Spec.SchedulerName != api.SchedulerName {
		return
	}
	r.bindings++
	for _, o := range r.known {
		if o.UID == p.UID || o.Spec.NodeName == "" || o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed {
			continue
		}
		if o.Spec.SchedulerName != api.SchedulerName && time.Since(r.since[o.UID]) < r.late {
			continue
		}
		if r.repels(p, o) || r.repels(o, p) {
			r.found = append(r.found, fmt.Sprintf("pod %s/%s was bound to %s, and %s/%s is on %s since %s: one of them repels the other",
				p.Namespace, p.Name, p.Spec.NodeName, o.Namespace, o.Name, o.Spec.NodeName, time.Since(r.since[o.UID])))
		}
	}
}

// spreads looks for a moment, as long ago as the pods of another scheduler may be unknown, at which the zone of a pod of ours was right for it. Its
// own pods count whenever they were bound.
func (r *recount) spreads(p *corev1.Pod) {
	now := spreadPod{time.Now(), r.zoneOf(p.Spec.NodeName), p.Spec.SchedulerName == api.SchedulerName}
	legal, count := !now.ours, map[string]int{}
	for known := len(r.spreadOver); known >= 0 && !legal; known-- {
		if known < len(r.spreadOver) && now.at.Sub(r.spreadOver[known].at) > r.late {
			break
		}
		count = map[string]int{zoneOf(0): 0, zoneOf(1): 0, zoneOf(2): 0}
		for i, o := range r.spreadOver {
			if o.ours || i < known {
				count[o.zone]++
			}
		}
		legal = count[now.zone]+1-min(count[zoneOf(0)], count[zoneOf(1)], count[zoneOf(2)]) <= 1
	}
	if !legal {
		r.found = append(r.found, fmt.Sprintf("pod %s/%s was bound in %s, which makes a skew above 1: %s ago there were %v", p.Namespace, p.Name, now.zone, r.late, count))
	}
	r.spreadOver = append(r.spreadOver, now)
}

// repels reports whether a pod repels another one from where it is.
func (r *recount) repels(p, o *corev1.Pod) bool {
	if p.Spec.Affinity == nil || p.Spec.Affinity.PodAntiAffinity == nil {
		return false
	}
	for _, t := range p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		about := slices.Contains(t.Namespaces, o.Namespace) || len(t.Namespaces) == 0 && t.NamespaceSelector == nil && p.Namespace == o.Namespace
		if t.NamespaceSelector != nil {
			if time.Since(r.relabelled) < unsure {
				continue
			}
			about = about || selects(t.NamespaceSelector, r.namespaces[o.Namespace])
		}
		same := p.Spec.NodeName == o.Spec.NodeName
		if t.TopologyKey != corev1.LabelHostname {
			same = r.zoneOf(p.Spec.NodeName) == r.zoneOf(o.Spec.NodeName)
		}
		if about && same && selects(t.LabelSelector, o.Labels) {
			return true
		}
	}
	return false
}

func selects(s *metav1.LabelSelector, labels map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(k8slabels.Set(labels))
}

// zoneOf is the zone of a node by its name, as they are made.
func (r *recount) zoneOf(node string) string {
	i, _ := strconv.Atoi(strings.TrimPrefix(node, "node-"))
	return zoneOf(i)
}

// pods returns those that there are, in the order of their names.
func (r *recount) pods() []*corev1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*corev1.Pod, 0, len(r.known))
	for _, p := range r.known {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *corev1.Pod) int { return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) })
	return all
}

func (r *recount) named(namespace, name string) *corev1.Pod {
	for _, p := range r.pods() {
		if p.Namespace == namespace && p.Name == name {
			return p
		}
	}
	return nil
}

// report returns what was found wrong, and an error if nothing was looked at.
func (r *recount) report() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bindings < 80 {
		return append(slices.Clone(r.found), fmt.Sprintf("only %d Bindings were seen", r.bindings))
	}
	return r.found
}

// boundAt returns when a pod was first seen with its node.
func (r *recount) boundAt(uid types.UID) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.since[uid]
}
