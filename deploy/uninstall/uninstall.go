// Package uninstall takes out of a cluster what `kubectl delete -k deploy` and `helm uninstall` leave there: the
// finalizer that the coordinator puts on every Queue, without which a Queue can never be deleted once no coordinator
// is left; and, if asked, the definitions of Queue and PodGroup with every object of theirs. It then says what
// remains, with the commands that remove it.
//
// It decides by what the API server has, and nothing else: neither Basalt nor its ClusterRoles have to be there, each
// kind may be whole, half deleted or gone, and a run that was interrupted is run again. It refuses to take anything
// away while Basalt is installed, because a coordinator puts its finalizer back, and it keeps Queues unless told
// otherwise: one whose definition is being deleted is held by nothing but the finalizer, so then it touches none.
package uninstall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api/v1beta1"
)

// Options of a run.
type Options struct {
	Namespace     string        // that Basalt ran in
	Save          string        // a new file for copies of all objects; "" for none
	DeleteObjects bool          // definitions and all objects go, not only finalizers
	Yes           bool          // really
	Timeout       time.Duration // for what others have to end: pods, and the API server's own deletions
}

// Bounds of a run.
const (
	page   = 500                    // objects in a list
	settle = 3 * time.Second        // a coordinator that runs where no Deployment is seen puts its finalizer back sooner
	again  = 500 * time.Millisecond // before what others have to end is looked at again
	named  = 5                      // objects that a message names; of others it tells the number
)

// Run does it and tells out what it did. An error says what to do before it is run again.
func Run(ctx context.Context, config *rest.Config, o Options, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	r, err := newRun(config, o, out)
	if err != nil {
		return err
	}
	if err := r.stopped(ctx); err != nil {
		return err
	}
	if err := r.look(ctx); err != nil {
		return err
	}
	if o.DeleteObjects && !o.Yes {
		return fmt.Errorf("this deletes %s, and with them what they say about quota: give --yes, and --save to keep a copy",
			r.inventory())
	}
	if o.Save != "" {
		if err := r.save(ctx); err != nil {
			return err
		}
	}
	if o.DeleteObjects {
		err = r.deleteKinds(ctx)
	} else {
		err = r.release(ctx)
	}
	if err != nil {
		return err
	}
	if err := r.look(ctx); err != nil {
		return err
	}
	return r.remains(ctx)
}

type run struct {
	Options
	out    io.Writer
	core   kubernetes.Interface
	meta   metadata.Interface
	config *rest.Config
	kinds  []*kind // in the order of their deletion; those that are not there are left out
}

func newRun(config *rest.Config, o Options, out io.Writer) (*run, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 200, 400 // thousands of Queues are patched one by one
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return &run{Options: o, out: out, core: core, meta: meta, config: config}, nil
}

// stopped returns an error while Basalt is installed, and waits for coordinators that are about to end.
func (r *run) stopped(ctx context.Context) error {
	const coordinators = "app.kubernetes.io/name=basalt-coordinator"
	list, err := r.core.AppsV1().Deployments("").List(ctx, metav1.ListOptions{LabelSelector: coordinators})
	if err != nil {
		return fmt.Errorf("list Deployments: %w", err)
	}
	for _, d := range list.Items {
		command := "kubectl delete -k deploy, or with your own kustomization"
		if release := d.Annotations["meta.helm.sh/release-name"]; release != "" {
			command = fmt.Sprintf("helm uninstall %s --namespace %s", release, d.Namespace)
		}
		return fmt.Errorf("Basalt is installed in namespace %s: remove it first (%s), then run this again",
			d.Namespace, command)
	}
	said := false
	return r.until(ctx, func() (string, error) {
		pods, err := r.core.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: coordinators})
		if err != nil {
			return "", fmt.Errorf("list pods: %w", err)
		}
		if len(pods.Items) == 0 {
			return "", nil
		}
		p := pods.Items[0]
		if !said {
			fmt.Fprintf(r.out, "waiting for pod %s/%s to end\n", p.Namespace, p.Name)
			said = true
		}
		return fmt.Sprintf("pod %s/%s has not ended: it may put finalizers back", p.Namespace, p.Name), nil
	})
}

// until calls look until it says nothing, and fails with what it said when time is up.
func (r *run) until(ctx context.Context, look func() (waits string, err error)) error {
	for waits := ""; ; {
		said, err := look()
		switch {
		case ctx.Err() != nil && waits != "": // in the middle of this one: the one before says what is wrong
			return errors.New(waits)
		case err != nil:
			return err
		case said == "":
			return nil
		}
		waits = said
		select {
		case <-ctx.Done():
			return errors.New(waits)
		case <-time.After(again):
		}
	}
}

// inventory says what there is.
func (r *run) inventory() string {
	var out []string
	for _, k := range r.kinds {
		out = append(out, count(k.objects, k.name))
	}
	if len(out) == 0 {
		return "nothing: there are no definitions of Queue and PodGroup"
	}
	return strings.Join(out, ", ") + ", and their definitions"
}

func count(n int, kind string) string {
	if n == 1 {
		return "1 " + kind
	}
	return fmt.Sprintf("%d %ss", n, kind)
}

// release takes the finalizer off all Queues, and keeps them.
func (r *run) release(ctx context.Context) error {
	for _, k := range r.kinds {
		if k.deleting && k.objects > 0 {
			return fmt.Errorf("the definition of %s is being deleted, and finalizers alone keep its %s: nothing was touched. "+
				"--save FILE --delete-objects --yes writes copies and ends the deletion; when Basalt is installed again, "+
				"kubectl apply --server-side -f FILE", k.name, count(k.objects, "object"))
		}
	}
	k := r.kind("Queue")
	if k == nil {
		fmt.Fprintln(r.out, "there are no Queues: their definition is gone")
		return nil
	}
	released, gone, err := r.strip(ctx, k)
	if err != nil {
		return err
	}
	if released > 0 { // look whether they stay off
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(settle):
		}
		back := 0
		if err := r.each(ctx, k, func(o *metav1.PartialObjectMetadata) error {
			if o.DeletionTimestamp == nil && slices.Contains(o.Finalizers, v1beta1.FinalizerCharged) {
				back++
			}
			return nil
		}); err != nil {
			return err
		}
		if back > 0 {
			return fmt.Errorf("a coordinator that runs outside of this cluster's Deployments put the finalizer back on %s: "+
				"stop it, and run this again", count(back, "Queue"))
		}
	}
	fmt.Fprintf(r.out, "Basalt's finalizer is off %s", count(released, "Queue"))
	if gone > 0 {
		fmt.Fprintf(r.out, ", %d of which %s being deleted", gone, map[bool]string{true: "was", false: "were"}[gone == 1])
	}
	fmt.Fprintln(r.out)
	return nil
}

// strip takes the finalizer off the Queues that have it: how many had, and how many of these were being deleted.
func (r *run) strip(ctx context.Context, k *kind) (released, deleting int, err error) {
	err = r.each(ctx, k, func(o *metav1.PartialObjectMetadata) error {
		had, err := r.take(ctx, k, o)
		if err == nil && had {
			released++
			if o.DeletionTimestamp != nil {
				deleting++
			}
		}
		return err
	})
	return released, deleting, err
}

// take takes our finalizer off one object. The patch names the list that it was made from, because others edit that,
// too.
func (r *run) take(ctx context.Context, k *kind, o *metav1.PartialObjectMetadata) (had bool, err error) {
	for try := 0; ; try++ {
		if !slices.Contains(o.Finalizers, v1beta1.FinalizerCharged) {
			return had, nil
		}
		had = true
		rest := slices.DeleteFunc(slices.Clone(o.Finalizers), func(f string) bool { return f == v1beta1.FinalizerCharged })
		patch, err := json.Marshal([]map[string]any{
			{"op": "test", "path": "/metadata/uid", "value": o.UID},
			{"op": "test", "path": "/metadata/finalizers", "value": o.Finalizers},
			{"op": "replace", "path": "/metadata/finalizers", "value": rest}})
		if err != nil {
			return had, err
		}
		objects := r.meta.Resource(k.resource)
		_, err = objects.Patch(ctx, o.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
		if err == nil || apierrors.IsNotFound(err) {
			return had, nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) || try == 5 { // invalid: a test of the patch failed
			return had, fmt.Errorf("take the finalizer off %s %s: %w", k.name, o.Name, err)
		}
		if o, err = objects.Get(ctx, o.Name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return had, nil
		} else if err != nil {
			return had, fmt.Errorf("read %s %s: %w", k.name, o.Name, err)
		}
	}
}
