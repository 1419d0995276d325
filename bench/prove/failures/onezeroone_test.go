package failures

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
)

// A PodGroup, or a Deployment's pod, is deleted and made again under the same name within milliseconds, over and over, at
// whatever stage it is. Deletes come late, when the next one of the name is there, and twice. Nothing that is meant for the
// old one may touch the new one, every new pod gets a node, and no reservation is left over.
func TestOneZeroOne(t *testing.T) {
	failure{bug: fault.NamesNotUIDs, evidence: `PodGroup .* does not exist`, scenario: oneZeroOne}.show(t)
}

func oneZeroOne(w *world) {
	ctx := w.t.Context()
	for i := range 6 {
		w.node(ctx, fmt.Sprintf("n%d", i), amounts{"cpu": "32", "memory": "64Gi"}, nil)
	}
	const workers = 12
	rounds := w.size(50)
	// Room for what exists and for what is just going; a reservation that leaks is soon missed.
	w.queue(ctx, "tight", amounts{"pods": fmt.Sprint(workers * 6)})
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			r := &remaker{world: w, rand: rand.New(rand.NewPCG(101, uint64(i))), name: fmt.Sprintf("x%d", i), alone: i%3 == 2}
			for n := range rounds {
				if w.found() || ctx.Err() != nil {
					return
				}
				if err := r.round(ctx, n == rounds-1); err != nil {
					w.find("%s: %v", r.name, err)
					return
				}
			}
			r.late.Wait()
		})
	}
	wg.Wait()
	w.wait(limit, "one reservation for each that is there, and no more", func(v *view) bool { return len(v.Reservations) == workers })
}

// remaker deletes and makes one thing: a PodGroup of two, or with alone a pod as a Deployment makes it.
type remaker struct {
	*world
	rand  *rand.Rand
	name  string
	alone bool

	group types.UID
	pods  []*v1.Pod
	old   []*v1.Pod // bound to an earlier group of the name, not deleted yet
	made  int
	late  sync.WaitGroup
}

func (r *remaker) round(ctx context.Context, last bool) error {
	before, group := r.pods, r.group
	keep := !r.alone && r.made > 0 && len(r.old) == 0 && r.rand.IntN(5) == 0 // the pods stay a while without their group
	if r.made > 0 {
		// In any order, at whatever stage.
		steps := []func() error{func() error { return r.deleteGroup(ctx, group) }, func() error {
			if keep {
				r.old = before
				return nil
			}
			for _, p := range before {
				if err := r.deletePod(ctx, p, r.rand.IntN(2) == 0); err != nil {
					return err
				}
			}
			return nil
		}}
		r.rand.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
		for _, step := range steps {
			if err := step(); err != nil {
				return err
			}
		}
	}
	if err := r.make(ctx, keep || len(r.old) > 0); err != nil {
		return err
	}
	// The same deletes once more, when their namesakes are there: the API server must refuse them, by the UID.
	if group != "" {
		if err := r.deleteGroup(ctx, group); err != nil {
			return err
		}
	}
	for _, p := range before {
		if !keep {
			if err := r.deletePod(ctx, p, true); err != nil {
				return err
			}
		}
	}
	if len(r.old) > 0 && !keep || last { // late deletes of what was left behind
		for _, p := range r.old {
			r.late.Go(func() {
				if err := r.deletePod(ctx, p, false); err != nil {
					r.find("%v", err)
				}
			})
		}
		r.old = nil
	}
	switch {
	case last || r.rand.IntN(3) == 0:
		uids := []types.UID{}
		for _, p := range r.pods {
			uids = append(uids, p.UID)
		}
		patience := limit / 2
		if r.faulty != "" { // there it is known to be in vain, but the pods' conditions say why after ConditionAfter, 10 s
			patience = limit / 3
		}
		if !r.wait(patience, fmt.Sprintf("the new pods of %s to get a node", r.name), bound(uids...)) {
			for _, p := range r.pods { // whether it is Basalt that does not know it, or the view of this test
				now, err := r.kube.Core.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
				if err != nil {
					r.t.Logf("made %s %s: %v", p.Name, p.UID, err)
				} else {
					r.t.Logf("made %s %s at %s; there is %s at %s, node %q, deleted %v", p.Name, p.UID, p.ResourceVersion, now.UID, now.ResourceVersion, now.Spec.NodeName, now.DeletionTimestamp)
				}
			}
			return nil // it is found already
		}
	case r.rand.IntN(2) == 0: // so that all stages are met: this waits for nothing
		select {
		case <-time.After(time.Duration(r.rand.IntN(60)) * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil
}

func (r *remaker) make(ctx context.Context, otherNames bool) error {
	r.made++
	if !r.alone {
		g, err := r.createGroup(ctx, r.name, "tight", 2)
		if err != nil {
			return err
		}
		r.group = g.UID
	}
	r.pods = nil
	names := []string{r.name + "-0", r.name + "-1"}
	if r.alone {
		names = names[:1]
	}
	for _, name := range names {
		if otherNames { // the old pods have theirs still
			name += fmt.Sprintf("-%d", r.made)
		}
		p := r.newPod(name, "", amounts{"cpu": "1", "memory": "1Gi"})
		p.Labels[api.LabelQueue] = "tight"
		if r.alone {
			yes := true
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: r.name, UID: "a-replica-set", Controller: &yes}}
		} else {
			p.Labels[api.LabelPodGroup] = r.name
		}
		// A bound pod that is deleted has its name until its kubelet lets go.
		deadline := time.Now().Add(limit)
		for {
			made, err := r.create(ctx, p)
			if err == nil {
				r.pods = append(r.pods, made)
				break
			}
			if !apierrors.IsAlreadyExists(errors.Unwrap(err)) || time.Now().After(deadline) {
				return err
			}
			select {
			case <-time.After(2 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

func (r *remaker) deleteGroup(ctx context.Context, uid types.UID) error {
	if r.alone {
		return nil
	}
	options := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	return gone(r.kube.Basalt.Delete().Namespace(r.world.name).Resource("podgroups").Name(r.name).Body(options).Do(ctx).Error())
}

// deletePod deletes at once, or with grace: then a bound pod is gone when its kubelet says so.
func (r *remaker) deletePod(ctx context.Context, p *v1.Pod, atOnce bool) error {
	grace := int64(30)
	if atOnce {
		grace = 0
	}
	return gone(r.kube.Core.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &grace, Preconditions: &metav1.Preconditions{UID: &p.UID}}))
}

// gone: not found, or another UID by now.
func gone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
