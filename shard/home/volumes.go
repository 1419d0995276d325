package home

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/home/report"
)

// Volumes that are bound once the nodes of their pods are decided (WaitForFirstConsumer): the step between Commit and Bind. kube-scheduler
// binds volumes pod by pod, so a gang of which one volume cannot be provisioned runs in part. Here the volumes of a whole gang are bound
// before any of its pods: when all of its Commits are prepared, each shard is sent Prepare until Bind or Withdraw follows, which also keeps
// it prepared; and Bind follows when each has answered Ready.
//
// A gang of which a volume fails starts over as a whole, for nothing of it is bound. Volumes that were bound stay with their claims, and
// decide where the pods can go next. Pods that join a started gang are bound without those of which a volume failed.
//
// A gang whose volumes fail one time after another gives its reservation back after each try, once that has lasted
// for as long as a gang may search for room, and waits before the next one, for longer each time, whatever room is
// freed: others of its queue must not wait for a provisioner that is broken. And nobody is evicted for it for a
// while: that a volume can be had is known only when the node is decided, and by then others have left. So a broken
// provisioner costs one eviction, then one after 10 minutes, 20, and so on, up to a day. This is remembered with the
// gang alone: an heir learns it anew.
//
// Volumes that are made by hand are scarce in another way: a gang may ask for more than there are. That is known before, so it waits, and
// requests nothing (lacksVolumes).

// volumes is how far the volumes of a commit's pods are.
type volumes struct {
	step    volumesStep
	prepare call
	failed  []*wire.VolumeFailure
}

// volumesStep is how far they are.
type volumesStep uint8

const (
	nothingToBind volumesStep = iota
	toBind                    // some of its pods have volumes to be bound,
	answered                  // and its shard has answered
)

// trouble is what a gang remembers of tries that its volumes failed, until one succeeds.
type trouble struct {
	distrust
	since time.Time // of the first one
	tries int       // after which it gave its reservation back
}

// volumesReady has the volumes of a gang bound of which all Commits are prepared, and reports whether all of them are. When one has
// failed, or they take too long, the gang starts over.
func (c *Core) volumesReady(g *gang) bool {
	if !slices.ContainsFunc(g.commits, func(cm *commit) bool { return cm.step != nothingToBind }) {
		return true
	}
	if g.volumesSince.IsZero() {
		g.volumesSince, g.volumesTold = c.now, 0
	}
	c.searchers.freeSlot(g) // others may search meanwhile
	waiting, pods := 0, 0
	var failed *wire.VolumeFailure
	for _, cm := range g.commits {
		if cm.waitsForVolumes() {
			waiting++
			pods += len(cm.pods)
		}
		if failed == nil && len(cm.failed) > 0 {
			failed = cm.failed[0]
		}
	}
	limit := g.volumesSince.Add(c.cfg.VolumesWithin)
	switch {
	case waiting > 0 && c.now.Before(limit):
		c.wakeAt(g, limit)
		g.block(report.VolumesAwaited(pods, g.awaitsVolumes()))
		c.reports.tellVolumes(g)
		for _, cm := range g.commits {
			c.sendPrepare(g, cm)
		}
		return false
	case waiting > 0:
		g.block(report.VolumesLate(c.cfg.VolumesWithin, g.awaitsVolumes()))
	case failed != nil:
		g.block(g.volumeFailed(failed))
	default:
		g.unblock()
		g.trouble = trouble{}
		return true
	}
	c.troubled(g)
	if waiting > 0 || !c.now.Before(g.trouble.since.Add(g.searchFor(c.cfg.GiveUpAfter))) {
		c.retreat(g, noVolumes)
	} else {
		c.retreat(g, edited) // so that it does not start over without a pause
	}
	return false
}

// troubled takes note that a gang does not start because of its volumes, as g.blocked says.
func (c *common) troubled(g *gang) {
	x := &g.trouble
	if x.since.IsZero() {
		x.since = c.now
	}
	x.fails(c.now, "its volumes could not be bound: "+g.blocked.Message, g.charge.claimed(), g.charge.attempt)
}

// lacksVolumes says that the claims of a gang's pods ask for more volumes than there are, where no others are provisioned: fewer pods than
// its minimum could have theirs. It says nothing where that is not certain.
func (g *gang) lacksVolumes() report.Reason {
	t := &g.tally
	if t.scarce == 0 {
		return report.Reason{}
	}
	type kind struct{ class, asks string }
	type demand struct {
		claims map[string]bool
		pods   int
		most   int // claims of one pod
		free   int
	}
	all := map[kind]*demand{}
	var order []kind
	for _, p := range g.pick((*pod).candidate) {
		of := map[kind]int{}
		for _, s := range p.Scarce {
			k := kind{s.Class, s.Asks}
			d := all[k]
			if d == nil {
				d = &demand{claims: map[string]bool{}}
				all[k] = d
				order = append(order, k)
			}
			if d.claims[s.Claim], d.free = true, max(d.free, s.Free); of[k] == 0 {
				d.pods++
			}
			of[k]++
			d.most = max(d.most, of[k])
		}
	}
	for _, k := range order {
		d := all[k]
		lacking := len(d.claims) - d.free
		if without := (lacking + d.most - 1) / d.most; lacking > 0 && g.tally.placed+t.candidates-without < g.minCount() {
			return report.TooFewVolumes(d.pods, len(d.claims), k.class, d.free)
		}
	}
	return report.Reason{}
}

// sendPrepare repeats more often than PreparedLimit allows, also where all is ready: the commit stays prepared by it.
func (c *common) sendPrepare(g *gang, cm *commit) {
	if c.due(g, &cm.prepare, c.cfg.AskAgain, 3*c.cfg.AskAgain) {
		c.send(cm.shard, &wire.Envelope{Body: &wire.Envelope_Prepare{Prepare: &wire.Prepare{GangUid: g.id, Serial: cm.serial}}})
	}
}

// fillVolumes has the volumes of pods bound that join a gang of which others are bound, and reports whether Bind may follow. Bind gives
// those up that are not ready.
func (c *searchers) fillVolumes(g *gang, cm *commit) bool {
	if !cm.waitsForVolumes() {
		cm.cleared = told
		return true
	}
	if limit := cm.at.Add(c.cfg.VolumesWithin); c.now.Before(limit) {
		c.wakeAt(g, limit)
		c.sendPrepare(g, cm)
		return false
	}
	words := g.awaitsVolumes()
	cm.step, cm.cleared = answered, told
	g.block(report.VolumesLate(c.cfg.VolumesWithin, words))
	c.pauseForVolumes(g)
	return true
}

// tiedFirst puts the pods first that their volumes keep to few nodes: others would take the capacity there.
func tiedFirst(pods []*pod) {
	slices.SortStableFunc(pods, func(a, b *pod) int { return cmp.Compare(b.Tied, a.Tied) })
}

// apart separates pods that may be bound at once, if any may, from those whose volumes come first.
func apart(pods []*pod, atOnce bool) [][]*pod {
	if !atOnce || !slices.ContainsFunc(pods, func(p *pod) bool { return p.Unbound }) {
		return [][]*pod{pods}
	}
	var plain, unbound []*pod
	for _, p := range pods {
		if p.Unbound {
			unbound = append(unbound, p)
		} else {
			plain = append(plain, p)
		}
	}
	return [][]*pod{plain, unbound}
}

// pauseForTrouble has a gang that gave its reservation back wait for longer after each try.
func (c *searchers) pauseForTrouble(g *gang) {
	c.pauseLonger(g, c.cfg.BackoffMax, g.trouble.tries, c.cfg.RetryRoom)
	g.trouble.tries++
}

// pauseForVolumes has a started gang wait before it places those pods again of which a volume failed.
func (c *searchers) pauseForVolumes(g *gang) {
	c.pauseLonger(g, c.cfg.BackoffMin, g.volumesFailed, c.cfg.BackoffMax)
	g.volumesFailed++
}

func (g *gang) volumeFailed(f *wire.VolumeFailure) report.Reason {
	name := g.name.String()
	if p := g.members[f.GetPodUid()]; p != nil {
		name = p.Namespace + "/" + p.Name
	}
	return report.VolumesFailed(fmt.Sprintf("pod %s: %s", name, f.GetWhy()))
}

func (c *searchers) onReady(from api.Incarnation, m *wire.Ready) {
	g := c.gangs[m.GetGangUid()]
	if g == nil {
		return
	}
	i := slices.IndexFunc(g.commits, func(cm *commit) bool { return cm.serial == m.GetSerial() && cm.shard == from })
	if i < 0 {
		return
	}
	cm := g.commits[i]
	if !cm.waitsForVolumes() || !cm.prepared() {
		return
	}
	cm.step, cm.failed = answered, m.GetFailed()
	switch {
	case len(cm.failed) == 0:
		g.volumesFailed = 0
	case g.state != preparing:
		g.block(g.volumeFailed(cm.failed[0]))
		c.pauseForVolumes(g)
	}
	c.mark(g)
}
