package topology

import (
	"cmp"
	"slices"

	"basalt.dev/basalt/api"
)

// readTermsAgain counts all pods anew, by all terms that they carry.
func (v *View) readTermsAgain() {
	clear(v.terms)
	for _, name := range api.SortedKeys(v.spaces) {
		v.spaces[name].readTermsAgain(v)
	}
}

// readTermsAgain does it for a namespace.
func (s *space) readTermsAgain(v *View) {
	s.terms = nil
	clear(v.rules)
	v.generation++
	for _, r := range v.order {
		if r.namespace == s.name {
			r.terms = v.wide(s.name, r.repels)
		}
	}
	uids := api.SortedKeys(s.pods)
	before := make([][]entry, len(uids))
	for i, uid := range uids {
		before[i] = s.pods[uid].entries
		v.set(s.pods[uid], nil)
	}
	for _, list := range s.kins {
		for _, k := range list {
			for _, c := range k.terms {
				c.kins--
			}
		}
	}
	clear(s.kins)
	for i, uid := range uids {
		p := s.pods[uid]
		if e := before[i]; len(e) > 0 && e[0].weight == held {
			v.set(p, []entry{{node: e[0].node, kin: v.kinOf(s, p.object), weight: held}})
		}
		v.recount(s, p)
	}
}

// watch has the pods of a namespace counted from now on.
func (v *View) watch(s *space) {
	if s.counted {
		return
	}
	s.counted = true
	for _, uid := range api.SortedKeys(s.pods) {
		v.recount(s, s.pods[uid])
	}
}

// recount counts a pod where it is, or may come to be.
func (v *View) recount(s *space, p *pod) {
	rows := v.rows[p.object.UID]
	if len(rows) > 0 {
		v.endRows(p)
		rows = v.rows[p.object.UID]
	}
	if !s.counted && (p.object.Class == nil || len(v.wide(s.name, string(p.object.Class.Repels))) == 0) {
		return
	}
	at := cmp.Or(p.object.Node, p.object.Nominated)
	if at == "" && len(rows)+len(p.entries) == 0 {
		return
	}
	k := v.kinOf(s, p.object)
	var now []entry
	switch {
	case p.object.Node != "":
		now = []entry{{node: v.nodeOf(at), kin: k, weight: bound}}
	case at != "":
		now = []entry{{node: v.nodeOf(at), kin: k, weight: nominated}}
	default:
		for _, r := range rows {
			e := entry{node: v.nodeOf(r.node), kin: k, weight: promised}
			if r.bound {
				e.weight = bound
			}
			now = append(now, e)
		}
		if len(now) == 0 && p.entries[0].weight == held { // without rows it has entries
			now = []entry{{node: p.entries[0].node, kin: k, weight: held}}
		}
	}
	v.set(p, now)
}

// set replaces what a pod counts as.
func (v *View) set(p *pod, now []entry) {
	if slices.Equal(p.entries, now) {
		return
	}
	for _, e := range now {
		v.count(e, 1)
	}
	for _, e := range p.entries {
		v.count(e, -1)
	}
	p.entries = now
	if v.trials == 0 {
		v.giveUp()
	}
}

func (v *View) count(e entry, by int32) {
	var c counts
	c[e.weight] = 1
	k := e.kin
	v.nodes[e.node].entries += int(by)
	on := k.on[e.node]
	on.add(c, by)
	if on.none() {
		delete(k.on, e.node)
	} else {
		k.on[e.node] = on
	}
	opens := by < 0 || e.weight == bound
	if v.asked == nil {
		for _, p := range k.dear {
			v.charge(p.maker, p.n)
		}
	}
	for _, s := range k.in {
		if v.asked != nil && !v.asked[s] {
			continue
		}
		s.add(e.node, c, by)
		if opens {
			v.open(s, k.space.name)
		}
	}
	for _, s := range k.terms {
		if v.asked != nil && !v.asked[&s.counter] {
			continue
		}
		s.add(e.node, c, by)
		s.heed(v)
		if opens {
			v.open(&s.counter, k.space.name)
		}
	}
}
