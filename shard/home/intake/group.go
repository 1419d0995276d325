package intake

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
)

// MaxTimeout is the longest that a PodGroup may have its gang keep a reservation without room. The CRD refuses more,
// and
// objects from before it did may say more.
const MaxTimeout = 10 * time.Minute

// Name is the name of a pod or of a group. Groups of two kinds may have the same.
type Name struct {
	Namespace, Name string
	Kind            api.GroupKind
}

func (n Name) String() string { return n.Namespace + "/" + api.GroupTitle(n.Kind, n.Name) }

func compareNames(a, b Name) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
}

// Group is a PodGroup, an object of another kind that is read as one, or what the pods of an implied group say.
type Group struct {
	Name       Name
	UID        string
	Generation int64
	Created    time.Time
	Seen       time.Time // first
	Queue      string    // spec.queue
	MinCount   int
	Class      string // priorityClassName
	Timeout    time.Duration
	Deleting   bool
	Required   string                  // label of the topology domains of which the gang is to be in one,
	Preferred  string                  // or rather is,
	Slice      Slice                   // and of which each of its slices is to be in one
	Status     *v1beta1.PodGroupStatus // as seen, nil when it has none

	Preemptible *bool // spec.preemptible: its pods may be evicted for another gang, nil for those that a controller would make again

	Whole bool // spec.disruptionMode: its pods are evicted all together or not at all

	StaleAfter time.Duration // spec.staleAfter, 0 for none
	MaxRuntime time.Duration // spec.maxRuntimeSeconds, 0 for none

	User, Groups string            // who made it, as annotations say
	Labels       map[string]string // what its metadata says, as it was read; nothing of another kind
	Annotations  map[string]string

	// Of another kind than Basalt's PodGroup:
	Roles   []api.Role
	Floor   api.Resources
	Never   bool         // nobody is evicted for its gang
	Refused *api.Refusal // its gang is not placed
	Shown   api.GroupStatus

	votes counts[string] // queues that its pods name, "" for none, with the number of pods
	mins  counts[int32]  // of an implied group: what its pods say of its minimum, with the number of pods
}

// counts are numbers of pods that say the same, none of them 0. Most groups have one: a map takes many times more.
type counts[K comparable] []count[K]

type count[K comparable] struct {
	of K
	n  int32
}

func (c *counts[K]) add(of K, by int32) (now int32) {
	for i := range *c {
		x := &(*c)[i]
		if x.of != of {
			continue
		}
		if x.n += by; x.n == 0 {
			*c = slices.Delete(*c, i, i+1)
			return 0
		}
		return x.n
	}
	*c = append(*c, count[K]{of, by})
	return by
}

func (c counts[K]) has(of K) bool {
	return slices.ContainsFunc(c, func(x count[K]) bool { return x.of == of })
}

// Slice says that each so many pods of a gang are to be in one domain of a label, "" for none.
type Slice struct {
	Key  string
	Size int
}

// CompareGroups orders groups by their names.
func CompareGroups(a, b *Group) int { return compareNames(a.Name, b.Name) }

// Group returns the PodGroup that has a name, nil for none.
func (o *Objects) Group(n Name) *Group { return o.groups[n] }

// Exists reports whether a PodGroup is the one that has its name.
func (o *Objects) Exists(g *Group) bool { return o.groups[g.Name] == g }

// Groups returns all PodGroups in order.
func (o *Objects) Groups() []*Group {
	return slices.SortedFunc(maps.Values(o.groups), CompareGroups)
}

// See takes note of a PodGroup; foreign is nil for Basalt's own. One of the same name and another UID has to be dropped first. See
// reports whether it is a new one, and whether what it takes to place its gang is not what it was.
func (o *Objects) See(now time.Time, seen *v1beta1.PodGroup, foreign *api.ForeignGroup) (g *Group, fresh, edited bool) {
	var other api.ForeignGroup
	if foreign != nil {
		other = *foreign
	}
	n := GroupName(seen, foreign)
	g = o.groups[n]
	if g == nil {
		fresh = true
		g = &Group{Name: n, UID: string(seen.UID), Created: seen.CreationTimestamp.Time, Seen: now}
		o.groups[n] = g
	}
	g.Generation = seen.Generation
	g.Queue = seen.Spec.Queue
	g.Never, g.Shown = other.Never, other.Status
	refused := cmp.Or(other.Refused, gated(seen.Spec.Gates))
	edited = (refused == nil) != (g.Refused == nil) || refused != nil && *refused != *g.Refused
	g.Refused = refused
	g.readTopology(seen)
	least := int(max(1, seen.Spec.SchedulingPolicy.Gang.MinCount))
	var limit time.Duration
	if s := seen.Spec.MaxRuntimeSeconds; s != nil && *s > 0 {
		limit = min(time.Duration(*s)*time.Second, api.MaxRuntime)
	}
	edited = edited || g.MinCount != least || !slices.Equal(g.Roles, other.Roles) || !g.Floor.Equal(other.Floor) ||
		g.MaxRuntime != limit
	if edited {
		g.MinCount, g.Roles, g.Floor, g.MaxRuntime = least, other.Roles, other.Floor, limit
	}
	g.User, g.Groups = api.UserOf(seen.Annotations)
	if n.Kind == api.BasaltGroup {
		g.Labels, g.Annotations = seen.Labels, seen.Annotations
	}
	g.Class = seen.Spec.PriorityClassName
	g.Timeout = 0
	if t := seen.Spec.ScheduleTimeoutSeconds; t != nil && *t > 0 {
		g.Timeout = min(time.Duration(*t)*time.Second, MaxTimeout)
	}
	g.StaleAfter = max(0, bounded(seen.Spec.StaleAfter, v1beta1.MaxPolicyDuration))
	g.Deleting = seen.DeletionTimestamp != nil
	g.Preemptible, g.Whole = seen.Spec.Preemptible, seen.Spec.DisruptionMode == v1beta1.DisruptPodGroup
	g.Status = seen.Status
	return g, fresh, edited
}

// gated says that a gang is not placed before its gates have been removed, nil if it has none.
func gated(gates []v1beta1.Gate) *api.Refusal {
	if len(gates) == 0 {
		return nil
	}
	words := "it waits for the gate "
	if len(gates) > 1 {
		words = "it waits for the gates "
	}
	for i, gate := range gates {
		if i > 0 {
			words += ", "
		}
		words += string(gate)
	}
	return &api.Refusal{Reason: v1beta1.ReasonGated, Message: words + " (spec.gates of its PodGroup)"}
}

// GroupName returns the name of a PodGroup; foreign is nil for Basalt's own.
func GroupName(seen *v1beta1.PodGroup, foreign *api.ForeignGroup) Name {
	n := Name{Namespace: seen.Namespace, Name: seen.Name}
	if foreign != nil {
		n.Kind = foreign.Kind
	}
	return n
}

// imply counts what a pod says of the minimum of the group that it names; by is 1 for one that comes, and -1 for one that goes. An
// implied group exists from its first pod to its last, and the largest minimum counts. imply returns the group if it came, went, or
// changed.
func (o *Objects) imply(n Name, least, by int32) *Group {
	if n.Kind != api.ImpliedGroup {
		return nil
	}
	g := o.groups[n]
	if g == nil {
		g = &Group{Name: n, UID: api.ImpliedUID(n.Namespace, n.Name), MinCount: max(1, int(least))}
		g.mins.add(least, by)
		o.groups[n] = g
		return g
	}
	g.mins.add(least, by)
	was := g.MinCount
	switch {
	case len(g.mins) == 0:
		delete(o.groups, n)
		return g
	case by > 0:
		g.MinCount = max(was, int(least))
	case int(least) == was:
		g.MinCount = 1
		for _, other := range g.mins {
			g.MinCount = max(g.MinCount, int(other.of))
		}
	}
	if g.MinCount == was {
		return nil
	}
	return g
}

// Drop forgets a PodGroup. Its pods keep their votes in it until they are taken back.
func (o *Objects) Drop(g *Group) { delete(o.groups, g.Name) }
