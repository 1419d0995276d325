package home

import (
	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
)

// Roles: a Volcano PodGroup may say how many pods of each task its gang needs to start (minTaskMember). Its minimum is made of those
// first, and then of the oldest pods of any task. A gang that has started does not care.

// lacks returns the first role of which the gang has fewer pods than it needs to start, and how many it has; nil if there is none.
func (g *gang) lacks() (role *api.Role, have int) {
	if g.started || g.group == nil || len(g.group.Roles) == 0 || fault.On(fault.RoleIgnored) {
		return nil, 0
	}
	candidates := map[string]int{}
	for _, p := range g.members {
		if p.candidate() {
			candidates[p.Role]++
		}
	}
	for i := range g.group.Roles {
		r := &g.group.Roles[i]
		if have := g.tally.placedAs[r.Name] + candidates[r.Name]; have < r.Min {
			return r, have
		}
	}
	return nil, 0
}

// foremost returns at most n of the pods, which are in order: first those of the roles that the gang still needs, with or without
// the pods that are charged already, then others. Places of a role for which there is no pod stay free.
func (g *gang) foremost(pods []*pod, n int, charged bool) []*pod {
	n = max(0, n)
	if g.group == nil || len(g.group.Roles) == 0 || fault.On(fault.RoleIgnored) {
		return pods[:min(len(pods), n)]
	}
	has := map[string]int{}
	if charged {
		for _, p := range g.members {
			if p.charged && p.candidate() {
				has[p.Role]++
			}
		}
	}
	needs, kept := map[string]int{}, 0
	for _, r := range g.group.Roles {
		need := max(0, r.Min-g.tally.placedAs[r.Name]-has[r.Name])
		needs[r.Name] = need
		kept += need
	}
	others := max(0, n-kept)
	var out []*pod
	for _, p := range pods {
		switch {
		case len(out) == n:
			return out
		case needs[p.Role] > 0:
			needs[p.Role]--
		case others > 0:
			others--
		default:
			continue
		}
		out = append(out, p)
	}
	return out
}

// makerOf returns api.Pod.Role of the pods of an implied group, which one controller made.
func makerOf(g *gang) string {
	var first *pod
	for _, p := range g.members {
		if first == nil || p.UID < first.UID {
			first = p
		}
	}
	if first == nil || g.name.Kind != api.ImpliedGroup {
		return ""
	}
	return first.Role
}
