package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/expression"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/relay"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/volume"
	"basalt.dev/basalt/api/wait"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home/intake"
	"basalt.dev/basalt/shard/volumes"
)

// watches turns what the API server shows into events.
type watches struct {
	clients      *kube.Clients
	log          *slog.Logger
	relay        *relay.Relay
	rules        api.Rules           // read once, never changed
	writeVolcano bool                // with --volcano=write
	post         func([]event.Event) // hands on what came together; its calls keep their order
	write        func(event.Output)  // starts a write of the volumes core
	storage      *storage
	pods         *kube.Follower[*corev1.Pod]
}

// run follows everything but pods, and returns once each kind was listed that a decision depends on. Of pods the
// cores hear when a takeover asks.
func (w *watches) run(ctx, stopping context.Context, wg *sync.WaitGroup) error {
	core, scheduling := w.clients.Core.CoreV1().RESTClient(), w.clients.Core.SchedulingV1().RESTClient()
	w.storage = newStorage(w.rules, w.post, w.write)
	wg.Go(func() { w.storage.run(ctx) })

	var synced []<-chan struct{}
	start := func(run func(context.Context), done <-chan struct{}) {
		wg.Go(func() { run(ctx) })
		synced = append(synced, done)
	}
	nodeSeen, nodeGone := w.nodeEvents()
	nodeSeen, nodeGone = w.withStorm(ctx, nodeSeen, nodeGone)
	toStorage := func(events []event.Event) { w.storage.take(ctx, events...) }
	nodes, _ := followAs(w, core, "nodes", "nodes", toStorage, w.rules.StripNode, nodeSeen, nodeGone)
	start(nodes.Run, nodes.Synced())
	namespaces := follow(w, core, "namespaces", nil,
		func(n *corev1.Namespace) event.Event {
			return event.NamespaceSeen{Name: n.Name, Queue: n.Labels[api.LabelQueue], Labels: n.Labels}
		},
		func(n *corev1.Namespace) event.Event { return event.NamespaceGone{Name: n.Name} })
	start(namespaces.Run, namespaces.Synced())
	priorities := follow(w, scheduling, "priorityclasses", nil,
		func(p *schedulingv1.PriorityClass) event.Event {
			return event.PriorityClassSeen{Name: p.Name, Value: int64(p.Value)}
		},
		func(p *schedulingv1.PriorityClass) event.Event { return event.PriorityClassGone{Name: p.Name} })
	start(priorities.Run, priorities.Synced())
	queues := follow(w, w.clients.Basalt, "queues", stripQueue,
		func(q *v1beta1.Queue) event.Event { return event.QueueSeen{Queue: countable(q)} },
		func(q *v1beta1.Queue) event.Event { return event.QueueGone{Name: q.Name, UID: string(q.UID)} })
	start(queues.Run, queues.Synced())
	groups := follow(w, w.clients.Basalt, "podgroups", stripPodGroup,
		func(g *v1beta1.PodGroup) event.Event {
			return event.PodGroupSeen{PodGroup: g, Foreign: floorOf(g, w.rules.Ignored)}
		},
		func(g *v1beta1.PodGroup) event.Event {
			return event.PodGroupGone{UID: string(g.UID), Namespace: g.Namespace, Name: g.Name}
		})
	start(groups.Run, groups.Synced())
	kubernetes := w.upstreamGroups()
	start(kubernetes.run, kubernetes.synced)
	if w.rules.Volcano {
		v := w.volcanoGroups()
		start(v.run, v.synced)
	}
	if w.writeVolcano {
		wg.Go(func() { w.holdVolcano(ctx) })
	}
	persistent := feed(ctx, w, core, "persistentvolumes", volume.StripVolume)
	start(persistent.Run, persistent.Synced())
	claims := feed(ctx, w, core, "persistentvolumeclaims", volume.StripClaim)
	start(claims.Run, claims.Synced())
	storageClient := w.clients.Core.StorageV1().RESTClient()
	classes := feed(ctx, w, storageClient, "storageclasses", volume.StripClass)
	start(classes.Run, classes.Synced())
	csiNodes := feed(ctx, w, storageClient, "csinodes", volumes.StripCSINode)
	start(csiNodes.Run, csiNodes.Synced())
	attachments := feed(ctx, w, storageClient, "volumeattachments", volumes.StripAttachment)
	start(attachments.Run, attachments.Synced())
	csiDrivers := feed(ctx, w, storageClient, "csidrivers", volumes.StripCSIDriver)
	start(csiDrivers.Run, csiDrivers.Synced())
	capacities := feed(ctx, w, storageClient, "csistoragecapacities", volume.StripCapacity)
	start(capacities.Run, capacities.Synced())
	budgets := follow(w, w.clients.Core.PolicyV1().RESTClient(), "poddisruptionbudgets", api.StripDisruptionBudget,
		func(b *policyv1.PodDisruptionBudget) event.Event {
			return event.BudgetSeen{Budget: api.FromDisruptionBudget(b)}
		},
		func(b *policyv1.PodDisruptionBudget) event.Event {
			return event.BudgetGone{Namespace: b.Namespace, Name: b.Name, UID: string(b.UID)}
		})
	wg.Go(func() { budgets.Run(ctx) }) // a preference: nothing waits for it
	devices := make(chan struct{})
	start(func(ctx context.Context) { w.followDevices(ctx, sync.OnceFunc(func() { close(devices) })) }, devices)
	release := make(chan struct{})
	start(func(ctx context.Context) { w.followRelease(ctx, sync.OnceFunc(func() { close(release) })) }, release)

	w.followPods(ctx, core)
	for _, s := range synced {
		select {
		case <-s:
		case <-stopping.Done():
			return stopping.Err()
		}
	}
	return nil
}

// key tells an object from others, a namesake that was made after it included.
type key struct {
	namespace, name string
	uid             types.UID
}

func keyOf(o metav1.Object) key { return key{o.GetNamespace(), o.GetName(), o.GetUID()} }

// follow makes a follower whose new lists become events too: those that a list lacks are gone. With strip it is
// relayed.
func follow[T interface {
	metav1.Object
	runtime.Object
}](w *watches, client rest.Interface, resource string, strip func(T) T, seen, gone func(T) event.Event) *kube.Follower[T] {
	f, _ := followAs(w, client, resource, resource, w.post, strip, seen, gone)
	return f
}

// followAs is follow, with another name than the resource's in logs and at relays, and another place to hand events
// on to, as they came together. forget reports all objects as gone; it is called after the follower has ended.
func followAs[T interface {
	metav1.Object
	runtime.Object
}](w *watches, client rest.Interface, resource, as string, post func([]event.Event), strip func(T) T,
	seen, gone func(T) event.Event) (f *kube.Follower[T], forget func()) {
	known := map[key]T{}
	var out []event.Event
	emit := func(ev event.Event) { out = append(out, ev) }
	flush := func() {
		if len(out) > 0 {
			post(out)
			out = make([]event.Event, 0, len(out)) // the next ones will be about as many
		}
	}
	f = kube.Follow(client, resource, w.log, kube.Handler[T]{
		Replaced: func(list []T, _ kube.Ticket) {
			now := make(map[key]T, len(list))
			for _, o := range list {
				now[keyOf(o)] = o
			}
			for k, o := range known {
				if _, still := now[k]; !still {
					emit(gone(o))
				}
			}
			known = now
			for _, o := range list {
				emit(seen(o))
			}
		},
		Seen: func(o T) {
			known[keyOf(o)] = o
			emit(seen(o))
		},
		Gone: func(o T) {
			delete(known, keyOf(o))
			emit(gone(o))
		},
		Flush: flush,
		Unreadable: func(o T, _ error) (T, bool) { // it stays as it was read last; what was never read is not there
			last, ok := known[keyOf(o)]
			return last, ok
		},
	})
	f.Named(as)
	if strip != nil {
		relayed(w, f, strip, pace)
	}
	return f, func() {
		for _, o := range known {
			emit(gone(o))
		}
		flush()
	}
}

// How long an event may wait in the relay for others to go with.
const (
	podPace = 20 * time.Millisecond // a gang waits for it
	pace    = 100 * time.Millisecond
)

// relayed has what changes as often as pods come and go watched by one shard for all, stripped of what no core reads.
func relayed[T runtime.Object](w *watches, f *kube.Follower[T], strip func(T) T, pace time.Duration) {
	f.Strip(strip)
	relay.Attach(w.relay, f, pace)
}

func stripQueue(q *v1beta1.Queue) *v1beta1.Queue {
	return &v1beta1.Queue{ObjectMeta: api.StripMeta(&q.ObjectMeta, api.LabelVolcanoQueue), Spec: q.Spec, Status: q.Status}
}

// countable leaves amounts out of a Queue's status that no status of ours has: to compare 1e2000000000 takes minutes.
func countable(q *v1beta1.Queue) *v1beta1.Queue {
	if q.Status == nil {
		return q
	}
	was := q.Status.Limits
	charged, now := amounts(q.Status.Charged), v1beta1.LimitsInForce{Capability: amounts(was.Capability), Guarantee: amounts(was.Guarantee), Deserved: amounts(was.Deserved)}
	if len(charged) == len(q.Status.Charged) && len(now.Capability) == len(was.Capability) && len(now.Guarantee) == len(was.Guarantee) && len(now.Deserved) == len(was.Deserved) {
		return q
	}
	status := *q.Status
	status.Charged, status.Limits = charged, now
	out := *q
	out.Status = &status
	return &out
}

// amounts returns the amounts of a list that can be counted in their unit.
func amounts(l corev1.ResourceList) corev1.ResourceList {
	out := l
	for name, q := range l {
		if _, err := api.FromQuantity(string(name), q, true); err != nil {
			if len(out) == len(l) {
				out = maps.Clone(l)
			}
			delete(out, name)
		}
	}
	return out
}

// floorOf returns what spec.minResources says, nil for nothing.
func floorOf(g *v1beta1.PodGroup, ignored map[string]bool) *api.ForeignGroup {
	if len(g.Spec.MinResources) == 0 {
		return nil
	}
	floor, err := api.FloorOf(g.Spec.MinResources, g.Spec.SchedulingPolicy.Gang.MinCount, ignored)
	out := &api.ForeignGroup{Floor: floor}
	if err != nil {
		out.Refused = api.RefuseGroup(out.Kind, g.Namespace, g.Name, err.Error())
	}
	return out
}

func stripPodGroup(g *v1beta1.PodGroup) *v1beta1.PodGroup {
	out := &v1beta1.PodGroup{ObjectMeta: api.StripMeta(&g.ObjectMeta), Spec: g.Spec, Status: g.Status}
	out.Labels = expression.Bounded(g.Labels, intake.MaxOrderWords) // for spec.order of its queue
	out.Annotations = expression.Bounded(g.Annotations, intake.MaxOrderWords)
	if user, groups := api.UserOf(g.Annotations); user != "" {
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[api.AnnotationUser], out.Annotations[api.AnnotationGroups] = user, groups
	}
	return out
}

// Where releases of kube-scheduler differ, a shard follows the release of the API server, also while that is upgraded.

const (
	releaseWithin = 5 * time.Second // the API server says its release,
	releaseEvery  = time.Minute     // and is asked again
	releaseRetry  = time.Second
)

// followRelease follows the release of the API server. known is called when it is known first, or may not be asked for.
func (w *watches) followRelease(ctx context.Context, known func()) {
	said := ""
	const words = "cannot read the release of the API server"
	for {
		pause := releaseEvery
		switch name, release, err := releaseOf(ctx, w.clients.Core.CoreV1().RESTClient()); {
		case ctx.Err() != nil:
			return
		case err != nil && said != "": // what was known holds
		case apierrors.IsForbidden(err), apierrors.IsNotFound(err), errors.Is(err, errNoRelease):
			w.log.Warn(words+"; the rules of Kubernetes before "+api.FromEmpty+" hold", "error", err)
			said = "unknown"
			known()
		case err != nil:
			w.log.Warn(words+", trying again", "error", err)
			pause = releaseRetry
		case name != said:
			all := release.AtLeast(utilversion.MustParseGeneric(api.FromEmpty))
			w.storage.take(ctx, event.ReleaseSeen{EmptyAll: all})
			w.log.Info("following the rules of kube-scheduler of the API server's release", "release", name,
				"empty_spread_selector_counts_all", all)
			said = name
			known()
		}
		if !wait.For(ctx, pause) {
			return
		}
	}
}

var errNoRelease = errors.New("this is no release")

// releaseOf asks the API server for its release.
func releaseOf(ctx context.Context, client rest.Interface) (name string, release *utilversion.Version, err error) {
	ctx, cancel := context.WithTimeout(ctx, releaseWithin)
	defer cancel()
	raw, err := client.Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return "", nil, err
	}
	var info apiversion.Info
	if err = json.Unmarshal(raw, &info); err == nil {
		release, err = utilversion.ParseGeneric(info.GitVersion)
	}
	if err != nil {
		return "", nil, fmt.Errorf("%w: %.100q: %w", errNoRelease, raw, err)
	}
	return info.GitVersion, release, nil
}
