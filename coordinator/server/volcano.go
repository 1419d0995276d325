package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	bus "volcano.sh/apis/pkg/apis/bus/v1alpha1"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/doors/volcano/mirror"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wait"
)

const (
	lookEvery  = 500 * time.Millisecond // at most so often; a look that has much to write takes longer
	lookAgain  = 10 * time.Second       // at least so often
	restFailed = 30 * time.Second       // for what the API server refuses
	holdFor    = 10 * time.Second       // what was written and is not seen
)

// volcanoQueues has Basalt's Queues say what Volcano's say, as package mirror plans it. With --volcano=write, and while Basalt holds the
// Lease of Volcano's scheduler, it writes the status of Volcano's Queues, and carries out Commands for them.
type volcanoQueues struct {
	clients *kube.Clients
	log     *slog.Logger
	write   bool
	events  *kube.Recorder

	theirs   *shown[*volcano.Queue]
	ours     *shown[*v1beta1.Queue]
	commands *shown[*bus.Command]

	told    map[string]string       // why a Queue of Volcano's has no mirror, by its name, as it was told
	refused map[string]refusal      // by name of the Queue of Basalt's
	written map[types.UID]writing   // objects that were not seen yet as they were written
	done    map[types.UID]time.Time // Commands that were carried out
	held    bool                    // the Lease,
	asked   time.Time               // as it was found then
}

type refusal struct {
	at  time.Time
	why string
}

type writing struct {
	at      time.Time
	version string
}

// followVolcano runs until ctx ends.
func (t *term) followVolcano(ctx context.Context, write bool) {
	events, err := t.clients.Recorder(ctx)
	if err != nil {
		t.log.Error("cannot record events", "error", err)
		return
	}
	t.clients.WhileServed(ctx, t.log, volcano.SchemeGroupVersion, "queues", func(ctx context.Context) {
		v := &volcanoQueues{
			clients: t.clients, log: t.log, write: write, events: events,
			theirs: &shown[*volcano.Queue]{}, ours: &shown[*v1beta1.Queue]{}, commands: &shown[*bus.Command]{},
			told: map[string]string{}, refused: map[string]refusal{}, written: map[types.UID]writing{}, done: map[types.UID]time.Time{},
		}
		v.run(ctx)
	}, func() {})
}

func (v *volcanoQueues) run(ctx context.Context) {
	v.log.Info("following Volcano's Queues", "writing", v.write)
	defer v.log.Info("not following Volcano's Queues any more")
	var wg sync.WaitGroup
	defer wg.Wait()
	changed := make(chan struct{}, 1)
	wg.Go(func() {
		v.theirs.follow(ctx, v.clients.Volcano, "queues", "queues."+volcano.GroupName, v.log, changed, stripVolcanoQueue)
	})
	wg.Go(func() { v.ours.follow(ctx, v.clients.Basalt, "queues", "queues", v.log, changed, nil) })
	if v.write {
		wg.Go(func() {
			v.clients.WhileServed(ctx, v.log, bus.SchemeGroupVersion, "commands", func(ctx context.Context) {
				v.commands.follow(ctx, v.clients.VolcanoBus, "commands", "commands", v.log, changed, stripCommand)
			}, func() {})
		})
	}
	for wait.For(ctx, lookEvery) {
		theirs, listed := v.theirs.all()
		ours, also := v.ours.all()
		if listed && also {
			v.look(ctx, theirs, ours)
		}
		select {
		case <-changed:
		case <-time.After(lookAgain):
		case <-ctx.Done():
		}
	}
}

// look does what is to be done now.
func (v *volcanoQueues) look(ctx context.Context, theirs []*volcano.Queue, ours []*v1beta1.Queue) {
	now := time.Now()
	maps.DeleteFunc(v.refused, func(_ string, r refusal) bool { return now.Sub(r.at) >= restFailed })
	maps.DeleteFunc(v.written, func(_ types.UID, w writing) bool { return now.Sub(w.at) >= holdFor })
	var commands map[types.UID][]*bus.Command
	standIns := mirror.StandIns(ours)
	wanted := theirs
	if v.write {
		commands = v.pending(theirs, now)
		wanted = v.obey(ctx, theirs, standIns, commands)
	}
	plan := mirror.Of(wanted, ours)
	for _, s := range plan.Steps {
		if r, again := v.refused[s.Queue.Name]; again {
			plan.Refused(s, r.why)
			continue
		}
		if s.Verb != mirror.Make && v.unseen(s.Queue) {
			continue
		}
		err := v.carryOut(ctx, s)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil, apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err): // the next look sees what there is
		case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
			v.refused[s.Queue.Name] = refusal{now, err.Error()}
			plan.Refused(s, err.Error())
		default:
			v.log.Warn("cannot write a mirror of a Queue of Volcano's, retrying later", "queue", s.Queue.Name, "error", err)
			return
		}
	}
	v.tell(theirs, plan.Problems)
	if v.write {
		v.report(ctx, theirs, standIns, commands)
	}
}

// pending returns the Commands that are to be carried out, by the Queue of Volcano's that they are for.
func (v *volcanoQueues) pending(theirs []*volcano.Queue, now time.Time) map[types.UID][]*bus.Command {
	all, _ := v.commands.all()
	there := make(map[types.UID]bool, len(all))
	for _, c := range all {
		there[c.UID] = true
	}
	maps.DeleteFunc(v.done, func(uid types.UID, at time.Time) bool { return !there[uid] || now.Sub(at) >= holdFor })
	return mirror.For(theirs, slices.DeleteFunc(all, func(c *bus.Command) bool { return !v.done[c.UID].IsZero() }))
}

// obey returns Volcano's Queues as they are to be after their Commands: those of Basalt are opened and closed before Volcano's say so.
func (v *volcanoQueues) obey(ctx context.Context, theirs []*volcano.Queue, standIns map[string]*v1beta1.Queue, commands map[types.UID][]*bus.Command) []*volcano.Queue {
	if len(commands) == 0 || !v.holds(ctx) {
		return theirs
	}
	out := slices.Clone(theirs)
	for i, q := range out {
		if of := commands[q.UID]; len(of) > 0 && !v.unseen(q) {
			after := *q
			after.Status.State = mirror.StatusOf(q, standIns[q.Name], of).State
			out[i] = &after
		}
	}
	return out
}

// holds reports whether Basalt holds the Lease of Volcano's scheduler. It asks once a second at most.
func (v *volcanoQueues) holds(ctx context.Context) bool {
	if time.Since(v.asked) < time.Second {
		return v.held
	}
	held, err := v.clients.HoldsVolcano(ctx)
	if err != nil && ctx.Err() == nil {
		v.log.Warn("cannot find out who holds the Lease of Volcano's scheduler", "error", err)
	}
	v.asked, v.held = time.Now(), held
	return held
}

func (v *volcanoQueues) carryOut(ctx context.Context, s mirror.Step) error {
	q := s.Queue
	switch s.Verb {
	case mirror.Make:
		return v.clients.Basalt.Post().Resource("queues").Body(q).Do(ctx).Error()
	case mirror.Set:
		var after v1beta1.Queue
		err := v.clients.Basalt.Put().Resource("queues").Name(q.Name).Body(q).Do(ctx).Into(&after)
		if err == nil {
			v.written[q.UID] = writing{time.Now(), after.ResourceVersion}
		}
		return err
	default:
		// of the version that was seen
		return v.clients.Basalt.Delete().Resource("queues").Name(q.Name).Body(&metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &q.UID, ResourceVersion: &q.ResourceVersion}}).Do(ctx).Error()
	}
}

// unseen reports whether an object is seen as it was before it was written last.
func (v *volcanoQueues) unseen(o metav1.Object) bool {
	w, ok := v.written[o.GetUID()]
	return ok && api.NewerVersion(w.version, o.GetResourceVersion())
}

// tell says at each Queue of Volcano's why it has no mirror, once.
func (v *volcanoQueues) tell(theirs []*volcano.Queue, problems map[string]string) {
	for _, q := range theirs {
		switch why := problems[q.Name]; {
		case why == "":
			delete(v.told, q.Name)
		case v.told[q.Name] != why:
			v.told[q.Name] = why
			v.log.Warn("a Queue of Volcano's is not mirrored", "queue", q.Name, "reason", why)
			v.events.About(about(q), true, "NotMirrored", "Mirroring", why)
		}
	}
}

func about(q *volcano.Queue) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: volcano.SchemeGroupVersion.String(), Kind: "Queue", Name: q.Name, UID: q.UID}
}

// report writes statuses of Volcano's Queues, and deletes the Commands that were carried out.
func (v *volcanoQueues) report(ctx context.Context, theirs []*volcano.Queue, standIns map[string]*v1beta1.Queue, commands map[types.UID][]*bus.Command) {
	for _, q := range theirs {
		standIn := standIns[q.Name]
		want := mirror.StatusOf(q, standIn, commands[q.UID])
		switch {
		case v.unseen(q), want.Shown(q) && len(commands[q.UID]) == 0:
			continue
		case !want.InForce(standIn): // not yet, or not seen yet
			continue
		case !v.holds(ctx):
			return
		}
		if err := v.writeStatus(ctx, q, want); err != nil {
			if ctx.Err() != nil {
				return
			}
			v.log.Warn("cannot write the status of a Queue of Volcano's, retrying later", "queue", q.Name, "error", err)
			continue
		}
		for _, c := range commands[q.UID] {
			err := v.clients.VolcanoBus.Delete().Namespace(c.Namespace).Resource("commands").Name(c.Name).
				Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &c.UID}}).Do(ctx).Error()
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				v.log.Warn("cannot delete a Command that was carried out", "command", c.Namespace+"/"+c.Name, "error", err)
			}
			v.done[c.UID] = time.Now()
			v.log.Info("carried out a Command", "command", c.Namespace+"/"+c.Name, "action", c.Action, "queue", q.Name, "state", want.State)
			if !mirror.Obeys(standIn) {
				v.events.About(about(q), true, "CommandIgnored", "Mirroring",
					"Command "+c.Namespace+"/"+c.Name+" has no effect: set spec.closed of the Queue "+standIn.Name+" of scheduling.basalt.dev, which stands for this one")
			}
		}
	}
}

// writeStatus has a Queue of Volcano's say what is charged, and its state. Other fields stay. It names no version: who changes the
// spec meanwhile is no conflict, and what another writer of the status does is seen and written over at the next look.
func (v *volcanoQueues) writeStatus(ctx context.Context, q *volcano.Queue, want mirror.Status) error {
	if want.Shown(q) {
		return nil
	}
	allocated := map[string]any{}
	for name := range q.Status.Allocated {
		allocated[string(name)] = nil
	}
	for name, amount := range want.Allocated {
		allocated[string(name)] = amount.String()
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": q.UID},
		"status":   map[string]any{"state": want.State, "allocated": allocated}})
	if err != nil {
		return err
	}
	var after volcano.Queue
	if err := v.clients.Volcano.Patch(types.MergePatchType).Resource("queues").Name(q.Name).SubResource("status").Body(patch).Do(ctx).Into(&after); err != nil {
		return err
	}
	v.written[q.UID] = writing{time.Now(), after.ResourceVersion}
	return nil
}

// shown is what a watch shows of a kind.
type shown[T interface {
	metav1.Object
	runtime.Object
}] struct {
	mu     sync.Mutex
	known  map[types.UID]T
	listed bool
}

// all returns what there is, and whether it was listed.
func (s *shown[T]) all() ([]T, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.known)), s.listed
}

// follow follows a kind until ctx ends, when it forgets all. It says with changed that something is another than it was. What cannot
// be read stays as it was read last.
func (s *shown[T]) follow(ctx context.Context, client rest.Interface, resource, name string, log *slog.Logger, changed chan<- struct{}, strip func(T) T) {
	do := func(f func()) {
		s.mu.Lock()
		defer s.mu.Unlock()
		f()
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	follower := kube.Follow(client, resource, log, kube.Handler[T]{
		Replaced: func(list []T, _ kube.Ticket) {
			do(func() {
				s.known, s.listed = make(map[types.UID]T, len(list)), true
				for _, o := range list {
					s.known[o.GetUID()] = o
				}
			})
		},
		Seen: func(o T) { do(func() { s.known[o.GetUID()] = o }) },
		Gone: func(o T) { do(func() { delete(s.known, o.GetUID()) }) },
		Unreadable: func(o T, _ error) (T, bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			last, ok := s.known[o.GetUID()]
			return last, ok
		},
	})
	follower.Named(name)
	if strip != nil {
		follower.Strip(strip)
	}
	follower.Run(ctx)
	do(func() { s.known, s.listed = nil, false })
}

// stripVolcanoQueue and stripCommand keep what package mirror reads.
func stripVolcanoQueue(q *volcano.Queue) *volcano.Queue {
	return &volcano.Queue{
		ObjectMeta: api.StripMeta(&q.ObjectMeta),
		Spec: volcano.QueueSpec{Capability: q.Spec.Capability, Guarantee: q.Spec.Guarantee, Deserved: q.Spec.Deserved, Weight: q.Spec.Weight,
			Priority: q.Spec.Priority, Reclaimable: q.Spec.Reclaimable, Parent: q.Spec.Parent},
		Status: volcano.QueueStatus{State: q.Status.State, Allocated: q.Status.Allocated},
	}
}

func stripCommand(c *bus.Command) *bus.Command {
	return &bus.Command{ObjectMeta: api.StripMeta(&c.ObjectMeta), Action: c.Action, TargetObject: c.TargetObject}
}
