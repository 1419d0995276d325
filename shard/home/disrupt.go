package home

import (
	"log/slog"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home/disruption"
	"basalt.dev/basalt/shard/home/report"
)

// PodDisruptionBudgets are preferred against, never a veto: whoever may write one could keep what others deserve otherwise. Among
// candidates that are equal for the coordinator (Candidate.standing: one queue, one priority), those whose eviction exceeds a budget go
// last, and so do surplus pods of one gang among those of the same deletion cost. The claimant's home decides that, because it has seen all
// pods and budgets when it makes a plan: nothing of it is told to the coordinator, and nothing is durable. The home that evicts a pod
// counts it if a budget does not allow that, and says so.

// evictions asks for evictions, as PodDisruptionBudgets allow, and knows who has left.
type evictions struct {
	*common

	budgets  *disruption.Budgets      // disrupt.go
	unheeded recent[string, struct{}] // namespaces of which was logged that a PodDisruptionBudget is not heeded
	bound    map[string]*boundGang    // boundGangs,
	boundAt  time.Time                // and when
}

// maxIgnored bounds what is logged of a budget that is not heeded, in bytes.
const maxIgnored = 256

func (c *evictions) onBudgetSeen(b *api.DisruptionBudget) {
	if why := c.budgets.Seen(b); why != "" {
		if _, told := c.unheeded.get(b.Namespace); !told {
			c.unheeded.put(b.Namespace, struct{}{})
			c.log(slog.LevelWarn, "ignoring a PodDisruptionBudget; others of its namespace may be ignored, too",
				slog.String("budget", b.Namespace+"/"+b.Name), slog.String("reason", api.Shorten(why, maxIgnored)))
		}
	}
}

// victimPods returns the bound pods of a mandate's candidates which stay otherwise, by gang, in the order in which they go as surplus. It looks
// at all pods of the cluster, unless nothing depends on it: no candidate may lose single pods, or is in a namespace with budgets.
func (c *evictions) victimPods(candidates []*wire.Candidate) map[string][]*pod {
	out := map[string][]*pod{}
	for _, of := range candidates {
		if of.GetLeast() > 0 || c.budgets.Heeds(of.GetGang().GetNamespace()) {
			out[of.GetGang().GetUid()] = nil
		}
	}
	if len(out) == 0 {
		return nil
	}
	for _, p := range c.pods {
		if p.maySpare() {
			of := c.gangOf(p)
			if list, asked := out[of]; asked {
				out[of] = append(list, p)
			}
		}
	}
	for _, of := range candidates {
		pods := out[of.GetGang().GetUid()]
		pods = slices.DeleteFunc(pods, func(p *pod) bool { return slices.Contains(of.GetCondemned(), p.id) })
		slices.SortFunc(pods, func(a, b *pod) int { return api.CompareSurplus(a.Pod, b.Pod) })
		out[of.GetGang().GetUid()] = pods
	}
	return out
}

// inTurn returns the candidates of a mandate in the order in which they are to go: as the coordinator named them, but of those with the
// same standing the ones last whose eviction exceeds a budget. Pods are those of victimPods; those of gangs that may lose single ones are put
// in order, too. Alike has the same number for those between which nothing else decides.
func (c *evictions) inTurn(candidates []*wire.Candidate, pods map[string][]*pod) (_ []*wire.Candidate, alike []int) {
	look := c.budgets.Look(c.now)
	var places [][]int // by standing
	at := map[uint32]int{}
	exceeds := make([]bool, len(candidates))
	troubled := false
	for i, of := range candidates {
		if !c.budgets.Heeds(of.GetGang().GetNamespace()) {
			continue
		}
		mine := pods[of.GetGang().GetUid()]
		if of.GetLeast() > 0 {
			c.sortSurplus(mine)
		}
		exceeds[i] = !look.Allows(seen(mine)...) && (of.GetLeast() == 0 || len(mine) == 0 || !look.Allows(mine[0].Pod))
		troubled = troubled || exceeds[i]
	}
	if !troubled {
		return candidates, alikeIn(candidates, exceeds)
	}
	for i, of := range candidates {
		k, known := at[of.GetStanding()]
		if !known || of.GetStanding() == 0 {
			k = len(places)
			places, at[of.GetStanding()] = append(places, nil), k
		}
		places[k] = append(places[k], i)
	}
	out, worse := slices.Clone(candidates), make([]bool, len(candidates))
	for _, of := range places {
		next := 0
		for _, last := range []bool{false, true} {
			for _, i := range of {
				if exceeds[i] == last {
					out[of[next]], worse[of[next]] = candidates[i], last
					next++
				}
			}
		}
	}
	return out, alikeIn(out, worse)
}

// alikeIn numbers candidates: those of one standing that exceed a budget, or do not, have the same number.
func alikeIn(candidates []*wire.Candidate, exceeds []bool) []int {
	alike, within, beyond := make([]int, len(candidates)), map[uint32]int{}, map[uint32]int{}
	for i, of := range candidates {
		first := within
		if exceeds[i] {
			first = beyond
		}
		if at, known := first[of.GetStanding()]; known && of.GetStanding() != 0 {
			alike[i] = at
			continue
		}
		first[of.GetStanding()], alike[i] = i, i
	}
	return alike
}

func seen(pods []*pod) (out []*api.Pod) {
	for _, p := range pods {
		out = append(out, p.Pod)
	}
	return out
}

// sortSurplus puts those pods last, of the ones with the same deletion cost, whose eviction exceeds a budget.
func (c *evictions) sortSurplus(pods []*pod) {
	look := c.budgets.Look(c.now)
	for from := 0; from < len(pods); {
		to := from
		var exceed []*pod
		first := from
		for ; to < len(pods) && pods[to].DeletionCost == pods[from].DeletionCost; to++ {
			if p := pods[to]; look.Allows(p.Pod) {
				pods[first] = p
				first++
			} else {
				exceed = append(exceed, p)
			}
		}
		copy(pods[first:to], exceed)
		from = to
	}
}

// claimedPods takes note of the pods that leave because a claim was accepted.
func (c *evictions) claimedPods(victims []*wire.Victim, within time.Duration) {
	gangs := map[string]bool{}
	for _, v := range victims {
		if !c.budgets.Heeds(v.GetGang().GetNamespace()) {
			continue
		}
		for _, single := range v.GetPods() {
			if p := c.pods[single.GetUid()]; p != nil {
				c.budgets.Claim(c.now, p.Pod, c.now.Add(within+api.Overdue))
			}
		}
		gangs[v.GetGang().GetUid()] = len(v.GetPods()) == 0
	}
	if len(gangs) == 0 {
		return
	}
	for _, p := range c.pods {
		if p.maySpare() && gangs[c.gangOf(p)] {
			c.budgets.Claim(c.now, p.Pod, c.now.Add(within+api.Overdue))
		}
	}
}

// disrupts counts those of some pods, which are about to be evicted, for which a budget does not allow that, and returns words about it.
func (c *evictions) disrupts(pods []*pod) string {
	n := 0
	var names []string
	for _, p := range pods {
		if p.Deleting || !c.budgets.Heeds(p.Namespace) {
			continue
		}
		exceeded := c.budgets.Evict(c.now, p.Pod, c.now.Add(api.Overdue))
		if len(exceeded) > 0 {
			n++
		}
		names = append(names, exceeded...)
	}
	c.Disrupted += uint64(n)
	slices.Sort(names)
	return report.Disrupts(n, slices.Compact(names))
}

// evictPod evicts a bound pod of a gang, and tries again until it is seen to leave.
func (c *evictions) evictPod(g *gang, p *pod, why string) {
	if p.Deleting || p.seldom().evicting != 0 || p.Node == "" {
		return // also one that the watch has not shown bound: its Binding may have been made for a namesake of the gang
	}
	if at := p.seldom().evictAt; c.now.Before(at) {
		c.wakeAt(g, at)
		return
	}
	c.disrupts([]*pod{p}) // one that was not bound, or known to this home, when it was decided
	id := c.nextWrite(write{kind: writeEviction, uid: p.UID})
	p.some().evicting = id
	c.emit(event.EvictPod{ID: id, Namespace: p.Namespace, Name: p.Name, UID: p.UID, Message: why,
		Bucket: g.bucket, GangUID: g.id, Attempt: g.charge.attempt})
}
