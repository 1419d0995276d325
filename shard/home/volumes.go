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

// volumes is how far the volumes of a commit's pods are.
type volumes struct {
	unbound bool // some of its pods have volumes to be bound
	prepare call
	ready   bool // its shard has answered
	failed  []*wire.VolumeFailure
}

// waitsForVolumes reports whether a commit's pods have volumes that are not known to be bound or to have failed.
func (cm *commit) waitsForVolumes() bool { return cm.unbound && !cm.ready }

// volumesReady has the volumes of a gang bound of which all Commits are prepared, and reports whether all of them are. When one has
// failed, or they take too long, the gang starts over.
func (c *Core) volumesReady(g *gang) bool {
	if !slices.ContainsFunc(g.commits, func(cm *commit) bool { return cm.unbound }) {
		return true
	}
	if g.volumesSince.IsZero() {
		g.volumesSince = c.now
	}
	c.freeSlot(g) // others may search meanwhile
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
		g.blocked = report.VolumesAwaited(pods)
		for _, cm := range g.commits {
			c.sendPrepare(g, cm)
		}
		return false
	case waiting > 0:
		g.blocked = report.VolumesLate(c.cfg.VolumesWithin)
	case failed != nil:
		g.blocked = c.volumeFailed(g, failed)
	default:
		g.blocked = report.Reason{}
		g.volumesSince = time.Time{}
		return true
	}
	g.volumesSince = time.Time{}
	c.retreat(g, edited) // so that it does not start over without a pause
	return false
}

// sendPrepare repeats more often than PreparedLimit allows, also where all is ready: the commit stays prepared by it.
func (c *Core) sendPrepare(g *gang, cm *commit) {
	if c.due(g, &cm.prepare, c.cfg.AskAgain, 3*c.cfg.AskAgain) {
		c.send(cm.shard, &wire.Envelope{Body: &wire.Envelope_Prepare{Prepare: &wire.Prepare{GangUid: g.id, Serial: cm.serial}}})
	}
}

// fillVolumes has the volumes of pods bound that join a gang of which others are bound, and reports whether Bind may follow. Bind gives
// those up that are not ready.
func (c *Core) fillVolumes(g *gang, cm *commit) bool {
	if !cm.waitsForVolumes() {
		cm.told = true
		return true
	}
	if limit := cm.at.Add(c.cfg.VolumesWithin); c.now.Before(limit) {
		c.wakeAt(g, limit)
		c.sendPrepare(g, cm)
		return false
	}
	cm.ready, cm.told = true, true
	g.blocked = report.VolumesLate(c.cfg.VolumesWithin)
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

// pauseForVolumes has a started gang wait before it places those pods again of which a volume failed.
func (c *Core) pauseForVolumes(g *gang) {
	c.pauseUntil(g, c.now.Add(min(c.cfg.BackoffMin<<min(g.volumesFailed, 8), c.cfg.BackoffMax)))
	g.volumesFailed++
}

func (c *Core) volumeFailed(g *gang, f *wire.VolumeFailure) report.Reason {
	name := g.name.String()
	if p := g.members[f.GetPodUid()]; p != nil {
		name = p.Namespace + "/" + p.Name
	}
	return report.VolumesFailed(fmt.Sprintf("pod %s: %s", name, f.GetWhy()))
}

func (c *Core) onReady(from api.Incarnation, m *wire.Ready) {
	g := c.gangs[m.GetGangUid()]
	if g == nil {
		return
	}
	i := slices.IndexFunc(g.commits, func(cm *commit) bool { return cm.serial == m.GetSerial() && cm.shard == from })
	if i < 0 {
		return
	}
	cm := g.commits[i]
	if !cm.unbound || cm.ready || !cm.prepared {
		return
	}
	cm.ready, cm.failed = true, m.GetFailed()
	switch {
	case len(cm.failed) == 0:
		g.volumesFailed = 0
	case g.state != preparing:
		g.blocked = c.volumeFailed(g, cm.failed[0])
		c.pauseForVolumes(g)
	}
	c.mark(g)
}
