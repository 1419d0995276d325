package home

import (
	"cmp"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/home/intake"
)

// Whose the bound pods of the cluster are, of gangs of this shard and of others. Node shards go by LabelGang alone,
// which may name another gang: a PodGroup was made again under its pods, or somebody else bound a pod, or edited the
// label. Such strays are named to node shards beside their gang.

// gangOf returns the UID of the gang that a bound pod counts for, as far as this shard knows. Where another shard has
// the gang, a pod moves to a PodGroup that was made again as it does there (movesTo): of that, nothing comes here.
func (c *common) gangOf(p *pod) string {
	if p.gang != nil {
		return p.gang.id
	}
	of := cmp.Or(p.pinned, p.Gang, p.UID)
	g := c.objects.Group(p.InGroup)
	if g == nil || of == g.UID || of == p.UID || !c.meantFor(p, g) {
		return of
	}
	queue, known, _ := c.objects.GroupQueue(g)
	if was, gone := c.goneGroups.get(of); !known || gone && was != "" && was != queue {
		return of
	}
	return g.UID
}

// meantFor reports whether a pod that was bound for an earlier PodGroup is this one's. Times of creation are whole
// seconds.
func (c *common) meantFor(p *pod, g *intake.Group) bool {
	switch {
	case p.Node == "":
		return false
	case g.Name.Kind == api.VolcanoGroup:
		return true
	}
	return p.Created.After(g.Created.Truncate(time.Second)) ||
		!p.Deleting && !p.Finished && !c.now.Before(g.Seen.Add(outlives))
}

// outlives is how long after a PodGroup was first seen a pod of an earlier one by its name still has to be there. The
// garbage collector deletes the pods of a controller that is deleted within seconds.
const outlives = 10 * time.Second

// boundGang is what of a gang has a node.
type boundGang struct {
	grace  time.Duration // the longest that one of its pods may take to leave
	strays []string      // pods of it which node shards, going by LabelGang, take for another one's
}

// boundGangs are the gangs that have bound pods. It is a look at all pods of the cluster, so one a second serves all
// claims.
func (c *evictions) boundGangs() map[string]*boundGang {
	if c.bound != nil && c.now.Before(c.boundAt.Add(c.cfg.AskAgain)) {
		return c.bound
	}
	c.boundAt, c.bound = c.now, map[string]*boundGang{}
	for _, p := range c.pods {
		if !p.isBound() {
			continue
		}
		of := c.gangOf(p)
		g := c.bound[of]
		if g == nil {
			g = &boundGang{}
			c.bound[of] = g
		}
		g.grace = max(g.grace, time.Duration(p.GraceSeconds)*time.Second)
		if cmp.Or(p.Gang, p.UID) != of {
			g.strays = append(g.strays, p.UID)
		}
	}
	for _, g := range c.bound {
		slices.Sort(g.strays)
	}
	return c.bound
}

// straysAtMost bounds the pods that a question or request to node shards names with their gangs.
const straysAtMost = 1024

// strays returns the strays of some gangs, of the first ones first.
func (c *evictions) strays(gangs []string) (out []string) {
	bound := c.boundGangs()
	for _, uid := range gangs {
		if g := bound[uid]; g != nil {
			out = append(out, g.strays[:min(len(g.strays), straysAtMost-len(out))]...)
		}
	}
	return out
}
