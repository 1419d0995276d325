package sim

import (
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	volcanov1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/doors/volcano"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/cache"
	"basalt.dev/basalt/shard/cores"
	"basalt.dev/basalt/shard/effect"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home"
	"basalt.dev/basalt/shard/node"
	"basalt.dev/basalt/shard/volumes"
)

const (
	leaseTTL    = 3 * time.Second
	storeTry    = 5 * time.Second
	apiPatience = 10 * time.Second
)

// errNoAnswer is what a client of the API server returns when no answer comes.
var errNoAnswer = errors.New("no answer")

// shard is what shard/server is around its cores.
type shard struct {
	*process
	cores     *cores.Cores
	log       *follower
	logTicket uint64 // of the list that is begun after the log was read anew
	relisted  bool   // it is awaited

	inside     bool
	held       *held
	session    *protocol.Session // nil before it registered
	tables     *follower
	pods       *watcher
	listing    event.ListPods
	ticket     uint64
	told       bool                 // listing is answered
	bound      map[string]time.Time // pods with a node, by UID -> when it was first shown them
	shown      map[string]*api.Pod  // by the watch; only with a fault that needs it
	volumes    *volumes.Core
	volumesDue time.Time                    // then it is stepped
	unheard    []event.Event                // what it is told a little later
	labels     map[string]map[string]string // of nodes, as they were shown
	sent       map[string]map[string]sentTo // by gang, pods that its home committed -> their domain then
	early      func()                       // with fault.PodsFirst: what waits for the next list
	kept       *event.PodsReplaced          // likewise: that list, until it is asked for; the watch goes on after it
	ticks      int
	tickDue    bool
	leaving    bool
	writes     bool      // the statuses of Volcano's PodGroups, as far as it heard
	due        time.Time // then the node core is stepped
}

func (w *world) startShard(name string) *shard {
	x := &shard{process: w.newProcess(name), labels: map[string]map[string]string{}, sent: map[string]map[string]sentTo{}}
	h := home.Config{Strict: true, LargeGang: 2, RollForward: w.load.rollForward}
	n := node.Config{Strict: true, Policy: cache.Policy(x.die.below(2)), WriteEvery: w.load.gatherIntents}
	if w.load.shardLimits == "small" {
		x.small(&h, &n)
	}
	x.cores = cores.New(x.inc, h, n)
	x.volumes = volumes.New(volumes.Config{Rules: w.api.PodRules, Keeps: home.Keeps})
	w.shards = append(w.shards, x)
	w.log("%s starts", x.inc)
	x.onDeath = func() {
		w.shards = slices.DeleteFunc(w.shards, func(o *shard) bool { return o == x })
		w.load.shardEnded(x)
	}
	x.showNamespace()
	x.step(event.PriorityClassSeen{Name: "high", Value: int64(highPriority)})
	synced, lists := 0, 4
	if w.load.doors {
		lists++
	}
	first := func() {
		if synced++; synced == lists {
			x.register()
		}
	}
	x.followLog(first)
	if w.load.volumes {
		lists += 2
		x.followStorage(first)
	}
	x.watch(w.api.nodes, &watcher{
		seen: func(o object) {
			x.labels[o.GetName()] = o.GetLabels()
			x.reduce(event.NodeSeen{Node: api.FromNode(o.Object.(*corev1.Node), nil)})
		},
		gone: func(o object) {
			delete(x.labels, o.GetName())
			x.reduce(event.NodeGone{Name: o.GetName()})
		},
		first: first,
	})
	x.watch(w.api.queues, &watcher{
		seen:  func(o object) { x.step(event.QueueSeen{Queue: o.Object.(*v1beta1.Queue)}) },
		gone:  func(o object) { x.step(event.QueueGone{Name: o.GetName(), UID: string(o.GetUID())}) },
		first: first,
	})
	x.watch(w.api.groups, &watcher{
		seen: func(o object) { x.step(event.PodGroupSeen{PodGroup: o.Object.(*v1beta1.PodGroup)}) },
		gone: func(o object) {
			x.step(event.PodGroupGone{UID: string(o.GetUID()), Namespace: o.GetNamespace(), Name: o.GetName()})
		},
		first: first,
	})
	if w.load.doors {
		x.watch(w.api.volcano, &watcher{
			seen: func(o object) {
				as, more := volcano.Group(o.Object.(*volcanov1beta1.PodGroup), nil, nil)
				x.step(event.PodGroupSeen{PodGroup: as, Foreign: more})
			},
			gone: func(o object) {
				x.step(event.PodGroupGone{UID: string(o.GetUID()), Namespace: o.GetNamespace(), Name: o.GetName(), Kind: api.VolcanoGroup})
			},
			first: first,
		})
		x.hearLease()
	}
	x.later(w.between(0, 100*time.Millisecond), x.tick)
	return x
}

// small draws limits that ordinary gangs meet.
func (x *shard) small(h *home.Config, n *node.Config) {
	below := x.die.below
	h.InFlight, h.CommitPods, h.HoldPods, h.LargeGang = 4, 1+below(4), 1+below(3), below(3)
	n.MaxRows, n.MaxFences, n.MaxDeletes, n.MaxRewrites, n.MaxResolving = 3, 2, 2, 2, 3
	n.MaxNamed, n.MaxBytes = 1+below(2), 100*below(4)
}

func (x *shard) showNamespace() {
	x.step(event.NamespaceSeen{Name: "ns", Labels: x.w.load.namespaceLabels()})
}

func (x *shard) record(draining bool) *wire.ShardRecord {
	return &wire.ShardRecord{Incarnation: string(x.inc), Name: x.name, Address: string(x.inc), Draining: draining}
}

// register puts its record under a lease and then follows what it needs to be given anything.
func (x *shard) register() {
	m, err := protocol.NewRegistration(keys, x.record(false))
	if err != nil {
		x.w.fail("%s: %v", x.inc, err)
	}
	x.acquire(m, nil, func(h *held) {
		x.held, x.session = h, m.Session()
		if h.ended = func(error) { x.endSoon(protocol.ErrSessionLost) }; h.over {
			h.ended(nil)
			return
		}
		x.registered()
	})
}

func (x *shard) registered() {
	x.follow(x.w.store.members, func(v any) {
		clear(x.book)
		for _, r := range v.([]*wire.ShardRecord) {
			x.book[api.Incarnation(r.Incarnation)] = true
		}
	})
	x.follow(x.w.store.leaders, func(v any) {
		l := v.(leading)
		x.leader = l.inc
		x.step(event.CoordinatorSeen{Term: l.term, Incarnation: l.inc})
	})
	x.tables = x.follow(x.w.store.tables, func(v any) {
		if t := v.(*api.Table); t != nil {
			x.step(event.TableSeen{Table: t})
		}
	})
}

// endSoon ends the process for a reason of its own. Only the loss of its session is one: neither is another store opened here,
// nor is a write given up.
func (x *shard) endSoon(why error) {
	if !errors.Is(why, protocol.ErrUnsettled) && !errors.Is(why, protocol.ErrSessionLost) || errors.Is(why, protocol.ErrSessionLost) && x.w.store.leases[x.held.ID()] != nil {
		x.w.fail("I12: %s ends, and it still holds its session: %v", x.inc, why)
	}
	x.later(x.w.between(0, 20*time.Millisecond), func() { x.end("its session is over") })
}

// leave gives the session back and ends.
func (x *shard) leave() {
	x.leaving = true
	if x.held == nil {
		x.end("stopped")
		return
	}
	x.held.revoke(storeTry, func() { x.end("stopped") })
}

// drain says in its record that it gives its buckets away.
func (x *shard) drain() {
	m, err := x.session.Update(x.record(true))
	if err != nil {
		x.w.fail("%s: %v", x.inc, err)
	}
	x.drive("lease", m, never, func(error) {})
}

func (x *shard) hear(from api.Incarnation, body *wire.Envelope) {
	if from == x.leader {
		from = event.ToCoordinator
	}
	x.step(event.Message{From: from, Body: body})
}

func (x *shard) tick() {
	x.later(100*time.Millisecond, x.tick)
	x.step(event.Tick{})
	if x.ticks++; x.ticks%50 == 0 && !x.dead {
		if err := x.cores.Check(); err != nil {
			x.w.fail("%s: %v", x.inc, err)
		}
	}
}

// maxSaid is how much the two cores of a process may say to each other about one event.
const maxSaid = 10000

func (x *shard) step(ev event.Event) {
	x.cores.Put(ev)
	if x.inside {
		return
	}
	x.inside = true
	x.cores.Put(event.Drained{}) // as when nothing else waits
	for said := 0; x.cores.Waiting() > 0 && !x.dead; said++ {
		if said > maxSaid {
			x.w.fail("%s: its cores do not stop talking to each other", x.inc)
		}
		ev := x.cores.Take()
		if m, ok := ev.(event.Message); ok {
			x.unsent(m.Body)
		}
		x.cores.Step(x.w.now, ev, func(o event.Output) bool {
			x.w.output(x.inc, o)
			if x.burn() {
				return false
			}
			x.carryOut(o)
			return true
		})
	}
	x.inside = false
	if at := x.cores.Node.Due(); !x.dead && !at.Equal(x.due) {
		if x.due = at; !at.IsZero() {
			x.later(at.Sub(x.w.now), func() {
				if x.due.Equal(at) {
					x.step(event.Drained{})
				}
			})
		}
	}
}

func (x *shard) carryOut(o event.Output) {
	w, a := x.w, x.w.api
	switch o := o.(type) {
	case event.Send:
		w.check.says(x, o)
		switch {
		case o.To == x.inc:
			if o.Body.GetSummary() == nil {
				w.log("%s -> itself: %s", x.inc, describe(o.Body))
			}
		case o.To == event.ToCoordinator:
			if x.leader != "" {
				w.net.send(x.process, w.process(x.leader), o.Body)
			}
		case x.book[o.To]:
			w.net.send(x.process, w.process(o.To), o.Body)
		}

	case event.ReadStore:
		read := func() {
			w.log("%s reads the store", x.inc)
			x.read(o, func(ev event.StoreRead) {
				if ev.Revision < o.MinRevision {
					w.fail("%s asks for revision %d, the store is at %d", x.inc, o.MinRevision, ev.Revision)
				}
				x.step(ev)
			})
		}
		if fault.On(fault.PodsFirst) {
			x.early = read
			x.listPods()
			return
		}
		read()
	case event.ListPods:
		w.log("%s lists pods %d", x.inc, o.Sequence)
		x.listing, x.told = o, false
		if x.kept != nil { // fault.PodsFirst
			ev := *x.kept
			ev.Sequence, x.told, x.kept = o.Sequence, true, nil
			x.step(ev)
			x.pods.stalled, x.pods.due = time.Time{}, false
			x.pods.wake(w.between(0, 5*time.Second)) // it has yet to begin
			return
		}
		if x.pods != nil && x.pods.synced && fault.On(fault.PodsFromCache) {
			x.told = true
			ev := event.PodsReplaced{Sequence: o.Sequence}
			for _, uid := range slices.Sorted(maps.Keys(x.shown)) {
				ev.Pods = append(ev.Pods, x.shown[uid])
			}
			x.step(ev)
			return
		}
		x.listPods()

	case event.WriteIntents:
		x.writeIntents(o)
	case event.DeleteIntents:
		x.deleteIntents(o)
	case event.RewriteIntents:
		x.rewriteIntents(o)

	case event.BindPod:
		w.check.asksBinding(o)
		var done event.BindDone
		x.call(&a.server, "bind", apiPatience, func() {
			done = w.check.binding(x, o, func() error {
				return a.bind(bindingOf(o))
			})
		}, func(answered bool) {
			ev := done
			if !answered {
				ev = effect.BindDone(o, errNoAnswer)
			}
			x.step(ev)
		})
	case event.BindVolumes:
		x.toVolumes(o)
	case event.EndVolumes:
		x.toVolumes(o)
	case event.ResolveBinding:
		var done event.ResolveDone
		x.call(&a.server, "resolve", apiPatience, func() { done = a.resolve(o) }, func(answered bool) {
			ev := done
			if !answered {
				ev = effect.ResolveDone(o, effect.Found{}, errNoAnswer)
			}
			w.log("%s resolves the Binding of pod %s: %d %s", x.inc, o.Row.PodUID, ev.Outcome, ev.Node)
			x.step(ev)
		})
	case event.WriteQueueStatus:
		w.check.stamp("queue "+o.Queue+" "+o.UID, o.Queue, o.Status.Stamp)
		x.write(o.ID, func() event.StatusWritten { return a.replaceQueueStatus(o) })
	case event.WritePodGroupStatus:
		w.check.stamp("podgroup "+o.Name+" "+o.UID, o.Status.Queue, o.Status.Stamp)
		x.write(o.ID, func() event.StatusWritten { return a.replaceGroupStatus(o) })
	case event.WriteGroupStatus:
		x.writeVolcanoStatus(o)
	case event.WritePodCondition:
		x.write(o.ID, func() event.StatusWritten { return a.explain(o) })
	case event.EvictPod:
		w.log("%s evicts %s", x.inc, o.UID)
		w.check.asksToEvict(o.UID)
		x.evict(o)

	case event.Log:
		w.coreLog(x.inc, o.Level, o.Message, o.Attrs)
	case event.ObjectEvent:
		switch o.Reason {
		case v1beta1.ReasonRolledBack:
			w.count("gangs rolled back")
			w.log("%s: rolls back %s", x.inc, o.About.UID)
		case "EvictionRefused":
			w.count("gangs that go on with pods that stay")
		case "PartlyPlaced":
			w.count("gangs left in part")
		}
	case event.Remark:
	case event.Write: // nobody judges what it writes
		x.write(o.WriteID(), func() event.StatusWritten { return effect.StatusWritten(o.WriteID(), "", nil) })
	default:
		w.fail("output %T is not known", o)
	}
}

// listPods asks for a list that begins now; the first one begins the watch.
func (x *shard) listPods() {
	w := x.w
	if x.pods != nil {
		x.ticket = x.pods.relist()
		return
	}
	x.ticket = 1
	x.pods = x.watch(w.api.pods, &watcher{asked: 1,
		replaced: func(objects []object, ticket uint64) {
			list := make([]*corev1.Pod, len(objects))
			for i, o := range objects {
				list[i] = o.Object.(*corev1.Pod)
			}
			x.reduce(event.Listed[*corev1.Pod]{Objects: list, Ticket: ticket})
		},
		seen:    func(o object) { x.reduce(changedTo(o.Object.(*corev1.Pod))) },
		gone:    func(o object) { x.reduce(event.Changed[*corev1.Pod]{Object: o.Object.(*corev1.Pod), Gone: true}) },
		current: func(ticket uint64) { x.reduce(event.CaughtUp[*corev1.Pod]{Ticket: ticket}) },
	})
}

// seen is the last table that was delivered, nil for none.
func (f *follower) seen() *api.Table {
	if f == nil || f.next == 0 {
		return nil
	}
	t, _ := f.topic.history[f.next-1].(*api.Table)
	return t
}

func (x *shard) writeIntents(o event.WriteIntents) {
	m, err := x.session.WriteIntents(o.N, o.Record, o.TableRevision, effect.Fences(o))
	if err != nil {
		x.wrote(effect.IntentsWritten(o, protocol.WriteResult{}, err))
		return
	}
	x.drive("intents", m, never, func(err error) {
		if m.Outcome == protocol.TableMoved {
			x.tables.hurry()
		}
		w := effect.IntentsWritten(o, m.WriteResult, m.TooLarge(err))
		x.w.log("%s wrote intents %d: %d %v", x.inc, o.N, w.Event.(event.IntentsWritten).Outcome, m.Moved)
		x.wrote(w)
	})
}

func (x *shard) deleteIntents(o event.DeleteIntents) {
	m := x.session.DeleteIntents(effect.IntentKeys(x.inc, o))
	x.drive("tidy", m, never, func(error) {
		if m.Err != nil {
			x.w.fail("%s: delete intents: %v", x.inc, m.Err)
		}
		x.readable(m.Corrupt)
		x.wrote(effect.IntentsDeleted(m.Now(), m.Failed()))
	})
}

func (x *shard) rewriteIntents(o event.RewriteIntents) {
	m, err := x.session.RewriteIntents(effect.IntentKey(o), o.Record, o.TableRevision)
	if err != nil {
		x.wrote(effect.IntentsRewritten(o, protocol.RewriteResult{}, err))
		return
	}
	x.drive("tidy", m, never, func(err error) {
		x.readable(m.Corrupt)
		x.wrote(effect.IntentsRewritten(o, m.RewriteResult, m.TooLarge(err)))
	})
}

// wrote does what a write means for the process, and tells the cores. A process that is about to end may be faster than that.
func (x *shard) wrote(w effect.Write) {
	if w.End != nil {
		x.endSoon(w.End)
		if x.w.some(2) {
			return
		}
	}
	x.step(w.Event)
}

// read reads what an heir needs.
func (x *shard) read(o event.ReadStore, done func(event.StoreRead)) {
	m := protocol.NewReadTakeover(keys, o.Buckets)
	x.drive("read", m, never, func(error) {
		x.readable(m.Takeover.Corrupt)
		done(effect.StoreRead(o.Sequence, &m.Takeover))
	})
}

// readable makes sure that no record is corrupt: nobody else writes here.
func (p *process) readable(corrupt []protocol.Corrupt) {
	for _, c := range corrupt {
		p.w.fail("%s: key %q: %v", p.inc, c.Key, c.Err)
	}
}

// evict reads the pod's reservation first.
func (x *shard) evict(o event.EvictPod) {
	m := protocol.NewReadReservation(keys, o.Bucket, o.GangUID)
	x.drive("read", m, never, func(error) {
		x.readable(m.Corrupt)
		if err := effect.MayEvict(o, m.Evicts(o.Attempt, o.UID)); err != nil {
			x.w.count("evictions refused after a read")
			x.w.log("%s: %v", x.inc, err)
			x.step(effect.StatusWritten(o.ID, "", err))
			return
		}
		x.write(o.ID, func() event.StatusWritten { return x.w.api.evict(x.inc, o) })
	})
}

// write is a write of a status or the like: without an answer it failed.
func (x *shard) write(id uint64, do func() event.StatusWritten) {
	var done event.StatusWritten
	x.call(&x.w.api.server, "write", apiPatience, func() { done = do() }, func(answered bool) {
		ev := done
		if !answered {
			ev = effect.StatusWritten(id, "", errNoAnswer)
		}
		x.step(ev)
	})
}
