package server

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/doors/upstream"
	"basalt.dev/basalt/api/doors/volcano"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/process"
	"basalt.dev/basalt/api/relay"
	"basalt.dev/basalt/api/store"
	"basalt.dev/basalt/api/trace"
	"basalt.dev/basalt/api/visibility"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/cores"
	"basalt.dev/basalt/shard/effect"
	"basalt.dev/basalt/shard/event"
)

// item is what the loop takes from its inbox: events that came together, or a question about the cores' state.
type item struct {
	events []event.Event
	ask    func()
}

// loop runs the two cores. Its fields below the line belong to the goroutine of run.
type loop struct {
	self       api.Incarnation
	inbox      chan item
	started    chan struct{}     // closed when the fields below are set, but session and record
	fail       func(error)       // ends the process
	beat       process.Heartbeat // of run
	process    *process.Process
	clients    *kube.Clients
	registered chan struct{}  // closed when session and record are set
	session    *store.Session // set before the first table is seen, and so before anything is asked of it
	record     *wire.ShardRecord
	relay      *relay.Relay
	watches    *watches
	traces     *trace.Exporter
	metrics    *metrics
	reviews    *visibility.Reviews
	events     recorder
	podEvents  *atomic.Bool // of the configuration; nil: it does not change
	log        *slog.Logger

	reads, writes           *workers // control store
	binds, resolves, others *workers // API server
	volumes                 *workers // likewise, for claims and volumes
	bindings                *workers // one, for what watches.storage is told: in order, and the loop may not wait

	// ----
	cores    *cores.Cores
	listing  event.ListPods
	ticket   kube.Ticket // the list that answers listing
	answered bool
	logRead  kube.Ticket // the list after which the log of intents needs none
	relisted bool        // one is awaited
}

// post hands events to the loop, waiting while its inbox is full.
func (l *loop) post(ctx context.Context, events ...event.Event) {
	select {
	case l.inbox <- item{events: events}:
	case <-ctx.Done():
	}
}

// ask runs f between two steps.
func (l *loop) ask(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case l.inbox <- item{ask: func() { f(); close(done) }}:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run is the main loop.
func (l *loop) run(ctx context.Context) {
	l.beat.Beat() // never stopped: the process ends soon after the loop, or /livez fails
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	fresh := 0 // events since the last Drained
	gathered := time.NewTimer(0)
	gathered.Stop()
	var due time.Time // at which gathered is set
	always := make(chan struct{})
	close(always)
	for {
		if at := l.cores.Node.Due(); !at.Equal(due) {
			if due = at; !at.IsZero() {
				gathered.Reset(time.Until(at))
			}
		}
		var more chan struct{}
		if l.cores.Waiting() > 0 {
			more = always
		}
		select {
		case <-ctx.Done():
			return
		case <-more:
			l.step(ctx, event.Drained{})
		case <-gathered.C:
			l.step(ctx, event.Drained{})
		case <-tick.C:
			l.beat.Beat()
			if l.podEvents != nil {
				l.cores.Home.SetPodEvents(l.podEvents.Load())
			}
			l.step(ctx, event.Tick{})
			l.metrics.observe(l)
		case i := <-l.inbox:
			if i.ask != nil {
				i.ask()
			} else {
				l.step(ctx, i.events...)
			}
			fresh += max(1, len(i.events))
			if len(l.inbox) == 0 || fresh >= drainAfter {
				fresh = 0
				l.step(ctx, event.Drained{})
			}
		}
	}
}

// listed is what the cores hear of a list of pods.
func (l *loop) listed(p event.PodsListed) event.PodsReplaced {
	ev := event.PodsReplaced{Pods: p.Pods}
	if p.CaughtUp {
		nodes, rows := l.cores.Node.Asks()
		ev.Seen, ev.Others, ev.Pods = true, p.Pods, l.cores.Home.Pods(p.Pods, nodes, rows)
	}
	if l.relisted && kube.Ticket(p.Ticket) >= l.logRead {
		ev.AfterLog, l.relisted = true, false
	}
	if !l.answered && kube.Ticket(p.Ticket) >= l.ticket {
		fault.Crash(fault.TakeoverListed)
		ev.Sequence, l.answered = l.listing.Sequence, true
	}
	return ev
}

// drainAfter is the number of events after which the cores are given Drained even if more events wait, so that what
// they deferred does not wait for an idle moment.
const drainAfter = 1024

// stepAtMost bounds the messages that the cores exchange because of one event, so that a message loop between them
// cannot starve the inbox.
const stepAtMost = 1024

// step gives the cores events that came together.
func (l *loop) step(ctx context.Context, events ...event.Event) {
	began := fault.Now()
	for _, ev := range events {
		switch e := ev.(type) {
		case event.PodsListed:
			ev = l.listed(e)
		case event.LogRead:
			if l.cores.View.Position() > 0 { // changes were missed
				l.logRead, l.relisted = l.watches.pods.Relist(), true
			}
		}
		l.give(ctx, began, ev)
		if gone, ok := ev.(event.QueueGone); ok {
			l.metrics.queueGone(gone.Name)
		}
	}
	l.metrics.gangsBound(l.cores.Home.Observed())
	l.metrics.step(time.Since(began))
}

// give gives the cores one event, and then what they say to each other.
func (l *loop) give(ctx context.Context, now time.Time, ev event.Event) {
	l.cores.Put(ev)
	for said := 0; l.cores.Waiting() > 0 && said < stepAtMost; said++ {
		if said > 0 {
			now = fault.Now() // what the cores say to each other takes time, too: traces show it
		}
		l.cores.Step(now, l.cores.Take(), func(o event.Output) bool {
			l.carryOut(ctx, o)
			return true
		})
	}
}

// carryOut starts what a core asks for; it never waits.
func (l *loop) carryOut(ctx context.Context, o event.Output) {
	switch o := o.(type) {
	case event.Send:
		l.metrics.sent(l.self, o)
		if o.To == event.ToCoordinator {
			l.process.SendCoordinator(o.Body)
		} else if o.To != l.self {
			l.process.SendShard(o.To, o.Body)
		}

	case event.ReadStore:
		l.reads.do("", func(ctx context.Context) { l.readStore(ctx, o) })
	case event.ListPods:
		l.listing, l.answered = o, false
		l.ticket = l.watches.pods.Relist()
	case event.WriteIntents:
		l.writes.do("", func(ctx context.Context) { l.post(ctx, l.writeIntents(ctx, o)) })
	case event.DeleteIntents:
		l.writes.do("", func(ctx context.Context) { l.post(ctx, l.deleteIntents(ctx, o)) })
	case event.RewriteIntents:
		l.writes.do("", func(ctx context.Context) { l.post(ctx, l.rewriteIntents(ctx, o)) })

	case event.BindPod:
		l.binds.do(o.Namespace, func(ctx context.Context) {
			l.post(ctx, l.bind(ctx, o))
		})
	case event.ResolveBinding:
		l.resolves.do(o.Namespace, func(ctx context.Context) { l.post(ctx, l.resolve(ctx, o)) })
	case event.BindVolumes:
		l.bindings.do("", func(ctx context.Context) { l.watches.storage.take(ctx, o) })
	case event.EndVolumes:
		l.bindings.do("", func(ctx context.Context) { l.watches.storage.take(ctx, o) })
	case event.WriteQueueStatus:
		l.others.do("", func(ctx context.Context) {
			err := l.clients.ReplaceStatus(ctx, "queues", "", o.Queue, o.UID, o.Status)
			fault.Crash(fault.StatusWritten)
			l.post(ctx, l.written("queue", o.ID, "", err))
		})
	case event.WritePodGroupStatus:
		l.others.do(o.Namespace, func(ctx context.Context) {
			err := l.clients.ReplaceStatus(ctx, "podgroups", o.Namespace, o.Name, o.UID, o.Status)
			l.post(ctx, l.written("podgroup", o.ID, "", err))
		})
	case event.WriteGroupStatus:
		l.others.do(o.Namespace, func(ctx context.Context) {
			if o.Kind == api.VolcanoGroup {
				err := l.clients.WriteVolcanoStatus(ctx, o.Namespace, o.Name, o.UID, volcano.Status(o.Status, metav1.Now()))
				l.post(ctx, l.written("volcano_podgroup", o.ID, "", err))
				return
			}
			err := l.clients.WriteUpstreamConditions(ctx, o.Namespace, o.Name, o.UID, upstream.Conditions(o.Status, o.Shown, o.Generation, metav1.Now()))
			l.post(ctx, l.written("upstream_podgroup", o.ID, "", err))
		})
	case event.WritePodCondition:
		l.others.do(o.Namespace, func(ctx context.Context) {
			version, err := l.clients.ExplainPod(ctx, kube.Pod{Namespace: o.Namespace, Name: o.Name, UID: o.UID}, o.ResourceVersion, o.Reason, o.Message)
			fault.Crash(fault.PodExplained)
			l.post(ctx, l.written("pod", o.ID, version, err))
		})
	case event.EvictPod:
		l.others.do(o.Namespace, func(ctx context.Context) { l.post(ctx, l.written("eviction", o.ID, "", l.evict(ctx, o))) })
	case event.ObjectEvent:
		if o.About.Kind == event.Controller {
			l.others.do(o.About.Namespace, func(ctx context.Context) { l.tellController(ctx, o) })
			return
		}
		l.events.tell(o)

	case event.Span:
		l.traces.Export(span(o))
	case event.Log:
		if o.Level >= slog.LevelError {
			l.metrics.brokenInvariants.Inc()
		}
		l.log.LogAttrs(ctx, o.Level, o.Message, o.Attrs...)
	}
}

// tellController writes an event about the controller of a pod, if the pod is still there and has one.
func (l *loop) tellController(ctx context.Context, o event.ObjectEvent) {
	pod := kube.Pod{Namespace: o.About.Namespace, Name: o.About.Name, UID: o.About.UID}
	owner, err := l.clients.Controller(ctx, pod)
	if err != nil {
		l.log.Warn("cannot say at the controller of a pod why it waits", "pod", pod.Namespace+"/"+pod.Name, "error", err)
		return
	}
	if owner != nil {
		l.events.About(*owner, o.Warning, o.Reason, "Scheduling", o.Message)
	}
}

// bind returns what became of a Binding.
func (l *loop) bind(ctx context.Context, o event.BindPod) event.BindDone {
	fault.Crash(fault.BindingUnsent)
	fault.CrashSoon(fault.BindingSent)
	labels, annotations := o.Marks()
	pod := kube.Pod{Namespace: o.Namespace, Name: o.Name, UID: o.Row.PodUID}
	err := l.clients.Bind(ctx, pod, o.ResourceVersion, o.Node, labels, annotations)
	done := effect.BindDone(o, err)
	switch done.Outcome {
	case event.BindOK:
		fault.Crash(fault.BindingAnswered)
	case event.BindRejected:
		l.log.Warn("Binding rejected", "pod", o.Namespace+"/"+o.Name, "node", o.Node, "error", err)
	case event.BindUnknown:
		l.log.Warn("Binding failed, resolving its outcome", "pod", o.Namespace+"/"+o.Name, "node", o.Node, "error", err)
	}
	l.metrics.binding(done.Outcome)
	return done
}

func (l *loop) resolve(ctx context.Context, o event.ResolveBinding) event.Event {
	fault.CrashSoon(fault.ResolveSent)
	pod := kube.Pod{Namespace: o.Namespace, Name: o.Name, UID: o.Row.PodUID}
	resolve := func() (kube.Resolution, error) { return l.clients.Resolve(ctx, pod, o.ResourceVersion, o.Value) }
	if o.Answered {
		resolve = func() (kube.Resolution, error) { return l.clients.Look(ctx, pod) }
	}
	found, err := resolve()
	if err == nil {
		fault.Crash(fault.ResolveAnswered)
	}
	if err != nil {
		l.log.Warn("cannot resolve the outcome of a Binding, retrying", "pod", o.Namespace+"/"+o.Name, "error", err)
	}
	return effect.ResolveDone(o, effect.Found(found), err)
}

// evict evicts a pod if the control store still says what the core decided under.
func (l *loop) evict(ctx context.Context, o event.EvictPod) error {
	says, err := l.process.Store.ReservationEvicts(ctx, o.Bucket, o.GangUID, o.Attempt, o.UID)
	if err != nil {
		return err
	}
	if err := effect.MayEvict(o, says); err != nil {
		return err
	}
	return l.clients.Evict(ctx, kube.Pod{Namespace: o.Namespace, Name: o.Name, UID: o.UID}, o.Message)
}

func (l *loop) written(what string, id uint64, version string, err error) event.Event {
	switch {
	case err == nil:
	case what == "eviction": // others may wait for it
		l.log.Warn("eviction not accepted, trying again", "error", err)
	default:
		l.log.Debug("write not accepted", "what", what, "error", err)
	}
	done := effect.StatusWritten(id, version, err)
	l.metrics.write(what, done.Outcome)
	return done
}

// readStore reads until it succeeds, or a newer question replaces it.
func (l *loop) readStore(ctx context.Context, o event.ReadStore) {
	for ctx.Err() == nil {
		read, err := l.process.Store.ReadForTakeover(ctx, o.MinRevision, o.Buckets)
		if err == nil {
			for _, bad := range read.Corrupt {
				l.log.Error("cannot decode a control store record, leaving its subject untouched", "key", bad.Key, "error", bad.Err)
			}
			fault.Crash(fault.TakeoverRead)
			l.post(ctx, effect.StoreRead(o.Sequence, read))
			return
		}
		if errors.Is(err, context.Canceled) {
			return
		}
		l.log.Warn("cannot read the control store, retrying", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func span(o event.Span) api.Span {
	s := api.Span{Name: o.Name, Start: o.Start, End: o.End}
	copy(s.TraceID[:], o.TraceID)
	copy(s.SpanID[:], o.SpanID)
	copy(s.ParentID[:], o.Parent)
	for _, a := range o.Attributes {
		s.Attributes = append(s.Attributes, api.Attribute{Key: a.Key, Value: a.Value.String()})
	}
	if o.Failed != "" {
		s.Attributes = append(s.Attributes, api.Attribute{Key: "error.message", Value: o.Failed})
	}
	return s
}

// hasStarted reports whether the cores may be asked.
func (l *loop) hasStarted() bool {
	select {
	case <-l.started:
		return true
	default:
		return false
	}
}

// status answers `basalt status`.
func (l *loop) status(ctx context.Context) (*wire.StatusReply, error) {
	if !l.hasStarted() {
		return nil, errNotStarted
	}
	var reply *wire.StatusReply
	err := l.ask(ctx, func() { reply = l.describe() })
	return reply, err
}

// describe runs on the loop's goroutine.
func (l *loop) describe() *wire.StatusReply {
	reply := l.cores.Home.Status()
	reply.Name, reply.Incarnation, reply.Role = l.process.Name, string(l.self), "shard"
	reply.SinceUnixMs = l.process.Began.UnixMilli()
	reply.Summary, reply.Intents = l.cores.Node.Summary(), uint32(l.cores.Node.Stats().Rows)
	return reply
}
