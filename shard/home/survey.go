package home

import (
	"maps"
	"strings"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// Surveys: what node shards say of how many pods fit into each domain.

// surveyAround is survey for a gang that is in a domain already, or whose slices are: where node shards have left out
// domains, they are asked to name those.
func (c *domains) surveyAround(g *gang, keys []string, w wanted, pin []string, t *tried) *survey {
	pins := pinsOf(pin, w.parts)
	if !t.cut {
		if x := c.survey(g, keys, w.kinds, nil); x == nil || !x.more || len(pins) == 0 {
			return x
		}
	}
	x := c.survey(g, keys, w.kinds, pins)
	t.cut = x == nil || x.more
	return x
}

// survey returns the answers of all node shards about pods of some kinds, nil while they are awaited. Domains inside
// of pinned ones are named even if there are too many.
func (c *domains) survey(g *gang, keys []string, kinds []kind, pinned [][]string) *survey {
	kinds = kinds[:min(len(kinds), maxSurveyed)]
	id := g.name.Namespace + "\x00" + strings.Join(keys, "\x00")
	for _, k := range kinds {
		id += "\x00" + k.class.Key
	}
	for _, values := range pinned {
		id += "\x00/" + strings.Join(values, "\x00")
	}
	x := c.surveys.of[id]
	abandoned := x != nil && x.answered.IsZero() && !x.gangs[g.id] && !c.now.Before(x.asked.Add(c.cfg.SkipAfter))
	if x == nil || abandoned || !x.answered.IsZero() && !c.now.Before(x.answered.Add(surveyKept)) {
		x = c.beginSurvey(g, id, keys, kinds, pinned)
	}
	if x.answered.IsZero() {
		c.forgetLeft(x.answers)
		if until := x.asked.Add(c.cfg.SkipAfter); c.toldAll(x) || !c.now.Before(until) {
			c.endSurvey(x)
		} else {
			if again := x.sent.Add(c.cfg.AskAgain); !c.now.Before(again) {
				c.sendProbe(x)
			}
			x.gangs[g.id] = true
			c.wakeAt(g, x.sent.Add(c.cfg.AskAgain))
			c.wakeAt(g, until)
			return nil
		}
	}
	return x
}

func (c *domains) beginSurvey(g *gang, id string, keys []string, kinds []kind, pinned [][]string) *survey {
	all := &c.surveys
	if all.of == nil {
		all.of, all.open, all.silent = map[string]*survey{}, map[uint64]*survey{}, map[api.Incarnation]bool{}
	}
	c.dropSurveys()
	all.serial++
	x := &survey{id: id, keys: keys, asked: c.now, rooms: map[string]*room{},
		gangs: map[string]bool{}}
	var list classes
	for _, k := range kinds {
		list.of(k.class)
		x.classes = append(x.classes, k.class)
	}
	x.body = &wire.Probe{Namespace: g.name.Namespace, Classes: list.wire, Keys: keys, Serial: all.serial}
	for _, values := range pinned {
		x.body.Pinned = append(x.body.Pinned, &wire.Domain{Values: values})
	}
	x.answers = c.shards.poll(g.name.Namespace, &list)
	all.of[id], all.open[all.serial] = x, x
	c.sendProbe(x)
	return x
}

// dropSurveys lets go of answers that are not used any more, and of questions that nobody waits for: their gangs are
// gone.
func (c *domains) dropSurveys() {
	all := &c.surveys
	for id, x := range all.of {
		if !x.answered.IsZero() && !c.now.Before(x.answered.Add(surveyKept)) {
			delete(all.of, id)
		}
	}
	for _, serial := range api.SortedKeys(all.open) {
		if x := all.open[serial]; !c.now.Before(x.asked.Add(c.cfg.SkipAfter)) {
			c.endSurvey(x)
		}
	}
	maps.DeleteFunc(all.silent, func(shard api.Incarnation, _ bool) bool { return !c.isMember(shard) })
}

// sendProbe asks those that have not answered.
func (c *domains) sendProbe(x *survey) {
	x.sent = c.now
	for _, shard := range c.silent(x.answers) {
		c.send(shard, &wire.Envelope{Body: &wire.Envelope_Probe{Probe: x.body}})
	}
}

// toldAll reports whether a survey is over: all have answered, but for those that did not answer the last question in
// time either. Else each level of domains would cost a gang Config.SkipAfter.
func (c *domains) toldAll(x *survey) bool {
	for shard, a := range x.answers {
		if a == awaited && (x.heard == heardNothing || !c.surveys.silent[shard]) {
			return false
		}
	}
	return true
}

func (c *domains) onProbed(from api.Incarnation, m *wire.Probed) {
	delete(c.surveys.silent, from)
	x := c.surveys.open[m.GetSerial()]
	if x == nil || !x.answers.take(from, m.GetLater()) {
		return
	}
	x.more = x.more || m.GetMore()
	if x.heard = max(x.heard, heardAnswer); !m.GetUnlabelled() {
		x.heard = heardLabels
	}
	for _, d := range m.GetDomains() {
		if len(d.GetValues()) != len(x.keys) || len(d.GetPods()) != len(x.classes) {
			continue
		}
		id := strings.Join(d.GetValues(), "\x00")
		r := x.rooms[id]
		if r == nil {
			r = &room{values: d.GetValues(), pods: make([]int64, len(x.classes)), at: map[api.Incarnation][]int64{}}
			x.rooms[id] = r
		}
		at := make([]int64, len(x.classes))
		for i, n := range d.GetPods() {
			at[i] = int64(n)
			r.pods[i] += at[i]
			r.said += at[i]
		}
		r.at[from] = at
		r.spare = api.AddSat(r.spare, d.GetSpare())
	}
	if c.toldAll(x) {
		c.endSurvey(x)
	}
}

// endSurvey has the gangs go on that wait for a survey: all have answered, or it took too long.
func (c *domains) endSurvey(x *survey) {
	x.answered = c.now
	delete(c.surveys.open, x.body.GetSerial())
	for shard, a := range x.answers {
		if a == awaited {
			c.surveys.silent[shard] = true
		}
	}
	for _, id := range api.SortedKeys(x.gangs) {
		if g := c.gangs[id]; g != nil {
			c.mark(g)
		}
	}
	x.gangs = nil
}

// pinsOf returns the domains in which pods of a gang are, and to which others have to go.
func pinsOf(pin []string, parts []part) (pins [][]string) {
	if len(pin) > 0 {
		pins = append(pins, pin)
	}
	known := map[string]bool{"": true}
	for _, o := range parts {
		if !known[o.in] && len(pins) < maxPinned {
			known[o.in] = true
			pins = append(pins, strings.Split(o.in[1:], "\x00"))
		}
	}
	return pins
}
