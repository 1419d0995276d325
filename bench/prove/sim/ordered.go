package sim

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// C2, for constraints over topology domains, recounted from the histories of both servers alone. Rows of intents are ordered by the
// revisions at which their keys were created; the rows that are bound by one word of a home are one point, at the last of them. When a
// Binding lands, and again when one lands whose row has an earlier place, each pod of ours must satisfy what it carries:
//
//   - against every pod that is on a node by a row with an earlier place and was not over when the pod landed,
//   - supported only by pods that were bound, at some moment since its rows were durable and wide, by pods that Bindings of ours bound after
//     that moment, or by rows of the same point, but for those that were given up before the rest of their Commit was bound. For a shard is
//     told what became of Bindings, and counts their pods before its watch shows them, and before it shows which of the others were deleted
//     meanwhile.
//
// Nobody knows when it was judged in between, nor how far the judge's watch had come. So what counts against a pod is what counted all that
// time, under all labels that it had; and what supports it is what did at any moment. What others bound counts against it once it was seen
// for long. If nodes came, went or were labelled anew in that time, nothing is judged.

// wide is how late news may be.
const wide = time.Minute

// line is a row of an intent.
type line struct {
	uid, node string
	version   string    // of the node, that the shard knew
	place     int64     // the revision at which its key was created, and 16 bits for its position in the key
	at        time.Time // when it was durable
	row       string    // rowKey
	commit    string    // that it was written for
	word      *word
}

// word is what has rows bound: a Commit that binds at once, or the Binds of a home that follow several Commits.
type word struct {
	gang   string
	serial uint64
	home   api.Incarnation
	binds  bool // the Commit did so
	said   bool
	void   bool // withdrawn before
	lines  []*line
}

// placeOf is that of the last row of a word. Rows of pods that were gone before they were written bind nothing, and say nothing.
func (o *ordered) placeOf(w *word) (last int64) {
	for _, r := range w.lines {
		gone := slices.ContainsFunc(o.history[r.uid], func(s sight) bool { return s.gone && s.at.Before(r.at) })
		if !gone || last == 0 && r == w.lines[len(w.lines)-1] {
			last = max(last, r.place)
		}
	}
	return last
}

func (o *word) since() (last time.Time) {
	for _, r := range o.lines {
		if r.at.After(last) {
			last = r.at
		}
	}
	return last
}

// landed is a pod that a Binding of ours bound.
type landed struct {
	line *line
	pod  *corev1.Pod // as it was bound
	at   time.Time
}

// sight is a pod as it was from some moment on.
type sight struct {
	at       time.Time
	labels   map[string]string
	node     string
	deleting bool
	gone     bool // or finished
	started  bool
}

// ordered is what this judge knows.
type ordered struct {
	words   map[string]*word            // by gang and serial
	lines   map[string]map[string]*line // by key and pod
	landed  map[string]*landed
	history map[string][]sight
	ours    map[string]bool // bound by a Binding of ours
	nodes   time.Time       // when they changed
	spaces  time.Time       // when the namespace was labelled anew
}

func newOrdered() ordered {
	return ordered{words: map[string]*word{}, lines: map[string]map[string]*line{}, landed: map[string]*landed{}, history: map[string][]sight{}, ours: map[string]bool{}}
}

// says takes note of which rows are bound together.
func (o *ordered) says(x *shard, m event.Send) {
	switch b := m.Body.Body.(type) {
	case *wire.Envelope_Commit:
		key := b.Commit.Gang.Uid + " " + strconv.FormatUint(b.Commit.Serial, 10)
		if o.words[key] == nil {
			o.words[key] = &word{gang: b.Commit.Gang.Uid, serial: b.Commit.Serial, home: x.inc, binds: b.Commit.Bind}
		}
	case *wire.Envelope_Withdraw:
		for _, w := range o.words {
			if w.gang == b.Withdraw.Gang.Uid && w.serial <= b.Withdraw.Serial && !w.said {
				w.void = true
			}
		}
	case *wire.Envelope_Bind:
		first := o.words[b.Bind.GangUid+" "+strconv.FormatUint(b.Bind.Serial, 10)]
		if first == nil || first.binds || first.said {
			return
		}
		first.said = true
		for _, key := range slices.Sorted(maps.Keys(o.words)) {
			w := o.words[key]
			if w == first || w.gang != first.gang || w.home != x.inc || w.binds || w.said || w.void {
				continue
			}
			w.said = true
			first.lines = append(first.lines, w.lines...)
			for _, r := range w.lines {
				r.word = first
			}
			o.words[key] = first
		}
	}
}

// wrote takes note of rows when their key is created.
func (o *ordered) wrote(c *check, ch protocol.Op) {
	rec, is := ch.Value.Message.(*wire.IntentsRecord)
	kv := c.w.store.Keys[ch.Key]
	if !is || kv == nil || kv.Version != 1 {
		return
	}
	writer := strings.Split(ch.Key, "/")[1]
	o.lines[ch.Key] = map[string]*line{}
	for i, r := range rec.Rows {
		last := c.sought[writer+" "+r.PodUid]
		l := &line{uid: r.PodUid, node: r.Node, version: r.NodeResourceVersion, place: kv.Create<<16 + int64(i), at: c.w.now, row: rowKey(r.PodUid, r.PodResourceVersion, r.Node), commit: last.commit}
		if l.word = o.words[last.commit]; l.word == nil || last.row != l.row {
			l.word = &word{gang: rec.Gangs[r.Gang].Uid, binds: true}
		}
		l.word.lines = append(l.word.lines, l)
		o.lines[ch.Key][r.PodUid] = l
	}
}

// saw takes note of a change of a pod.
func (o *ordered) saw(w *world, p *corev1.Pod, gone bool) {
	s := sight{at: w.now, labels: p.Labels, node: p.Spec.NodeName, deleting: p.DeletionTimestamp != nil, gone: gone || finished(p), started: p.Status.StartTime != nil}
	past := o.history[string(p.UID)]
	if n := len(past); n > 0 && past[n-1].node == s.node && past[n-1].deleting == s.deleting && past[n-1].gone == s.gone && past[n-1].started == s.started && maps.Equal(past[n-1].labels, s.labels) {
		return
	}
	o.history[string(p.UID)] = append(past, s)
	if len(o.history) > 200 {
		for uid, past := range o.history {
			if last := past[len(past)-1]; last.gone && w.now.Sub(last.at) > 3*wide {
				delete(o.history, uid)
				delete(o.landed, uid)
			}
		}
	}
}

// binds judges a Binding that has just landed, and the earlier ones that its row was to be respected by.
func (o *ordered) binds(c *check, b event.BindPod) {
	w := c.w
	key := keys.Intents(b.Row.Incarnation, b.Row.N)
	r := o.lines[key][b.Row.PodUID]
	p := w.api.podByUID(b.Row.PodUID)
	o.ours[b.Row.PodUID] = true
	if r == nil || p == nil {
		return
	}
	l := &landed{r, p, w.now}
	o.landed[r.uid] = l
	if !w.load.domains || !o.bond(c, l) {
		return
	}
	for _, uid := range slices.Sorted(maps.Keys(o.landed)) {
		if other := o.landed[uid]; other != l && other.line.word != r.word && r.place < o.placeOf(other.line.word) && !o.last(uid).gone {
			o.bond(c, other)
		}
	}
}

func (o *ordered) last(uid string) sight {
	past := o.history[uid]
	if len(past) == 0 {
		return sight{gone: true}
	}
	return past[len(past)-1]
}

// bond judges what a pod requires of its domain; it reports false when nothing can be said.
func (o *ordered) bond(c *check, l *landed) bool {
	from := l.line.word.since().Add(-wide)
	if o.nodes.After(from) {
		return false
	}
	for i := range l.pod.Spec.TopologySpreadConstraints {
		o.spread(c, l, &l.pod.Spec.TopologySpreadConstraints[i], from)
	}
	if a := l.pod.Spec.Affinity; a != nil && a.PodAffinity != nil {
		o.affinity(c, l, a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, from)
	}
	return true
}

func chosen(s *metav1.LabelSelector) func(map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return func(map[string]string) bool { return false }
	}
	return func(of map[string]string) bool { return selector.Matches(labels.Set(of)) }
}

// against are the nodes of pods that counted against a pod all the time: since its rows were durable and until it landed.
func (o *ordered) against(c *check, l *landed, from time.Time, terminating bool, match func(map[string]string) bool) map[string]string {
	out := map[string]string{}
	durable := l.line.word.since()
	for uid, past := range o.history {
		other := o.landed[uid]
		if uid == l.line.uid {
			continue
		}
		if other != nil {
			r := other.line
			if r.word != l.line.word && (r.place > o.placeOf(l.line.word) || r.place == o.placeOf(l.line.word) && other.at.After(l.at)) {
				continue
			}
		} else if o.ours[uid] {
			continue
		}
		certain, node, since := true, "", time.Time{}
		for i, s := range past {
			if i+1 < len(past) && past[i+1].at.Before(from) || s.at.After(l.at) && (other == nil || !other.at.After(l.at)) {
				continue
			}
			if s.node != "" && node == "" {
				node, since = s.node, s.at
			}
			certain = certain && match(s.labels) && !s.gone && (terminating || !s.deleting)
		}
		if !certain || node == "" || other == nil && (durable.Sub(since) < wide || !o.seenBy(c, uid, durable) || !o.last(uid).started) {
			continue
		}
		out[uid] = node
	}
	return out
}

// seenBy reports whether all shards were shown that a pod has a node, ten seconds before.
func (o *ordered) seenBy(c *check, uid string, at time.Time) bool {
	for _, x := range c.w.shards {
		if seen, shown := x.bound[uid]; !shown || at.Sub(seen) < 10*time.Second {
			return false
		}
	}
	return true
}

// moments at which what was bound changed, the last first.
func (o *ordered) moments(from, to time.Time) []time.Time {
	out := []time.Time{to, from}
	for _, past := range o.history {
		for _, s := range past {
			if s.at.After(from) && s.at.Before(to) {
				out = append(out, s.at)
			}
		}
	}
	slices.SortFunc(out, func(a, b time.Time) int { return b.Compare(a) })
	return slices.CompactFunc(out, time.Time.Equal)
}

// bound are the nodes of the pods that were bound at a moment, and of those of the same point.
func (o *ordered) bound(l *landed, at time.Time, match func(*sight) bool) map[string]string {
	out := map[string]string{}
	for uid, past := range o.history {
		if uid == l.line.uid {
			continue
		}
		for i := range past {
			if s := &past[i]; s.node != "" && !s.gone && lasted(past, i, at, at) && match(s) {
				out[uid] = s.node
			}
		}
	}
	return out
}

// lasted reports whether a pod was as past[i] says at some moment between two: where it changed, either.
func lasted(past []sight, i int, from, to time.Time) bool {
	return !past[i].at.After(to) && (i+1 == len(past) || !past[i+1].at.Before(from))
}

// ahead adds the pods that Bindings of ours bound after a moment: those who judged may have been told, and their watch may be there yet.
func (o *ordered) ahead(out map[string]string, l *landed, at time.Time, match func(map[string]string) bool) {
	for uid, other := range o.landed {
		if uid != l.line.uid && other.at.After(at) && !other.at.After(l.at) && match(other.pod.Labels) {
			out[uid] = other.line.node
		}
	}
}

// with adds the rows of the same point.
func (o *ordered) with(c *check, out map[string]string, l *landed, match func(map[string]string) bool) {
	for _, r := range l.line.word.lines {
		if r != l.line && c.mayBind(r, l.line) && o.ever(r.uid, match) {
			out[r.uid] = r.node
		}
	}
}

// mayBind reports whether a row was not given up when another one of the same point was bound. All rows of a Commit are sent at once.
func (c *check) mayBind(r, bound *line) bool { return r.commit != bound.commit || c.asked[r.row] }

// ever reports whether a pod ever had labels that match.
func (o *ordered) ever(uid string, match func(map[string]string) bool) bool {
	return slices.ContainsFunc(o.history[uid], func(s sight) bool { return match(s.labels) })
}

func (o *ordered) spread(c *check, l *landed, s *corev1.TopologySpreadConstraint, from time.Time) {
	w := c.w
	match := chosen(s.LabelSelector)
	domain := map[string]string{} // of the nodes that count
	least := map[string]int{}
	for _, n := range w.api.nodes.names() {
		node := w.api.nodes.objects[n].Object.(*corev1.Node)
		if value, has := node.Labels[s.TopologyKey]; has && labels.SelectorFromSet(l.pod.Spec.NodeSelector).Matches(labels.Set(node.Labels)) {
			domain[node.Name] = value
			least[value] = 0
		}
	}
	at, has := domain[l.line.node]
	if !has {
		w.fail("C2: pod %s is bound to %s, which is in no %s", l.line.uid, l.line.node, s.TopologyKey)
	}
	there := 0
	for _, node := range o.against(c, l, from, false, match) {
		if domain[node] == at && domain[node] != "" {
			there++
		}
	}
	if match(l.pod.Labels) {
		there++
	}
	need := there - int(s.MaxSkew)
	if need <= 0 {
		return
	}
	best := 0
	if s.MinDomains == nil || len(least) >= int(*s.MinDomains) {
		for _, t := range o.moments(from, l.at) {
			clear(least)
			for _, value := range domain {
				least[value] = 0
			}
			pods := o.bound(l, t, func(s *sight) bool { return match(s.labels) && !s.deleting })
			o.ahead(pods, l, t, match)
			o.with(c, pods, l, match)
			for _, node := range pods {
				if value, counts := domain[node]; counts {
					least[value]++
				}
			}
			best = max(best, slices.Min(slices.Collect(maps.Values(least))))
			if best >= need {
				return
			}
		}
	}
	w.fail("C2: pod %s is bound to %s at place %d, %s %s has %d pods that its spread counts, and no more than %d were bound in the one with the fewest at any time: skew %d", l.line.uid, l.line.node, o.placeOf(l.line.word)>>16, s.TopologyKey, at, there, best, s.MaxSkew)
}

// asksFor reports whether a pod has the same affinity, or is not known any more.
func (o *ordered) asksFor(c *check, uid string, terms []corev1.PodAffinityTerm) bool {
	p := c.w.api.podByUID(uid)
	return p == nil || p.Spec.Affinity != nil && p.Spec.Affinity.PodAffinity != nil &&
		reflect.DeepEqual(p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, terms)
}

func (o *ordered) affinity(c *check, l *landed, terms []corev1.PodAffinityTerm, from time.Time) {
	w := c.w
	selectors := make([]func(map[string]string) bool, len(terms))
	for i := range terms {
		selectors[i] = chosen(terms[i].LabelSelector)
	}
	match := func(of map[string]string) bool {
		return !slices.ContainsFunc(selectors, func(selects func(map[string]string) bool) bool { return !selects(of) })
	}
	in := func(node, key string) string {
		if n := w.api.node(node); n != nil {
			return n.Labels[key]
		}
		return ""
	}
	// Where there was support at any moment.
	supported := map[string]bool{}
	support := func(node string) {
		for _, t := range terms {
			supported[t.TopologyKey+"="+in(node, t.TopologyKey)] = true
		}
	}
	for uid, past := range o.history {
		if uid == l.line.uid || slices.ContainsFunc(l.line.word.lines, func(r *line) bool { return r.uid == uid }) {
			continue
		}
		for i := range past {
			if s := &past[i]; s.node != "" && !s.gone && lasted(past, i, from, l.at) && match(s.labels) {
				support(s.node)
			}
		}
	}
	holds := func(node string) bool {
		return !slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool {
			value := in(node, t.TopologyKey)
			return value == "" || !supported[t.TopologyKey+"="+value]
		})
	}
	// Those of the same point join one after another; one whose own affinity is another one is taken to have been there before.
	joined := func() bool {
		for range l.line.word.lines {
			for _, r := range l.line.word.lines {
				if c.mayBind(r, l.line) && o.ever(r.uid, match) && (r != l.line && !o.asksFor(c, r.uid, terms) || holds(r.node)) {
					support(r.node)
				}
			}
		}
		return holds(l.line.node)
	}
	if joined() {
		return
	}
	counted := 0
	for uid, node := range o.against(c, l, from, true, match) {
		mine := slices.ContainsFunc(l.line.word.lines, func(r *line) bool { return r.uid == uid })
		if !mine && slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return in(node, t.TopologyKey) != "" }) {
			counted++
		}
	}
	if counted == 0 {
		was := maps.Clone(supported)
		for _, r := range l.line.word.lines { // one begins
			if c.mayBind(r, l.line) && o.ever(r.uid, match) {
				supported = maps.Clone(was)
				if support(r.node); joined() {
					return
				}
			}
		}
		w.fail("C2: pod %s is bound to %s at place %d, and no pod that its affinity asks for was in its %s", l.line.uid, l.line.node, o.placeOf(l.line.word)>>16, terms[0].TopologyKey)
	}
	w.fail("C2: pod %s is bound to %s at place %d, no pod that its affinity asks for was in its %s, and %d are elsewhere", l.line.uid, l.line.node, o.placeOf(l.line.word)>>16, terms[0].TopologyKey, counted)
}
