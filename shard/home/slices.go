package home

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/shard/home/pack"
	"basalt.dev/basalt/shard/home/report"
)

// Slices of gangs. A PodGroup may require that each so many of its pods are in one topology domain, as 18 pods in one NVLink clique, beside the
// domain that it requires or prefers for all of them. Slices are of pods with the same requests, and of the same role, in the natural order of
// their names (train-2 before train-10), which is that of their ranks wherever a controller numbers pods. The last slice may have fewer pods.
//
// Which pods are a slice is written nowhere. It follows from where the pods of a gang are: a domain in which their number is not a multiple of
// the size has a slice that lacks pods, and pods that are to be placed complete such slices before they make others. So a pod that is made
// again goes where the one before it was, and an heir finds the same. Where several slices lack pods, those of the same ranks are
// completed with it.
//
// A gang starts only with all of its slices in domains. Of one that has started, each slice that lacks pods and each further slice is placed by itself,
// as soon as it fits; a slice is never divided.

// maxSlicedRooms bounds the domains that slices are put into: those with the most room, and those that lack pods.
const maxSlicedRooms = 16384

// mustBeTogether reports whether pods of the gang have to be in one domain.
func (g *gang) mustBeTogether() bool {
	return g.group != nil && (g.group.Required != "" || g.group.Slice.Key != "")
}

// part is some of a gang's missing pods that are to be in one domain: a slice, or a pod that belongs to one.
type part struct {
	pods []*pod
	in   string // the domain that lacks them, by its values; "" for any
}

// lone reports whether a part is a slice of fewer pods than its size: more may come.
func (o *part) lone(size int) bool { return o.in == "" && len(o.pods) < size }

// unit is what slices are made of.
type unit struct{ requests, role string }

func unitsOf(pods []*pod) (units map[unit][]*pod, order []unit) {
	units = map[unit][]*pod{}
	requests := map[*api.Class]string{}
	for _, p := range pods {
		text, known := requests[p.Class]
		if !known {
			text = p.Class.Requests.String()
			requests[p.Class] = text
		}
		u := unit{text, p.Role}
		if units[u] == nil {
			order = append(order, u)
		}
		units[u] = append(units[u], p)
	}
	return units, order
}

// domainAt returns the domain of a pod's node, "" if the node lacks a label or is not known.
func (c *census) domainAt(p *pod, keys []string) string {
	return c.domainOf(cmp.Or(p.Node, p.node), keys)
}

func (c *census) domainOf(node string, keys []string) string {
	n := c.clusterNodes[node]
	if n == nil {
		return ""
	}
	values := make([]string, len(keys))
	for i, key := range keys {
		value, ok := n.Labels[key]
		if !ok {
			return ""
		}
		values[i] = value
	}
	return domainID(values)
}

func domainID(values []string) string { return "/" + strings.Join(values, "\x00") }

// valueOf returns the value of the last label of a domain.
func valueOf(id string) string { return id[strings.LastIndexAny(id, "/\x00")+1:] }

// domainKeys are the labels of the domain that all pods of the gang are to be in, and of those that its slices are, "" for none.
func (g *gang) domainKeys() (outer, inner string) {
	if g.group == nil {
		return "", ""
	}
	return g.group.Required, g.group.Slice.Key
}

// domainKeys are those of both that there are.
func domainKeys(outer, inner string) []string {
	return slices.DeleteFunc([]string{outer, inner}, func(key string) bool { return key == "" })
}

// partsOf divides the missing pods of a gang into slices, and pods of slices that lack some.
func (c *census) partsOf(g *gang, keys []string, missing []*pod) (parts []part) {
	size := g.group.Slice.Size
	wanted := make(map[*pod]bool, len(missing))
	for _, p := range missing {
		wanted[p] = true
	}
	units, order := unitsOf(g.pick(func(p *pod) bool { return wanted[p] || stands(p) || isHeld(p) }))
	for _, u := range order {
		pods := units[u]
		slices.SortFunc(pods, func(a, b *pod) int { return cmp.Or(compareNatural(a.Name, b.Name), strings.Compare(a.UID, b.UID)) })
		at, has := make([]string, len(pods)), map[string]int{}
		votes := map[int]map[string]int{} // of slices by rank, for domains
		for i, p := range pods {
			if wanted[p] {
				continue
			}
			if at[i] = c.domainAt(p, keys); at[i] != "" {
				has[at[i]]++
				if votes[i/size] == nil {
					votes[i/size] = map[string]int{}
				}
				votes[i/size][at[i]]++
			}
		}
		lacks := map[string]int{}
		for d, n := range has {
			if n%size > 0 {
				lacks[d] = size - n%size
			}
		}
		var rest []*pod
		for i, p := range pods {
			if !wanted[p] {
				continue
			}
			best := ""
			for d, n := range votes[i/size] {
				if lacks[d] > 0 && (best == "" || n > votes[i/size][best] || n == votes[i/size][best] && d < best) {
					best = d
				}
			}
			if best == "" {
				rest = append(rest, p)
				continue
			}
			lacks[best]--
			parts = append(parts, part{pods: []*pod{p}, in: best})
		}
		open := api.SortedKeys(lacks)
		slices.SortStableFunc(open, func(a, b string) int { return cmp.Compare(lacks[a], lacks[b]) }) // those that lack the fewest first
		for _, d := range open {
			n := min(lacks[d], len(rest))
			for _, p := range rest[:n] {
				parts = append(parts, part{pods: []*pod{p}, in: d})
			}
			rest = rest[n:]
		}
		for len(rest) > 0 {
			n := min(size, len(rest))
			parts = append(parts, part{pods: rest[:n:n]})
			rest = rest[n:]
		}
	}
	return parts
}

// outer is a domain of the first labels of a survey.
type outer struct {
	id     string
	values []string
	rooms  []*room // of the last label, in it
	pods   []int64 // by class
	spare  int64
	has    int64 // pods of the parts that it has room for
	tight  int64 // how much of it they take
}

// place is a domain of the last label, by its number in the outer one.
type place struct {
	in     *outer
	number int
}

// slice returns where the parts of a gang go: the tightest domain of the first labels, of the pinned values if there
// are any, that has domains of the last label for all of them; in some: or else the one that has for the most pods, if
// it has for any. Those of the last label that failed are skipped. put is how many parts the best one takes.
func (x *survey) slice(w wanted, pin []string, but *tried) (a *area, put int) {
	places := map[string]place{} // of parts that must be in some domain
	for _, o := range w.parts {
		if o.in != "" {
			places[o.in] = place{}
		}
	}
	outers := x.outers(x.roomsLeft(w, pin, but, places), places)
	list, need := x.shapes(w.parts, w.size)
	all := int64(0)
	for _, n := range need {
		all += n
	}
	best, at, put := fill(byTightness(outers, need), w, list, places, all)
	if put == 0 || put < len(w.parts) && w.fails != failsParts {
		return nil, put
	}
	a = &area{survey: x, of: map[string]*room{}, parts: w.parts, values: best.values, fails: w.fails}
	for i, d := range at {
		if d >= 0 {
			for _, p := range w.parts[i].pods {
				a.of[p.UID] = x.rooms[best.rooms[d].id()]
			}
		}
	}
	return a, put
}

// roomsLeft returns the domains of the last label with what they have for slices: at most maxSlicedRooms of them, and
// those of places.
func (x *survey) roomsLeft(w wanted, pin []string, but *tried, places map[string]place) []*room {
	all := make([]*room, 0, len(x.rooms))
	for _, id := range api.SortedKeys(x.rooms) {
		if r := x.rooms[id]; pin == nil || slices.Equal(r.values[:len(x.keys)-1], pin) {
			if r = x.left(r, id, w, but); r != nil {
				all = append(all, r)
			}
		}
	}
	if len(all) <= maxSlicedRooms {
		return all
	}
	slices.SortStableFunc(all, func(a, b *room) int { return cmp.Compare(b.pods[0], a.pods[0]) })
	rest := all[maxSlicedRooms:]
	all = all[:maxSlicedRooms]
	for _, r := range rest {
		if _, wanted := places[domainID(r.values)]; wanted {
			all = append(all, r)
		}
	}
	return all
}

// outers puts domains of the last label into those of the first ones, in no order, and finds places there.
func (x *survey) outers(rooms []*room, places map[string]place) []*outer {
	of := map[string]*outer{}
	for _, r := range rooms {
		values := r.values[:len(x.keys)-1]
		id := domainID(values)
		o := of[id]
		if o == nil {
			o = &outer{id: id, values: values, pods: make([]int64, len(r.pods))}
			of[id] = o
		}
		if len(places) > 0 {
			if _, wanted := places[domainID(r.values)]; wanted {
				places[domainID(r.values)] = place{o, len(o.rooms)}
			}
		}
		o.rooms, o.spare = append(o.rooms, r), api.AddSat(o.spare, r.spare)
		for i, n := range r.pods {
			o.pods[i] = api.AddSat(o.pods[i], n)
		}
	}
	return slices.Collect(maps.Values(of))
}

// byTightness sorts domains by how well pods, so many of each class, fill them. Those that may take all come first, as
// they have all.
func byTightness(outers []*outer, need []int64) []*outer {
	for _, o := range outers {
		for i, n := range need {
			o.has += min(n, o.pods[i])
			if n > 0 && o.pods[i] > 0 {
				o.tight += n << 20 / o.pods[i]
			}
		}
	}
	slices.SortFunc(outers, func(a, b *outer) int {
		return cmp.Or(cmp.Compare(b.has, a.has), cmp.Compare(b.tight, a.tight), cmp.Compare(a.spare, b.spare),
			strings.Compare(a.id, b.id))
	})
	return outers
}

// fill returns the domain that takes the parts of a gang best, which have so many pods in all, with their places in it;
// put is how many parts are put into some domain at most.
func fill(outers []*outer, w wanted, list []pack.Slice, places map[string]place, all int64) (best *outer, at []int,
	put int) {
	set := pack.NewSet(list)
	pods := 0
	for _, together := range []bool{true, false} {
		for _, o := range outers {
			if o.has < all && w.fails != failsParts && best != nil {
				continue
			}
			rooms := make([][]int64, len(o.rooms))
			for i, r := range o.rooms {
				rooms[i] = r.pods
			}
			for i := range w.parts {
				if in := w.parts[i].in; in != "" {
					if list[i].In = len(rooms); places[in].in == o {
						list[i].In = places[in].number
					}
				}
			}
			to, n := set.Into(rooms, together)
			k := 0
			for i, d := range to {
				if d >= 0 {
					k += len(w.parts[i].pods)
				}
			}
			put = max(put, n)
			if best == nil || cmp.Or(cmp.Compare(k, pods), cmp.Compare(o.tight, best.tight),
				cmp.Compare(best.spare, o.spare)) > 0 {
				best, at, pods = o, to, k
			}
			if n == len(w.parts) { // and none of the others is tighter
				return best, at, put
			}
		}
	}
	return best, at, put
}

// left returns what a domain has for slices, nil for nothing: if it failed, what it took then; and one slice of a class whose pods are apart.
func (x *survey) left(r *room, id string, w wanted, but *tried) *room {
	failed := but.skips(id, r)
	if !failed && w.apart == nil {
		return r
	}
	out := *r
	out.pods = slices.Clone(r.pods)
	some := false
	for i, class := range x.classes {
		if failed {
			n := int64(0)
			for o, held := range but.failed[id].held {
				if o == class || o.Key == class.Key {
					n += held
				}
			}
			out.pods[i] = min(out.pods[i], n)
		}
		if w.apart != nil && w.apart[i] {
			out.pods[i] = min(out.pods[i], int64(w.size))
		}
		some = some || out.pods[i] > 0
	}
	if !some {
		return nil
	}
	return &out
}

// shapes returns parts by classes that were asked about, and how many pods of each there are.
func (x *survey) shapes(parts []part, size int) (list []pack.Slice, need []int64) {
	need = make([]int64, len(x.classes))
	list = make([]pack.Slice, len(parts))
	column := x.columns()
	for i, o := range parts {
		s := pack.Slice{Pods: make([]int64, len(x.classes)), In: -1}
		if o.in != "" {
			s.In = 0 // or another, by domain
		}
		last := -1
		for _, p := range o.pods {
			c := column(p.asked)
			if c < 0 { // it was not asked about: one that requests as much was, perhaps
				c = slices.IndexFunc(x.classes, func(o *api.Class) bool { return o.Requests.Equal(p.asked.Requests) })
			}
			if c >= 0 {
				s.Pods[c]++
				need[c]++
				last = c
			}
		}
		if o.lone(size) && last >= 0 {
			s.Wish = slices.Clone(s.Pods)
			s.Wish[last] += int64(size - len(o.pods))
		}
		list[i] = s
	}
	return list, need
}

// inSlices reports whether what a gang holds makes whole slices, and at most one that lacks pods more than there were.
func (c *census) inSlices(g *gang) bool {
	keys := domainKeys(g.domainKeys())
	units, order := unitsOf(g.pick(func(p *pod) bool { return stands(p) || isHeld(p) }))
	for _, u := range order {
		before, now := map[string]int{}, map[string]int{}
		for _, p := range units[u] {
			d := c.domainAt(p, keys)
			switch {
			case d != "":
				if now[d]++; !isHeld(p) {
					before[d]++
				}
			case isHeld(p):
				return false
			}
		}
		if lacking(now, g.group.Slice.Size) > lacking(before, g.group.Slice.Size)+1 {
			return false
		}
	}
	return true
}

// awaitSlices returns the pods of a started gang that must not be committed yet although they have a hold: others of their slice have none. A
// hold outside the domain of a slice, of a node that was relabelled, is forgotten, and the pod is asked for again.
func (c *census) awaitSlices(g *gang) map[*pod]bool {
	a := g.search.area
	if a == nil || a.of == nil {
		return nil
	}
	wait := map[*pod]bool{}
	for _, o := range a.parts {
		if a.of[o.pods[0].UID] == nil {
			continue
		}
		for _, p := range o.pods {
			if p.gang == g && p.stage == held && c.domainAt(p, a.keys) != domainID(a.of[p.UID].values) {
				p.letGo()
			}
		}
		if slices.ContainsFunc(o.pods, g.seeks) {
			for _, p := range o.pods {
				wait[p] = true
			}
		}
	}
	return wait
}

// seeks reports whether a pod of a gang is to get a hold.
func (g *gang) seeks(p *pod) bool {
	return p.gang == g && waitsNowhere(p)
}

// forgetParts forgets the holds of slices of a started gang for all of which there is no room. They expire, or are renewed if the same is found
// again.
func (g *gang) forgetParts() {
	a := g.search.area
	if a == nil || a.of == nil || a.fails != failsParts {
		return
	}
	for _, o := range a.parts {
		if !slices.ContainsFunc(o.pods, g.seeks) {
			continue
		}
		for _, p := range o.pods {
			if p.gang == g && p.stage == held {
				p.letGo()
			}
		}
	}
}

// lacking returns how many domains have a slice that lacks pods.
func lacking(has map[string]int, size int) (n int) {
	for _, pods := range has {
		if pods%size > 0 {
			n++
		}
	}
	return n
}

// whySlices says why the parts of a gang are not placed, of which so many could be in the best domain.
func (c *domains) whySlices(g *gang, keys []string, parts []part, put int, pin []string) report.Reason {
	s := report.Slices{Key: g.group.Slice.Key, Size: g.group.Slice.Size, Put: put}
	if len(keys) > 1 {
		s.Outer = keys[len(keys)-2]
	}
	if len(pin) > 0 {
		s.Decided, s.Value = true, pin[len(pin)-1]
	}
	for _, p := range parts {
		s.Pods += len(p.pods)
		s.Constrained = s.Constrained || isConstrained(p.pods[0].asked)
		if p.in != "" {
			if s.Lacking++; s.Lacking == 1 {
				s.In = valueOf(p.in)
			}
		} else {
			if s.Slices++; p.lone(g.group.Slice.Size) {
				s.Small, s.Last = s.Small+1, len(p.pods)
			}
		}
	}
	return report.NoSlices(s)
}

// compareNatural compares names with numbers in them by these.
func compareNatural(a, b string) int {
	digits := func(s string) int {
		n := 0
		for n < len(s) && s[n] >= '0' && s[n] <= '9' {
			n++
		}
		return n
	}
	for a != "" && b != "" {
		m, n := digits(a), digits(b)
		if m > 0 && n > 0 {
			x, y := strings.TrimLeft(a[:m], "0"), strings.TrimLeft(b[:n], "0")
			if d := cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y)); d != 0 {
				return d
			}
			a, b = a[m:], b[n:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

// dropOutside forgets the holds of a started gang that are not in the domain in which it is: their nodes were
// relabelled. The pods are asked for again.
func (c *census) dropOutside(g *gang) {
	if g.group == nil || g.group.Required == "" || fault.On(fault.DomainUnnamed) || fault.On(fault.DomainStale) {
		return
	}
	holds := g.pick(isHeld)
	if len(holds) == 0 {
		return
	}
	keys := []string{g.group.Required}
	pin, _ := c.pinned(g, keys, stands)
	if pin == nil {
		pin, _ = c.pinned(g, keys, isHeld)
	}
	for _, p := range holds {
		if pin == nil || c.domainAt(p, keys) != domainID(pin) {
			p.letGo()
		}
	}
}
