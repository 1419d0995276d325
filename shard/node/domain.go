package node

import (
	"math"
	"slices"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/topology"
)

// Gangs that are placed in one topology domain, or each slice of them in one. Their home shard chooses the domains: it asks every node shard
// how many pods fit into each (Probe), adds up the answers, and then requests holds on nodes of those that it chose: HoldRequest.within is the
// domain of all its pods, HoldRequest.domains those of slices, which lie in it. The holds are as all others, and so is what follows: that a
// gang or slice is in one domain rests on the home alone.

const (
	// maxDomains bounds the domains that an answer names: pinned ones, and those with the most room.
	maxDomains = 4096
	// maxProbed bounds the classes that a question names, and the labels.
	maxProbed     = 16
	maxProbedKeys = 3
	maxPinned     = 256 // domains that it pins
)

// domain is the nodes with some values of some labels.
type domain struct{ keys, values []string }

// domainsOf reads the domains of a request by the numbers that its pods name, nil for none. It reports whether each
// that a pod names is there; there are at most as many as pods.
func domainsOf(m *wire.HoldRequest) (domains []*domain, ok bool) {
	if len(m.GetDomains()) > len(m.GetPods()) {
		return nil, false
	}
	domains = make([]*domain, 1+len(m.GetDomains()))
	for i := range domains {
		labels := m.GetWithin()
		if i > 0 {
			labels = append(slices.Clone(labels), m.GetDomains()[i-1])
		}
		if len(labels) == 0 {
			continue
		}
		d := &domain{}
		for _, l := range labels {
			d.keys, d.values = append(d.keys, l.GetKey()), append(d.values, l.GetValue())
		}
		domains[i] = d
	}
	return domains, !slices.ContainsFunc(m.GetPods(), func(p *wire.PodWant) bool { return int(p.GetDomain()) >= len(domains) })
}

// isIn reports whether a node is in a domain; every node is in none.
func (c *Core) isIn(d *domain, node string) bool {
	return d == nil || c.cache.In(node, d.keys, d.values)
}

// placeIn is place in a domain, with leanings, nil for none. Grades do not matter: there is one domain.
func (c *Core) placeIn(d *domain, namespace string, class *api.Class, rank api.Rank, allow func(int32) bool, l *topology.Leanings) (node string, victims []string, ok bool) {
	before := c.cache.Compared()
	defer c.spend(namespace, before)
	heed := c.mayGrade(namespace, class)
	if l == nil || !heed || c.spent.Spent(c.now, namespace) >= comparedAtOnce {
		return c.cache.PlaceIn(class, rank, d.keys, d.values, allow, heed, nil)
	}
	return c.cache.PlaceIn(class, rank, d.keys, d.values, allow, heed, l)
}

// allowed says by class which nodes constraints over many nodes allow, nil for all, as rulesTogether.
func (c *Core) allowed(namespace string, classes []*api.Class, sure bool) (allow []func(int32) bool, ok bool) {
	rules, ok := rulesTogether(c, namespace, classes, sure)
	allow = make([]func(int32) bool, len(classes))
	for i, r := range rules {
		if r != nil {
			allow[i] = func(number int32) bool {
				c.cache.Look(r.Cost())
				return r.Obstacle(number, true) == topology.None
			}
		}
	}
	return allow, ok
}

// rulesTogether makes the classes of a question those that the cache counts, and returns their rules. Pods of one class
// may be those that another one's affinity asks for: if that is to be sure, their labels have to say so. It reports
// whether all of this may be compared now.
func rulesTogether(c *Core, namespace string, classes []*api.Class, sure bool) (rules []*topology.Rules, ok bool) {
	rules = make([]*topology.Rules, len(classes))
	asked := slices.Clone(classes)
	for i, class := range asked {
		placed, few := c.placed(c.kinOf(namespace, class), class, true)
		if rules[i], ok = c.topology.RulesOf(namespace, class); !ok || !few || !c.mayCompare(namespace, placed) {
			return nil, false
		}
		classes[i] = placed
	}
	return c.topology.Together(rules, asked, sure), true
}

// probe tells a home shard how many pods fit into each domain. It is silent during a takeover, when not all pods are counted.
func (c *Core) probe(from api.Incarnation, m *wire.Probe) {
	keys := m.GetKeys()
	if !c.ready || c.takeover.stage != idle || !c.table.Has(from) ||
		len(keys) == 0 || len(keys) > maxProbedKeys || slices.Contains(keys, "") {
		c.ignored++
		return
	}
	classes, err := readClasses(m.GetClasses())
	if err != nil || len(classes) == 0 || len(classes) > maxProbed {
		c.ignored++
		return
	}
	var pinned [][]string
	for _, d := range m.GetPinned()[:min(len(m.GetPinned()), maxPinned)] {
		pinned = append(pinned, d.GetValues())
	}
	reply := &wire.Probed{Serial: m.GetSerial()}
	allow, ok := c.allowed(m.GetNamespace(), classes, false)
	if reply.Later = !ok; ok {
		before := c.cache.Compared()
		domains, more := c.cache.Survey(classes, keys, allow, pinned, maxDomains)
		c.spend(m.GetNamespace(), before)
		reply.More, reply.Unlabelled = more, len(domains) == 0 && !c.cache.Labelled(keys)
		for _, d := range domains {
			out := &wire.Domain{Values: d.Values, Spare: d.Spare, Pods: make([]uint32, len(d.Pods))}
			for i, n := range d.Pods {
				out.Pods[i] = uint32(min(n, math.MaxUint32))
			}
			reply.Domains = append(reply.Domains, out)
		}
	}
	c.emit(event.Send{To: from, Body: &wire.Envelope{Body: &wire.Envelope_Probed{Probed: reply}}})
}
