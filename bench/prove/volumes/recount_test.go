package volumes

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"basalt.dev/basalt/api"
)

// recount holds when pods got their nodes and claims their volumes, by the versions of the store, which order objects of all kinds.
type recount struct {
	mu      sync.Mutex
	known   map[types.UID]*corev1.Pod
	placed  map[types.UID]uint64 // version at which a pod had a node for the first time
	bound   map[string]uint64    // and a claim of the name its volume
	volumes map[string]string    // of claims
	gone    map[types.UID]*corev1.Pod
	gangs   map[string][]types.UID
	onNode  map[string]string // of volumes
}

func newRecount() *recount {
	return &recount{known: map[types.UID]*corev1.Pod{}, placed: map[types.UID]uint64{}, bound: map[string]uint64{}, volumes: map[string]string{},
		gone: map[types.UID]*corev1.Pod{}, gangs: map[string][]types.UID{}, onNode: map[string]string{}}
}

// follow watches pods, claims and volumes until the context ends.
func (r *recount) follow(ctx context.Context, client kubernetes.Interface) error {
	from := metav1.ListOptions{ResourceVersion: "0"}
	pods, err := client.CoreV1().Pods("").Watch(ctx, from)
	if err != nil {
		return err
	}
	defer pods.Stop()
	claims, err := client.CoreV1().PersistentVolumeClaims("").Watch(ctx, from)
	if err != nil {
		return err
	}
	defer claims.Stop()
	volumes, err := client.CoreV1().PersistentVolumes().Watch(ctx, from)
	if err != nil {
		return err
	}
	defer volumes.Stop()
	for {
		var e watch.Event
		select {
		case <-ctx.Done():
			return nil
		case e = <-pods.ResultChan():
		case e = <-claims.ResultChan():
		case e = <-volumes.ResultChan():
		}
		r.mu.Lock()
		switch o := e.Object.(type) {
		case *corev1.Pod:
			r.pod(o, e.Type == watch.Deleted)
		case *corev1.PersistentVolumeClaim:
			if _, complete := o.Annotations["pv.kubernetes.io/bind-completed"]; complete && o.Spec.VolumeName != "" && r.bound[string(o.UID)] == 0 {
				r.bound[string(o.UID)], r.volumes[string(o.UID)] = version(o), o.Spec.VolumeName
				r.bound[o.Name], r.volumes[o.Name] = version(o), o.Spec.VolumeName
			}
		case *corev1.PersistentVolume:
			r.onNode[o.Name] = o.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0]
		default:
			r.mu.Unlock()
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("a watch ended: %+v", e.Object)
		}
		r.mu.Unlock()
	}
}

func version(o metav1.Object) uint64 {
	n, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	return n
}

func (r *recount) pod(p *corev1.Pod, gone bool) {
	if gone {
		r.gone[p.UID] = p
		delete(r.known, p.UID)
		return
	}
	if r.known[p.UID] == nil {
		r.gangs[gangOf(p)] = append(r.gangs[gangOf(p)], p.UID)
	}
	r.known[p.UID] = p
	if p.Spec.NodeName != "" && r.placed[p.UID] == 0 {
		r.placed[p.UID] = version(p)
	}
}

// forget leaves a pod out of what is judged.
func (r *recount) forget(p *corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := gangOf(p)
	r.gangs[of] = slices.DeleteFunc(r.gangs[of], func(uid types.UID) bool { return uid == p.UID })
}

func gangOf(p *corev1.Pod) string {
	if name := p.Labels[api.LabelPodGroup]; name != "" {
		return name
	}
	return p.Name
}

// judge says which pods were bound before a volume of their gang was, or where their volume is not: it names a node or a zone.
func (r *recount) judge() (checked int, found []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := func(uid types.UID) *corev1.Pod {
		if p := r.known[uid]; p != nil {
			return p
		}
		return r.gone[uid]
	}
	for gang, pods := range r.gangs {
		var last uint64
		claims := 0
		for _, uid := range pods {
			for _, v := range of(uid).Spec.Volumes {
				if c := v.PersistentVolumeClaim; c != nil && r.placed[uid] > 0 {
					claims++
					if at := r.bound[c.ClaimName]; at == 0 {
						found = append(found, fmt.Sprintf("pod %s was bound without its volume %s", of(uid).Name, c.ClaimName))
					} else {
						last = max(last, at)
					}
					if on := r.onNode[r.volumes[c.ClaimName]]; on != of(uid).Spec.NodeName && on != zoneOf(of(uid).Spec.NodeName) {
						found = append(found, fmt.Sprintf("pod %s is on %s, its volume on %s", of(uid).Name, of(uid).Spec.NodeName, on))
					}
				}
			}
		}
		if claims == 0 {
			continue
		}
		for _, uid := range pods {
			if at := r.placed[uid]; at > 0 {
				checked++
				if at < last {
					found = append(found, fmt.Sprintf("pod %s of %s was bound at %d, a volume of its gang at %d", of(uid).Name, gang, at, last))
				}
			}
		}
	}
	slices.Sort(found)
	return checked, found
}

// pods returns those that there are, in the order of their names.
func (r *recount) pods() []*corev1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*corev1.Pod, 0, len(r.known))
	for _, p := range r.known {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (r *recount) named(name string) *corev1.Pod {
	for _, p := range r.pods() {
		if p.Name == name {
			return p
		}
	}
	return nil
}
