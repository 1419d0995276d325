package topology

import (
	"slices"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
)

// Member is a pod of a gang with the node that it is to be bound to.
type Member struct {
	UID       string
	Namespace string
	Version   string // that its row names
	Node      string
	Class     *api.Class // as it was asked for
}

// Verdict is what comes of a judgement.
type Verdict struct {
	Wait     bool     // too little is known yet,
	Behind   Behind   // or the pods may be bound once other domains have as many
	Against  []string // UIDs of pods that a constraint keeps from their nodes, if all others are bound; none: all may be bound
	Obstacle Obstacle // of the first of them
	Node     string
}

// Behind names the constraint and the domain because of which pods wait. Of the pods for which it is the same, no
// later row may be bound before an earlier one may.
type Behind struct {
	rules  *Rules // nil: they do not wait
	spread int    // of rules
	domain int32
}

// None reports whether pods do not wait.
func (b Behind) None() bool { return b.rules == nil }

// Rises reports whether the minimum of the constraint will be higher once the pods that are on their way are bound,
// as far as is known here.
func (b Behind) Rises() bool {
	s := &b.rules.spread[b.spread]
	return s.expected(s.domains, true) > s.minimum(s.domains)
}

// Stamp changes when something is counted otherwise for the rules.
func (b Behind) Stamp() uint64 { return b.rules.stamp() }

// Judge says whether pods may be bound whose rows are in the log up to a revision. Pods are judged as they are in the
// end, all of them together, at the place of the last; or else one after another, as their rows are in the log, as if
// they had been placed by themselves.
//
// Pods whose rows are all in one key, and which nothing but a spread keeps from their nodes, wait: others may raise
// its minimum, wherever their rows are. Two constraints may so have pods wait for each other. Whoever calls has to
// end a wait that lasts too long (Behind.Rises). The pods of a gang with several keys do not wait.
func (v *View) Judge(revision int64, members []Member) Verdict {
	return v.judge(revision, members, true)
}

// Unfit returns the pods that may not be bound, of those that are left of a Commit: others that were judged with them
// will not be bound. Nor may those with affinity or spread, which may have relied on these, if too little is known
// now.
func (v *View) Unfit(revision int64, left []Member) (unfit map[string]bool) {
	unfit = map[string]bool{}
	for len(left) > 0 {
		verdict := v.judge(revision, left, false)
		for _, uid := range verdict.Against {
			unfit[uid] = true
		}
		if verdict.Wait {
			for _, m := range left {
				if len(m.Class.Joins) > 0 {
					unfit[m.UID] = true
				}
			}
		}
		if len(verdict.Against) == 0 {
			break
		}
		left = slices.DeleteFunc(slices.Clone(left), func(m Member) bool { return unfit[m.UID] })
	}
	return unfit
}

// judge is Judge, with or without the wait for other domains.
func (v *View) judge(revision int64, members []Member, patient bool) Verdict {
	if (v.position < revision || v.position == 0 || v.gap) && !fault.On(fault.JudgedUnseen) {
		return Verdict{Wait: true}
	}
	v.settleBlind()
	point, first := place{revision: revision, index: -1}, revision
	unknown := make([]bool, len(members)) // the member's node
	for i := range members {
		for _, r := range v.rows[members[i].UID] {
			if r.node == members[i].Node && r.version == members[i].Version {
				first = min(first, r.place.revision)
				unknown[i] = unknown[i] || !v.knowsNode(r)
				if r.place.compare(point) > 0 {
					point = r.place
				}
			}
		}
	}
	if verdict := v.judgeClaims(members, point); verdict.Wait || len(verdict.Against) > 0 {
		return verdict
	}
	rules := make([]*Rules, len(members))
	some, asked := false, Asked{}
	for i := range members {
		m := &members[i]
		r, wait := v.judgedBy(m, point)
		if wait {
			return Verdict{Wait: true}
		}
		rules[i] = r
		if r == nil {
			continue
		}
		if unknown[i] || !v.nodes[v.nodeOf(m.Node)].seen { // it may be in any domain
			return Verdict{Wait: true}
		}
		some = true
		asked.Rules(r)
	}
	if !some {
		return Verdict{}
	}
	own, uids := namesOf(members)
	if v.Heavy(asked, members[0].Namespace, uids) {
		return Verdict{Wait: true}
	}
	t := v.Try(asked)
	defer t.End()
	for i := range members {
		t.Without(members[i].Namespace, members[i].UID)
	}
	v.sortOrder()
	for i := len(v.order) - 1; i >= 0 && v.order[i].place.compare(point) > 0; i-- { // those have to respect us, unless they are bound
		if r := v.order[i]; !r.givenUp && !r.bound && !own[r.uid] && len(v.rows[r.uid]) == 1 && asked.count(v.podOf(r.namespace, r.uid)) {
			t.Without(r.namespace, r.uid)
		}
	}
	verdict, behind := Verdict{}, Behind{}
	against := func(i int, o Obstacle) {
		if len(verdict.Against) == 0 {
			verdict.Obstacle, verdict.Node = o, members[i].Node
		}
		verdict.Against = append(verdict.Against, members[i].UID)
	}
	// An affinity asks for pods that were there before, so its pods join one after another. The rest is judged in the
	// end.
	var joining []int
	for i := range members {
		if rules[i] != nil && len(rules[i].affinity) > 0 {
			joining = append(joining, i)
		} else {
			t.Add(members[i].Namespace, members[i].UID, members[i].Node)
		}
	}
	for len(joining) > 0 {
		left := joining[:0:0]
		for _, i := range joining {
			if (&Rules{affinity: rules[i].affinity, self: rules[i].self}).Obstacle(v.nodeOf(members[i].Node), false) == None {
				t.Add(members[i].Namespace, members[i].UID, members[i].Node)
			} else {
				left = append(left, i)
			}
		}
		if len(left) == len(joining) {
			for _, i := range left {
				against(i, Lonely)
			}
			break
		}
		joining = left
	}
	for i := range members {
		if rules[i] == nil || slices.Contains(verdict.Against, members[i].UID) {
			continue
		}
		t.Without(members[i].Namespace, members[i].UID)
		rest := *rules[i]
		rest.affinity = nil
		switch n := v.nodeOf(members[i].Node); rest.Obstacle(n, false) {
		case None:
		case Skewed:
			if patient && first == point.revision && rest.even(n) == None {
				behind = rules[i].behind(n)
				break
			}
			fallthrough
		default:
			against(i, rest.Obstacle(n, false))
		}
		t.Add(members[i].Namespace, members[i].UID, members[i].Node)
	}
	if verdict.Behind, verdict.Wait = behind, !behind.None() && len(verdict.Against) == 0; !verdict.Wait {
		verdict.Behind = Behind{}
	}
	if (verdict.Wait || len(verdict.Against) > 0) && v.inSequence(t, members, rules) {
		return Verdict{}
	}
	return verdict
}

// namesOf returns the UIDs of pods.
func namesOf(members []Member) (own map[string]bool, uids []string) {
	own = make(map[string]bool, len(members))
	for i := range members {
		own[members[i].UID] = true
		uids = append(uids, members[i].UID)
	}
	return own, uids
}

// inSequence reports whether each pod may go to its node beside those whose rows come before its own.
func (v *View) inSequence(t *Trial, members []Member, rules []*Rules) bool {
	places, order := make([]place, len(members)), make([]int, len(members))
	for i := range members {
		m := &members[i]
		order[i] = i
		for _, r := range v.rows[m.UID] {
			if r.node == m.Node && r.version == m.Version {
				places[i] = r.place
			}
		}
		t.Without(m.Namespace, m.UID)
	}
	slices.SortStableFunc(order, func(a, b int) int { return places[a].compare(places[b]) })
	for _, i := range order {
		m := &members[i]
		if rules[i] != nil && rules[i].Obstacle(v.nodeOf(m.Node), false) != None {
			return false
		}
		t.Add(m.Namespace, m.UID, m.Node)
	}
	return true
}

// judgeClaims judges by the claims that one pod at a time may use. All pods that use one name it, and so do their
// objects, whatever their labels and versions: so of an earlier row nothing has to be known but its pod.
func (v *View) judgeClaims(members []Member, point place) (verdict Verdict) {
	used := map[[2]string]bool{}
	for i := range members {
		m := &members[i]
		for _, claim := range v.onePodOf(string(m.Class.Repels)) {
			for r := range v.blind {
				if r.namespace == m.Namespace && r.uid != m.UID && r.place.compare(point) <= 0 && !v.Knows(r.namespace, r.uid) {
					return Verdict{Wait: true}
				}
			}
			key := [2]string{m.Namespace, claim}
			inUse := used[key] || slices.ContainsFunc(v.in(m.Namespace).users[claim], func(u user) bool {
				p := u.pod.object
				return p.UID != m.UID && (p.Node != "" || !fault.On(fault.ClaimRowsIgnored) && slices.ContainsFunc(v.rows[p.UID], func(r *row) bool {
					return r.place.compare(point) <= 0 && !isOne(members, r)
				}))
			})
			if used[key] = true; !inUse || slices.Contains(verdict.Against, m.UID) {
				continue
			}
			if len(verdict.Against) == 0 {
				verdict.Obstacle, verdict.Node = InUse, m.Node
			}
			verdict.Against = append(verdict.Against, m.UID)
		}
	}
	return verdict
}

// isOne reports whether a row is that of one of some pods: they are judged together.
func isOne(members []Member, r *row) bool {
	return slices.ContainsFunc(members, func(m Member) bool { return m.UID == r.uid && m.Node == r.node && m.Version == r.version })
}

// Asked are the counters that some rules and leanings ask.
type Asked map[*counter]bool

// Rules adds what rules ask.
func (a Asked) Rules(r *Rules) {
	if r == nil {
		return
	}
	for _, s := range r.asks {
		a[s] = true
	}
	for _, t := range r.avoided {
		a[t.counter] = true
	}
}

// Leanings adds what leanings ask.
func (a Asked) Leanings(l *Leanings) {
	if l == nil {
		return
	}
	for _, s := range l.asks {
		a[s] = true
	}
}

// count reports whether some of them count a pod.
func (a Asked) count(p *pod) bool {
	return p != nil && slices.ContainsFunc(p.entries, func(e entry) bool { return a.of(e.kin) > 0 })
}

// of returns how many count a kin.
func (a Asked) of(k *kin) (n int) {
	for _, s := range k.in {
		n += int(flag(a[s]))
	}
	for _, s := range k.terms {
		n += int(flag(a[&s.counter]))
	}
	return n
}

// triedAtOnce is how many counters the pods of a trial may change.
const triedAtOnce = 1 << 16

// Heavy reports whether a trial with some pods of a namespace would take too long: each is counted by many of those
// that are asked.
func (v *View) Heavy(asked Asked, namespace string, uids []string) bool {
	if len(asked)*len(uids) <= triedAtOnce {
		return false
	}
	sum, of := 0, map[*kin]int{}
	for _, uid := range uids {
		p := v.podOf(namespace, uid)
		if p == nil {
			continue
		}
		k := v.kinOf(v.in(namespace), p.object)
		n, known := of[k]
		if !known {
			n = asked.of(k)
			of[k] = n
		}
		if sum += n; sum > triedAtOnce {
			return true
		}
	}
	return false
}

// judgedBy returns the rules of a pod, or that it is not known yet what they are.
func (v *View) judgedBy(m *Member, point place) (_ *Rules, wait bool) {
	for r := range v.blind { // its labels are not known, but its terms are
		if r.place.compare(point) > 0 || r.uid == m.UID || fault.On(fault.RowTermsIgnored) {
			continue
		}
		for _, t := range r.terms {
			if r.mayReach(v, t) && t.Concerns(m.Namespace, v.in(m.Namespace).labels) {
				return nil, true
			}
		}
	}
	class := m.Class
	constrained := len(class.Joins)+len(v.wide(m.Namespace, string(class.Repels))) > 0
	if !constrained && (!v.Concerned(m.Namespace) || fault.On(fault.PlainUnjudged)) {
		return nil, false
	}
	if p := v.podOf(m.Namespace, m.UID); p != nil && api.NewerVersion(m.Version, p.object.ResourceVersion) {
		return nil, true // its labels may be others
	} else if p != nil && !p.object.Unlisted {
		class = class.With(p.object.Labels)
	} else if p == nil && !api.NewerVersion(m.Version, v.version) {
		return nil, false // it is gone: its Binding will be refused
	} else if p == nil {
		return nil, true
	}
	r, ok := v.RulesOf(m.Namespace, class)
	if !ok {
		return nil, true
	}
	if r == nil {
		return nil, false
	}
	for b := range v.blind {
		if b.place.compare(point) > 0 || b.uid == m.UID || fault.On(fault.LabelsUnawaited) {
			continue
		}
		for _, s := range r.asks {
			if s.spaces == nil || slices.Contains(s.spaces, b.namespace) {
				return nil, true
			}
		}
	}
	return r, false
}

// mayReach reports whether a row's node may be in a domain of a term.
func (r *row) mayReach(v *View, t *api.Term) bool {
	return !v.knowsNode(r) || v.columnOf(t.Topology).at(v.nodeOf(r.node)) >= 0
}

// Trial counts pods otherwise for a moment: those that are to be placed together support each other.
type Trial struct {
	view  *View
	saved map[*pod][]entry
	order []*pod
}

// Try begins a trial, in which only what is asked counts. End has to be called before the next event.
func (v *View) Try(asked Asked) *Trial {
	v.trials, v.asked = v.trials+1, asked
	return &Trial{view: v, saved: map[*pod][]entry{}}
}

func (t *Trial) save(namespace, uid string) *pod {
	p := t.view.podOf(namespace, uid)
	if p == nil {
		return nil
	}
	if _, known := t.saved[p]; !known {
		t.saved[p] = p.entries
		t.order = append(t.order, p)
	}
	return p
}

// Without leaves a pod out.
func (t *Trial) Without(namespace, uid string) {
	if p := t.save(namespace, uid); p != nil {
		t.view.set(p, nil)
	}
}

// Leave leaves pods out for as long as a function runs.
func (t *Trial) Leave(pods [][2]string, run func()) {
	var gone []*pod
	for _, of := range pods { // namespace and UID
		if p := t.save(of[0], of[1]); p != nil && len(p.entries) > 0 {
			gone = append(gone, p)
		}
	}
	before := make([][]entry, len(gone))
	for i, p := range gone {
		before[i] = p.entries
		t.view.set(p, nil)
	}
	run()
	for i, p := range gone {
		t.view.set(p, before[i])
	}
}

// Add counts a pod as bound to a node.
func (t *Trial) Add(namespace, uid, name string) {
	if p := t.save(namespace, uid); p != nil {
		t.view.set(p, []entry{{node: t.view.nodeOf(name), kin: t.view.kinOf(t.view.in(namespace), p.object), weight: bound}})
	}
}

// End counts as before.
func (t *Trial) End() {
	for _, p := range t.order {
		t.view.set(p, t.saved[p])
	}
	t.view.trials, t.view.asked = t.view.trials-1, nil
}
