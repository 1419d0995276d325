package home

import (
	"fmt"
	"maps"

	"basalt.dev/basalt/api"
)

// Check says which invariant does not hold, for tests and the simulator: it walks everything.
func (c *Core) Check() error {
	slots, pods := 0, 0
	entering := map[kin]int{}
	for uid, g := range c.gangs {
		if g.id != uid || g.dropped() {
			return fmt.Errorf("gang %s is filed under %s, dropped %t", g.id, uid, g.dropped())
		}
		if !c.active[g.bucket] {
			return fmt.Errorf("gang %s is in queue %s, which is not ours", uid, g.queue)
		}
		if g.slot() {
			slots++
			pods += *g.search.slot
		}
		if of := g.search.entered; of != (kin{}) {
			entering[of]++
		}
		for pod, p := range g.members {
			if p.gang != g || p.UID != pod {
				return fmt.Errorf("gang %s has pod %s, which does not have it", uid, pod)
			}
			if p.hasRoom() && g.state == withdrawing && g.withdraw.rooms == roomsGo {
				return fmt.Errorf("gang %s withdraws, and counts on its hold of pod %s", uid, pod)
			}
			if p.charged && g.charge.current() && !g.charge.names(g, p) {
				return fmt.Errorf("pod %s is charged to gang %s, whose reservation does not name it", pod, uid)
			}
			if p.Namespace != g.name.Namespace {
				return fmt.Errorf("pod %s/%s is in gang %s of namespace %s", p.Namespace, p.Name, uid, g.name.Namespace)
			}
			if p.stage == committed && p.commit != nil && p.commit.shard != p.shard && p.shard != "" {
				return fmt.Errorf("pod %s is committed at %s by a commit at %s", pod, p.shard, p.commit.shard)
			}
		}
		if g.waitsForAnswer() && g.wake.IsZero() && g.look != dirty && !c.large[g] {
			return fmt.Errorf("gang %s is %s and waits for an answer, and nothing will ask again", uid, g.state)
		}
		if (g.state == withdrawing) != (g.withdraw != nil) {
			return fmt.Errorf("gang %s is %s, withdraws %t", uid, g.state, g.withdraw != nil)
		}
		if g.state == releasing && g.charge.open == nil {
			return fmt.Errorf("gang %s releases nothing", uid)
		}
	}
	if slots != c.searchers.inFlight || pods != c.searchers.podsInFlight {
		return fmt.Errorf("%d gangs with %d pods have a slot, %d with %d are counted", slots, pods,
			c.searchers.inFlight, c.searchers.podsInFlight)
	}
	if !maps.Equal(entering, c.rules.ruledSleepers.entering) {
		return fmt.Errorf("%v gangs of one pod have asked for quota and have no room, %v are counted", entering,
			c.rules.ruledSleepers.entering)
	}
	for uid, p := range c.pods {
		if p.gang != nil && (p.gang.members[uid] != p || c.gangs[p.gang.id] != p.gang) {
			return fmt.Errorf("pod %s has gang %s, which does not have it", uid, p.gang.id)
		}
	}
	if err := c.objects.Check(); err != nil {
		return err
	}
	if err := c.checkIndex(); err != nil {
		return err
	}
	if c.Broken > 0 {
		return fmt.Errorf("%d invariants were broken", c.Broken)
	}
	return nil
}

// waitsForAnswer reports whether a gang sent a request that may be lost. One whose Commits are all prepared waits for
// what it is to be judged against, for its volumes or for a version: watches bring them.
func (g *gang) waitsForAnswer() bool {
	commits := len(g.commits) > 0 && (g.state != preparing || !g.allPrepared())
	return g.charge.reserve != nil || g.charge.open != nil || commits || g.claim != nil || g.tally.promised > 0 ||
		g.withdraw != nil || g.search.round != nil
}

// checkIndex says what the index finds elsewhere than it is.
func (c *common) checkIndex() error {
	bucketOf := func(key string, known bool) int {
		if key == "" || !known {
			return -1
		}
		return int(api.BucketOf(key))
	}
	for _, g := range c.objects.Groups() {
		queue, known, _ := c.objects.GroupQueue(g)
		want, got := bucketOf(queue, known), -1
		if b, filed := c.index.of[g]; filed {
			got = int(b)
		}
		if got != want {
			return fmt.Errorf("group %s of queue %s is filed under bucket %d", g.Name, queue, got)
		}
	}
	if groups := len(c.objects.Groups()); len(c.index.of) > groups || len(c.index.ids) != len(c.pods) {
		return fmt.Errorf("%d groups and %d pods are filed, there are %d and %d", len(c.index.of), len(c.index.ids),
			groups, len(c.pods))
	}
	for uid, p := range c.pods {
		node := nodeOf(p.Pod)
		if got := int(p.spots.bucket[c.index.nodes.kind]) - 1; got != bucketOf(node, true) {
			return fmt.Errorf("pod %s of node %q is filed under bucket %d", uid, node, got)
		}
		queue, known := c.objects.PodQueue(p.Entry)
		got, grouped := int(p.spots.bucket[c.index.loose.kind])-1, c.objects.Group(p.InGroup) != nil
		if !grouped && got != bucketOf(queue, known) || grouped && got >= 0 && p.pinned == "" {
			return fmt.Errorf("pod %s of queue %s is filed under bucket %d, has a group: %t", uid, queue, got, grouped)
		}
		for _, s := range []*shelves{&c.index.nodes, &c.index.loose} {
			if b := p.spots.bucket[s.kind]; b > 0 && s.pods[b-1][p.spots.at[s.kind]] != p {
				return fmt.Errorf("pod %s is not where it says", uid)
			}
		}
	}
	return nil
}
