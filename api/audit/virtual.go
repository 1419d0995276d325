package audit

import (
	"maps"
	"slices"

	"basalt.dev/basalt/api"
)

// virtual is how the sums of charges by queue differ from what all that is decided leads to.
type virtual struct {
	store    *store
	cluster  *cluster
	more     map[string]map[string]int64 // by path and resource
	children map[string][]string         // the paths right below one
	wanted   map[amountOf]int64
}

// amountOf is what is judged of a queue.
type amountOf struct {
	path, name string
	deserved   bool // or the guarantee
}

// branch finds the children of all queues.
func (t virtual) branch() {
	seen := map[string]bool{}
	for _, path := range slices.Sorted(maps.Keys(t.store.queues)) {
		for _, p := range api.Lineage(path) {
			if up := api.Parent(p); up != "" && !seen[p] {
				t.children[up] = append(t.children[up], p)
			}
			seen[p] = true
		}
	}
}

// uses returns what a queue has in the virtual tree.
func (t virtual) uses(path, name string) int64 {
	out := t.more[path][name]
	if q := t.store.queues[path]; q != nil {
		out = api.AddSat(out, api.AddSat(q.reserved.Value(name), q.forced.Value(name)))
	}
	return out
}

// atLeast returns what counts of it against whoever is admitted: inside a guarantee, which may be that of a queue
// below, what is forced does not.
func (t virtual) atLeast(path, name string) int64 {
	uses := t.uses(path, name)
	if q := t.store.queues[path]; q != nil && t.store.guaranteedBelow(path, name) {
		uses = api.AddSat(uses, -q.forced.Value(name))
	}
	return uses
}

// wants returns what a queue would have of a resource in force if it fitted: what it says, or where it says nothing
// what its children say together, within its capability.
func (t virtual) wants(of amountOf) int64 {
	if known, is := t.wanted[of]; is {
		return known
	}
	out := t.together(of)
	if q := t.store.queues[of.path]; q != nil {
		out = q.wants(of, out)
		if limit, limited := q.limits.Get(of.name); limited {
			out = min(out, limit)
		}
	}
	t.wanted[of] = out
	return out
}

// together returns what the children of a queue want.
func (t virtual) together(of amountOf) (sum int64) {
	for _, c := range t.children[of.path] {
		sum = api.AddSat(sum, t.wants(amountOf{c, of.name, of.deserved}))
	}
	return sum
}

// inForce returns what a queue has in force of a resource, and whether it is known: nothing is cut on its path.
func (t virtual) inForce(of amountOf) (amount int64, known bool) {
	for _, p := range api.Lineage(api.Parent(of.path)) {
		if at := (amountOf{p, of.name, of.deserved}); t.together(at) > t.wants(at) {
			return 0, false
		}
	}
	return t.wants(of), true
}

// deserves returns what a queue deserves of a resource; 0 is as if it did not name it.
func (t virtual) deserves(path, name string) (amount int64, known bool) {
	amount, known = t.inForce(amountOf{path, name, true})
	return amount, known && t.wants(amountOf{api.RootQueue, name, true}) <= t.cluster.offered(name)
}

// parting returns the children of the lowest common ancestor of two queues on the paths to them, "" if one queue is
// above the other.
func parting(x, y string) (to, from string) {
	xs, ys := api.Lineage(x), api.Lineage(y)
	for len(xs) > 0 && len(ys) > 0 && xs[len(xs)-1] == ys[len(ys)-1] {
		xs, ys = xs[:len(xs)-1], ys[:len(ys)-1]
	}
	if len(xs) == 0 || len(ys) == 0 {
		return "", ""
	}
	return xs[len(xs)-1], ys[len(ys)-1]
}

// losers returns the queues from a victim's own up to the child of the lowest common ancestor.
func losers(from, queue string) (out []string) {
	for _, p := range api.Lineage(queue) {
		if out = append(out, p); p == from {
			break
		}
	}
	return out
}

// lacking is how much of a resource has to leave a queue.
type lacking struct {
	path, name string
	short      int64
}

// leavesFirst returns what has to leave sides of a claimant before it is entitled to take from others, and whether all
// of that is known.
func (t virtual) leavesFirst(now *reservation, victims []*reservation) (out []lacking, known bool) {
	known = true
	for _, mine := range api.Lineage(api.Parent(now.queue)) {
		inside := func(v *reservation) bool { return api.Under(v.queue, mine) }
		beside := func(v *reservation) bool { return !inside(v) && api.Under(v.queue, api.Parent(mine)) }
		if mine == api.RootQueue || !slices.ContainsFunc(victims, inside) || !slices.ContainsFunc(victims, beside) {
			continue
		}
		for _, x := range now.demand.Add(now.claim.promised) {
			deserved, is := t.deserves(mine, x.Resource)
			known = known && is && !t.store.fairly(mine)
			after := api.AddSat(t.uses(mine, x.Resource), now.claim.promised.Value(x.Resource))
			if deserved > 0 && after > deserved {
				out = append(out, lacking{mine, x.Resource, after - deserved})
			}
		}
	}
	return out, known
}

// freedBelow is what victims have that are in a queue or below it.
func freedBelow(path, name string, victims []*reservation) (sum int64) {
	for _, v := range victims {
		if api.Under(v.queue, path) {
			sum = api.AddSat(sum, v.demand.Value(name))
		}
	}
	return sum
}
