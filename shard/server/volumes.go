package server

import (
	"context"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/build"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/relay"
	"basalt.dev/basalt/shard/effect"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home"
	"basalt.dev/basalt/shard/volumes"
)

// storage runs the volumes core on a goroutine of its own, between the watches and the loop: to reduce all pods of a
// list takes long.
type storage struct {
	core  *volumes.Core
	inbox chan []event.Event
	post  func([]event.Event) // what the other cores are told
	write func(event.Output)  // starts a write; its answer comes to the inbox
}

// storageInbox is how many batches of events may wait.
const storageInbox = 64

func newStorage(rules api.Rules, post func([]event.Event), write func(event.Output)) *storage {
	return &storage{core: volumes.New(volumes.Config{Rules: rules, Keeps: home.Keeps}), inbox: make(chan []event.Event,
		storageInbox),
		post: post, write: write}
}

// take hands events to the core, waiting while its inbox is full.
func (s *storage) take(ctx context.Context, events ...event.Event) {
	if len(events) == 0 {
		return
	}
	select {
	case s.inbox <- events:
	case <-ctx.Done():
	}
}

// run steps the core.
func (s *storage) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due := time.Hour
		if at := s.core.Due(); !at.IsZero() {
			due = time.Until(at)
		}
		timer.Reset(due)
		select {
		case <-ctx.Done():
			return
		case events := <-s.inbox:
			s.step(events...)
		case <-timer.C:
			s.step(event.Tick{})
		}
	}
}

// step gives the core events that came together. It tells together what they mean for the other cores.
func (s *storage) step(events ...event.Event) {
	told := make([]event.Event, 0, len(events))
	for _, ev := range events {
		s.core.Step(fault.Now(), ev)
		for _, o := range s.core.Outputs() {
			if tell, is := o.(event.Tell); is {
				told = append(told, tell.Event)
			} else {
				s.write(o)
			}
		}
	}
	if len(told) > 0 {
		s.post(told)
	}
}

// writeVolume starts a write that the volumes core asks for.
func (l *loop) writeVolume(o event.Output) {
	switch o := o.(type) {
	case event.SelectNode:
		l.volumes.do(o.Claim.Namespace, func(ctx context.Context) {
			version, err := l.clients.SelectNode(ctx, o.Claim, o.Node)
			l.volumeWritten(ctx, o.ID, version, err)
		})
	case event.KeepVolume:
		l.volumes.do(o.Claim.Namespace, func(ctx context.Context) {
			version, err := l.clients.KeepVolume(ctx, o.Volume, o.Claim)
			l.volumeWritten(ctx, o.ID, version, err)
		})
	}
}

func (l *loop) volumeWritten(ctx context.Context, id uint64, version string, err error) {
	if err != nil {
		l.log.Debug("write not accepted", "what", "volume", "error", err)
	}
	l.watches.storage.take(ctx, effect.VolumeWritten(id, version, err))
}

// feed makes a follower of objects that the volumes core hears of.
func feed[T runtime.Object](ctx context.Context, w *watches, client rest.Interface, resource string,
	strip func(T) T) *kube.Follower[T] {
	f := kube.Follow(client, resource, w.log, feeding[T](ctx, w.storage))
	relayed(w, f, strip, pace)
	return f
}

// feeding hands on what a follower sees, as it came together.
func feeding[T runtime.Object](ctx context.Context, s *storage) kube.Handler[T] {
	var out []event.Event
	return kube.Handler[T]{
		Replaced: func(list []T, ticket kube.Ticket) {
			out = append(out, event.Listed[T]{Objects: list, Ticket: uint64(ticket)})
		},
		Seen: func(o T) { out = append(out, event.Changed[T]{Object: o}) },
		Gone: func(o T) { out = append(out, event.Changed[T]{Object: o, Gone: true}) },
		Packed: func(of any, gone bool) {
			out = append(out, event.Changed[*api.Pod]{Object: of.(*api.Pod), Gone: gone}) // only pods are packed
		},
		Current: func(ticket kube.Ticket) { out = append(out, event.CaughtUp[T]{Ticket: uint64(ticket)}) },
		Flush: func() {
			s.take(ctx, out...)
			out = make([]event.Event, 0, len(out)) // the next ones will be about as many
		},
	}
}

// followPods makes the follower of pods. Those that depend on no other object are reduced by one shard for all.
func (w *watches) followPods(ctx context.Context, client rest.Interface) {
	w.pods = kube.Follow(client, "pods", w.log, feeding[*corev1.Pod](ctx, w.storage))
	w.pods.Strip(w.rules.StripPod)
	relay.AttachPacked(w.relay, w.pods, podPace, packing(w.rules))
}

// packing is how pods are sent to shards of the same build with the same rules.
func packing(rules api.Rules) relay.Packing[*corev1.Pod] {
	return relay.Packing[*corev1.Pod]{
		Form: api.PackedForm(build.Current().String(), rules),
		Packer: func() func(*corev1.Pod) *relay.Pack {
			var classes api.Classes
			return func(p *corev1.Pod) *relay.Pack {
				if len(p.Spec.Volumes) > 0 {
					return nil
				}
				pod := classes.FromPod(p, nil, rules)
				if !api.Packable(p, pod) {
					return nil
				}
				b := api.PackPod(nil, pod)
				return &relay.Pack{Bytes: b, Settled: pod.Node != "", ID: api.PodID(pod.UID),
					Hash: xxhash.Sum64(api.PackedBody(b))}
			}
		},
		Reader: func() func([]byte) (*kube.Packed, error) {
			var u api.Unpacker
			return func(b []byte) (*kube.Packed, error) {
				p, err := u.Pod(b)
				if err != nil {
					return nil, err
				}
				return &kube.Packed{Version: p.ResourceVersion, Namespace: p.Namespace, Name: p.Name, Of: p}, nil
			}
		},
	}
}

// followDevices follows DeviceClasses for as long as the API server serves them. listed is called when they were
// listed, or there are none.
func (w *watches) followDevices(ctx context.Context, listed func()) {
	w.clients.WhileServed(ctx, w.log, resourcev1.SchemeGroupVersion, "deviceclasses", func(served context.Context) {
		f := feed(ctx, w, w.clients.Core.ResourceV1().RESTClient(), "deviceclasses", volumes.StripDeviceClass)
		var wg sync.WaitGroup
		wg.Go(func() { f.Run(served) })
		select {
		case <-f.Synced():
			listed()
		case <-served.Done():
		}
		wg.Wait()
		w.storage.take(ctx, event.Listed[*resourcev1.DeviceClass]{})
	}, listed)
}
