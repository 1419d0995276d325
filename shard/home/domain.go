package home

import (
	"cmp"
	"math"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/home/report"
)

// Gangs in one topology domain. A PodGroup may require that its minimum starts in one domain (a rack, a zone: nodes with the same value of a
// label) or prefer one. No shard owns a domain, for its nodes are spread over all of them. But a gang has one planner, its home shard. It asks
// every node shard how many of the missing pods fit into each domain (Probe), adds up the answers, takes the tightest domain that fits all of
// them, and confines a round to it: HoldRequests name the domain. The answers are promises of nobody. So where a round finds too little, what
// it held is withdrawn, and the next domain is tried; where no domain fits, the gang waits.
//
// Answers may be wrong again and again: they count each pod as if it came alone, and pods of a gang may exclude each other from a domain. So the gang
// remembers which domains failed, also from one search to the next, and tries those only when no other is left, or when they have more room.
//
// Pods of a gang may also require one another in a domain, by affinity (ties). Such a domain is tried first, like one that the gang prefers: a search that
// goes from shard to shard would fill the domain in which the first pod happens to be, whether it has room for the others or not.
//
// Once a pod of the gang is committed or bound, the gang is pinned: further pods go to the domain of those, or wait. This is found from the
// nodes of these pods each time, so an heir finds the same. A gang whose pods are in several domains, as nodes were relabelled or somebody
// else bound some, is left as it is; its further pods go where most are.
//
// A gang may also be divided into slices, each of which is to be in one domain (slices.go). Then a round is confined to several domains, and each
// pod to one of them.
//
// Answers are used for all gangs of a namespace that ask the same within surveyKept, less what was asked for since.

// domains is where gangs find room that are confined to topology domains.
type domains struct {
	*common
	census    *census
	shards    *shards
	rules     *rules
	searchers *searchers

	surveys surveys
}

const (
	surveyKept  = 100 * time.Millisecond // answers are used for so long
	maxSurveyed = 16                     // classes of a gang that are asked about; the others are only tried
	maxPinned   = 256                    // domains that a question pins
	areasTried  = 8                      // domains of one level in one search
	maxFailed   = 4096                   // domains of one level that a gang remembers as failed
)

// confineTo names in a HoldRequest the domain of each of its pods.
func (c *census) confineTo(a *area, body *wire.HoldRequest, pods []*pod) {
	if fault.On(fault.DomainUnnamed) {
		return
	}
	if body.Within = a.within(); a == nil || a.of == nil {
		return
	}
	key := a.keys[len(a.keys)-1]
	numbers := map[string]uint32{}
	for i, p := range pods {
		value, known := "", false
		if r := a.of[p.UID]; r != nil {
			value, known = r.values[len(r.values)-1], true
		} else if n := c.clusterNodes[p.node]; n != nil { // held before
			value, known = n.Labels[key]
		}
		if !known {
			continue
		}
		if numbers[value] == 0 {
			body.Domains = append(body.Domains, &wire.Label{Key: key, Value: value})
			numbers[value] = uint32(len(body.Domains))
		}
		body.Pods[i].Domain = numbers[value]
	}
}

// levels returns the kinds of domain that are tried for a gang, each as the labels that all nodes of one have, in
// order: the one that it prefers and the larger ones that the cluster has, those in which its pods require one another,
// then the one that it requires. That has no labels where only slices of the gang are to be in domains. After the last
// one a gang waits if it is required, and is placed anywhere otherwise.
func (c *domains) levels(g *gang) (levels [][]string) {
	if g.group == nil {
		return c.rules.founds(g)
	}
	must, slice := g.group.Required, g.group.Slice.Key
	if want := g.group.Preferred; want != "" {
		larger := []string{want}
		if i := slices.Index(c.cfg.Levels, want); i >= 0 {
			larger = slices.Clone(c.cfg.Levels[:i+1])
			slices.Reverse(larger)
		}
		for _, key := range larger {
			if key == must {
				break
			}
			switch {
			case key == slice:
			case must != "":
				levels = append(levels, []string{key, must})
			default:
				levels = append(levels, []string{key})
			}
		}
	}
	for _, key := range c.rules.ties(g) {
		keys := domainKeys(key, must)
		same := func(level []string) bool { return slices.Equal(level, keys) }
		if slice == "" && key != must && !slices.ContainsFunc(levels, same) {
			levels = append(levels, keys)
		}
	}
	switch {
	case must != "":
		levels = append(levels, []string{must})
	case slice != "":
		levels = append(levels, nil)
	}
	return levels
}

// ties returns the labels in whose domains pods of a gang that has not begun require others of it: they are all in one then, or at least those of
// one leader are. A search that goes from shard to shard begins in the domain in which the first pod happens to be.
func (c *rules) ties(g *gang) (keys []string) {
	if g.started || slices.ContainsFunc(g.inOrder(), stands) || !slices.ContainsFunc(g.inOrder(), func(p *pod) bool { return len(p.asked.Joins) > 0 }) {
		return nil
	}
	const most = 2
	var labels []*api.Labels
	kinds := kindsOf(g.pick(g.seeks))
	kinds = kinds[:min(len(kinds), maxSurveyed)]
	for _, k := range kinds {
		for _, p := range k.pods {
			if len(labels) < maxSurveyed && !slices.ContainsFunc(labels, p.Labels.Equal) {
				labels = append(labels, p.Labels)
			}
		}
	}
	for _, k := range kinds {
		for _, key := range c.topology.Ties(g.name.Namespace, k.class, labels) {
			if len(keys) < most && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// confine chooses the domain of a gang's next round, or the domains, if it is to have any, and reports whether the round may begin.
func (c *Core) confine(g *gang, missing []*pod) bool {
	s := &g.search
	s.confine(nil)
	levels := c.domains.levels(g)
	if len(levels) == 0 {
		return true
	}
	s.begin(c.now)
	if len(s.levels) != len(levels) {
		s.tryLevels(len(levels))
	}
	if !slices.ContainsFunc(s.levels, func(t tried) bool { return t.areas > 0 }) {
		s.see(c.shards.room, c.shards.nodes)
	}
	holds, some := len(g.pick(isHeld)) > 0, len(g.pick(stands)) > 0
	founds := g.group == nil // more pods are to come, which have to go to the domain that is chosen now
	for i, level := range levels {
		required := g.requires(level)
		pin, firm, ok := c.census.pinAt(g, level, holds)
		if !ok || !required && s.scatters() {
			continue
		}
		keys, t := level, &s.levels[i]
		w := wanted{kinds: kindsOf(missing)}
		if required && (g.started || some) {
			w.fails = failsParts
		}
		if founds {
			w.sharers = c.domains.surveys.sharersWith(c.now, g.kinOf(missing[0]))
		} else if !g.started {
			more := slices.DeleteFunc(g.candidates(), func(p *pod) bool { return p.charged || p.stage != nowhere })
			c.rules.ask(more)
			w.more = kindsOf(more)
		}
		_, slice := g.domainKeys()
		if slice != "" {
			keys = append(slices.Clone(keys), slice)
			w.parts, w.size = c.census.partsOf(g, keys, missing), g.group.Slice.Size
		}
		sv := c.domains.surveyAround(g, keys, w, pin, t)
		if sv == nil {
			return false
		}
		if slice != "" && w.fails != failsParts {
			for _, class := range sv.classes {
				w.apart = append(w.apart, c.rules.topology.Separates(class, slice))
			}
		}
		if sv.answers.later() && required {
			c.domains.waitForDomain(g, report.Uncompared(g.name.Namespace, c.rules.topology.Full(g.name.Namespace)))
			return false
		}
		if sv.answers.later() {
			continue
		}
		a, most := sv.find(w, pin, t)
		if a == nil && t.retry(s.count) {
			a, most = sv.find(w, pin, t)
		}
		if a != nil && t.areas < areasTried {
			if t.take(); founds {
				c.domains.surveys.found(c.now, g.kinOf(missing[0]), sv.named(a.all))
			}
			if a.level = i; holds && !required && (w.parts == nil || !g.started) {
				a.fails = failsNone
			}
			s.confine(a)
			return true
		}
		if a == nil && sv.taken && t.areas == 0 { // by others: what there is now is not known
			delete(c.domains.surveys.of, sv.id)
			c.domains.surveyAround(g, keys, w, pin, t)
			return false
		}
		if !required {
			continue
		}
		if !firm && holds && w.fails != failsParts { // what it holds is not enough there, nor can be
			c.searchers.releaseHeld(g)
			delete(c.domains.surveys.of, sv.id) // it counts what was held as used
			c.mark(g)
			return false
		}
		if sv.answers.open() || g.started || !(t.areas > 0 && c.searchers.reorders(g) || c.triesOthers(g, missing)) {
			c.domains.waitForDomain(g, c.domains.whyNoDomain(g, sv, w, pin, firm, most))
		}
		return false
	}
	return true
}

// pinAt returns the domain of a level in which pods of a gang are, nil if there is none, firm if they stay there. It is not ok if others cannot be in
// one domain with them, which is only preferred.
func (c *census) pinAt(g *gang, level []string, holds bool) (pin []string, firm, ok bool) {
	if len(level) == 0 {
		return nil, false, true
	}
	pin, same := c.pinned(g, level, stands)
	if !same && !g.requires(level) {
		return nil, false, false
	}
	if pin != nil || !holds {
		return pin, pin != nil, true
	}
	if pin, same = c.pinned(g, level, isHeld); !same {
		pin = nil
	}
	return pin, false, pin != nil || g.requires(level)
}

// whyNoDomain says why a gang waits for a domain that it requires, of which the best one takes so many of its pods or parts.
func (c *domains) whyNoDomain(g *gang, x *survey, w wanted, pin []string, firm bool, most int) report.Reason {
	switch {
	case x.answers.open(): // nobody knows whether there is room: no reason to buy nodes
		return report.Reason{}
	case x.heard != heardLabels:
		return report.NoLabel(x.keys)
	case !firm:
		pin = nil
	}
	if w.parts != nil {
		return c.whySlices(g, x.keys, w.parts, most, pin)
	}
	pods, ruled := 0, false
	for _, k := range w.kinds {
		pods += len(k.pods)
		ruled = ruled || isConstrained(k.class)
	}
	return report.NoDomain(x.keys[0], pin, pods, most, ruled)
}

// wanted is what is to be placed in one domain.
type wanted struct {
	kinds []kind
	parts []part // of a gang with slices
	apart []bool // by class of a question: pods of it are not together in a domain as a rule, so its slices are put into different ones if possible
	size  int    // of these
	fails fails

	more    []kind           // that are to go to the same domain later,
	sharers map[string]int64 // nobody knows how many will come, and so many others want the room of a domain
}

// find returns the domain, or the domains, for what is wanted; most is of all of it.
func (x *survey) find(w wanted, pin []string, but *tried) (a *area, most int) {
	if w.parts == nil {
		return x.choose(x.need(w.kinds), w, pin, but)
	}
	if slices.Contains(w.apart, true) {
		if a, most = x.slice(w, pin, but); a != nil {
			return a, most
		}
	}
	w.apart = nil
	return x.slice(w, pin, but)
}

// waitForDomain puts a gang to sleep that finds no domain.
func (c *domains) waitForDomain(g *gang, why report.Reason) {
	s := &g.search
	s.explain(nil)
	g.block(why)
	late := g.started && !c.now.Before(s.since.Add(c.cfg.GiveUpAfter))
	c.searchers.sleep(g, false)
	if late {
		s.giveUp(true)
		c.uncharge(g)
	}
}

// together reports whether what a gang holds is in the domain that it requires, together with what stands, and makes whole slices. If it does
// not, for a node was relabelled meanwhile, the holds are given back, and the gang searches again a moment later.
func (c *Core) together(g *gang) bool {
	if !g.mustBeTogether() || fault.On(fault.DomainUnnamed) || fault.On(fault.DomainStale) {
		return true
	}
	ok := g.group.Slice.Key == "" || c.census.inSlices(g)
	if ok && g.group.Required != "" {
		keys := []string{g.group.Required}
		of, same := c.census.pinned(g, keys, isHeld)
		pin, _ := c.census.pinned(g, keys, stands)
		ok = same && (pin == nil || of == nil || slices.Equal(of, pin)) &&
			!slices.ContainsFunc(g.pick(isHeld), func(p *pod) bool { return c.census.domainAt(p, keys) == "" })
	}
	if !ok {
		if c.renounce(g) {
			return false
		}
		c.searchers.releaseHeld(g)
		c.searchers.pause(g)
		c.wakeAt(g, g.search.sleep.notBefore)
	}
	return ok
}

// endInArea ends a round that did not find enough in its domains.
func (c *domains) endInArea(g *gang, r *round, missing []*pod) {
	s, failed := &g.search, map[*room]bool{}
	held, column := map[*room]map[*api.Class]int64{}, r.area.columns()
	for _, p := range g.pick(isHeld) {
		of := r.area.roomOf(p)
		if held[of] == nil {
			held[of] = map[*api.Class]int64{}
		}
		if held[of][p.asked]++; r.area.fails == failsWhole { // it is released below
			of.add(p.shard, column(p.asked), 1)
		}
	}
	for _, p := range missing {
		of := r.area.roomOf(p)
		if of == nil || failed[of] {
			continue
		}
		failed[of] = true
		clear(of.pods) // nobody knows of more now than what it took
		for class, n := range held[of] {
			if i := column(class); i >= 0 {
				of.pods[i] += n
			}
		}
		if r.area.level < len(s.levels) {
			s.levels[r.area.level].fail(of, s.count, held[of])
		}
	}
	s.ends()
	switch r.area.fails {
	case failsParts:
		g.forgetParts()
	case failsWhole:
		c.searchers.releaseHeld(g)
	}
	c.mark(g)
}

// ---- surveys

// choose returns the tightest domain that has room for so many pods of each class, of the pinned values if there are
// any; in part: or else the one with the most room, if it has some. If more pods are to come, it is of those that would
// do the one that takes the most of all. Those that failed are skipped. most is of the pods the one with the most room
// takes, as if those of each class came alone.
func (x *survey) choose(need []int64, w wanted, pin []string, but *tried) (a *area, most int) {
	const whole = 1 << 20
	type rated struct {
		*room
		fits  int   // 2: all of them together, as far as can be told; 1: those of each class; 0: some
		tight int64 // how much of it they take
		later int64 // how many pods it takes, with those that come later
	}
	var top rated
	later := x.need(w.more)
	for id, r := range x.rooms {
		if pin != nil && !slices.Equal(r.values, pin) {
			continue
		}
		if but.skips(id, r) {
			most = max(most, but.failed[id].took())
			continue
		}
		o := rated{room: r, fits: 2}
		takes := int64(0)
		for i, n := range need {
			takes += min(n, r.pods[i])
			switch {
			case w.sharers != nil:
				o.later += min(n, 1) * min(r.pods[i], math.MaxInt32) * whole / (1 + w.sharers[x.named(r)])
			case len(w.more) > 0:
				o.later += min(n+later[i], r.pods[i])
			}
			if n == 0 {
				continue
			}
			if r.pods[i] < n {
				o.fits, o.tight = 0, o.tight+r.pods[i] // the most, then
			} else if o.fits > 0 {
				o.tight += n * whole / r.pods[i]
			}
		}
		most = max(most, int(takes))
		if o.fits == 2 && o.tight > whole {
			o.fits, o.tight = 1, -o.tight
		}
		if takes == 0 || o.fits == 0 && w.fails != failsParts {
			continue
		}
		if top.room == nil || cmp.Or(cmp.Compare(o.fits, top.fits), cmp.Compare(o.later, top.later),
			cmp.Compare(o.tight, top.tight), cmp.Compare(top.spare, o.spare), slices.Compare(top.values, o.values)) > 0 {
			top = o
		}
	}
	if top.room == nil {
		return nil, most
	}
	return &area{survey: x, all: top.room, values: top.values, fails: w.fails}, most
}
