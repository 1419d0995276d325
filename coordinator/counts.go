package coordinator

import (
	"slices"

	"basalt.dev/basalt/api"
)

// Gangs are a resource, api.ResourceGangs, so that all that a Queue may say of cpu it may say of how many gangs run: a
// gang that is charged anything is charged one of it, from its first pod to its last, and its growth asks for none.
// That follows from its demand, so no home says it and no record repeats it. It is counted only while the limits of
// some queue name it: else it costs nothing, and no share depends on it. When the first queue names it, or the last
// one does not any more, all that is charged and all that waits is counted anew, before the limits are in force.
//
// Tried and dropped: to have the homes ask for it. Gangs that run when a queue first names it would not have any until
// their homes had asked for it one by one, and meanwhile as many more would be admitted.

// names reports whether limits name a resource.
func (l *limits) names(resource string) bool {
	if l == nil {
		return false
	}
	lists := []api.Resources{l.capability, l.guarantee, l.deserved}
	for i := range l.users {
		lists = append(lists, l.users[i].capability)
	}
	return slices.ContainsFunc(lists, func(r api.Resources) bool {
		_, named := r.Get(resource)
		return named
	})
}

// counted returns a demand with one gang in it, if gangs are counted.
func (t *tree) counted(demand api.Resources) api.Resources {
	if t.counting == 0 {
		return demand
	}
	if demand = uncounted(demand); demand.IsZero() {
		return demand
	}
	return demand.Add(api.Resources{{Resource: api.ResourceGangs, Value: 1}})
}

// uncounted returns a demand as homes and records have it.
func uncounted(demand api.Resources) api.Resources {
	if _, counts := demand.Get(api.ResourceGangs); !counts {
		return demand
	}
	return slices.DeleteFunc(slices.Clone(demand), func(a api.Amount) bool { return a.Resource == api.ResourceGangs })
}

// promises returns what a claim of a gang promises, as it counts: a gang that is charged already is counted already.
func (t *tree) promises(promised, charged api.Resources) api.Resources {
	if t.counting == 0 || !charged.IsZero() {
		return uncounted(promised)
	}
	return t.counted(promised)
}
