package cache

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"basalt.dev/basalt/api"
)

// Wishes: what makes a node better for a class, by facts of the node that pods do not change. A class prefers nodes
// by its preferred node affinity and by the images that they have (Class.Wishes, images.go), and by taints of nodes
// with the effect PreferNoSchedule, which concern all classes that do not tolerate them. Before all of these, it
// prefers nodes by the tiers that the configuration puts them into for pods like its own (nodeTiers, api.Tiers).
//
// Nodes are scored by kube-scheduler's formula, and the scores are quantised to tiers, maxTiers at most. The best tier that has a node with
// room is searched first; the policy decides inside a tier. So wishes go before the policy, and are not weighed against it. Classes have no
// tiers, and pay one branch, if they wish nothing and no node has such a taint.
//
// Nodes that the configuration puts into different tiers are never in one tier here: of such a class there may be
// maxLevels tiers.
//
// If there are more scores than tiers, the first tier has the best scores down to one, the next two tiers have one each, and the last tier has
// the rest. At first the first tier has the best score only. When pods are placed in a tier with several scores, some time later the tiers
// move to the best score that has room: in a cluster that fills up they move down, and the better nodes, which are full by then, are all in the
// first tier, where room that comes back is found at once. That costs a look at each node, so it waits until as much was spent on searches.
//
// A tier of a class is planned as a class of its own: it has the same requests, and a set that admits the nodes of the tier. So it has a bit
// of its own in the index, and a search of a tier costs as much as one without.
//
// What differs from kube-scheduler: scores are normalised over the nodes that the constraints of the class allow, not over those that have
// room now; and a class with more than maxTiers different scores does not tell all of them apart at any time. Nodes of other shards count for
// this, so that scores of different shards can be compared; of many, a part (Config.Elsewhere).

const (
	maxTiers  = 4
	maxLevels = maxTiers + api.LastTier
	maxKinds  = 255 // different scores of a wish that are told apart, before they are quantised

	affinityWeight = 2 // of kube-scheduler's default profile
	taintWeight    = 3
	imageWeight    = 1
	maxScore       = 100 // of each plugin
)

// wish is what classes with equal constraints and equal wishes share: the score of each node.
type wish struct {
	key       string
	set       *set                                     // the constraints, which it may outlive
	preferred []*nodeaffinity.PreferredSchedulingTerms // that could be parsed, each by itself
	weight    int64                                    // of all terms
	bytes     int64                                    // of the wishes
	images    []wishedImage
	class     string // of the configuration's nodeTiers, "" for none

	kind      []uint8 // by slot: index into kinds, 0 where the constraints do not allow the node
	kinds     []kind
	stale     bool              // a kind came or went, so levels are to be found anew
	elsewhere liking            // the most that a node of another shard had
	scores    []int64           // different ones, the best first
	skip      int               // scores that are in the first tier beside the one that it ends with
	levels    int               // tiers in use
	mixed     [maxLevels]bool   // which have several scores
	lowest    [maxLevels]uint32 // grade in each
	missed    int               // cost of the searches that ended in a tier with several scores, since the tiers moved
	use       uint64            // Cache.uses when it was used last
	dead      bool              // not in Cache.wishes any more
}

// kind is nodes that are equally good.
type kind struct {
	liking
	slots int32
	score int64
	level uint8 // 0 is the best
	fresh bool  // has no level yet
}

func (k *kind) grade() uint32 { return uint32(api.LeastGrade + k.score) }

// liking is what plugins of kube-scheduler count of a node.
type liking struct {
	affinity int64 // weights of the preferred terms that match it
	taints   int64 // that would rather not have the pod
	images   int64 // the score of those that it has; what other nodes have does not matter for it
	tier     uint8 // that the configuration puts it into; nor does that of other nodes
}

func (l liking) most(o liking) liking {
	return liking{affinity: max(l.affinity, o.affinity), taints: max(l.taints, o.taints)}
}

// alone is the grade of a node that is compared with no others.
func (w *wish) alone(l liking) uint32 {
	return uint32(api.LeastGrade + w.score(l, liking{affinity: w.weight, taints: l.taints}))
}

// score is kube-scheduler's, normalised by the most that any node has. Where no node matches any preferred term, all match all of them.
func (w *wish) score(l, most liking) int64 {
	affinity, taints := int64(maxScore), int64(maxScore)
	if most.affinity > 0 {
		affinity = maxScore * l.affinity / most.affinity
	}
	if most.taints > 0 {
		taints = maxScore - maxScore*l.taints/most.taints
	}
	const ofOthers = affinityWeight + taintWeight
	sum := affinityWeight*affinity + taintWeight*taints
	if len(w.images) > 0 { // on the same scale, so that no node is better than api.BestGrade
		sum = (sum + imageWeight*l.images) * ofOthers / (ofOthers + imageWeight)
	}
	if w.class != "" {
		sum += tierOf(l.tier)
	}
	return sum
}

// most is the most that a score can be.
func (w *wish) most() int64 {
	if w.class != "" {
		return bestOfWishes + tierOf(0)
	}
	return bestOfWishes
}

// Heeds reports whether some nodes may be better than others for a class, by its wishes or by taints.
func (c *Cache) Heeds(class *api.Class) bool { return len(class.Wishes) > 0 || c.reluctant > 0 }

// PlaceAbove is Place among nodes that the caller allows, nil for all, and whose grade is not below one.
func (c *Cache) PlaceAbove(class *api.Class, least uint32, allow func(number int32) bool) (nodeName string, ok bool) {
	if !c.Heeds(class) {
		return c.place(class, allow, true)
	}
	if s, ok := c.bestWished(c.plan(class), least, allow); ok {
		c.chosen = s
		return c.names[s], true
	}
	return "", false
}

// PlaceHeedless is PlaceWithin without regard to what the class wishes.
func (c *Cache) PlaceHeedless(class *api.Class, rank api.Rank, allow func(number int32) bool) (nodeName string, victims []string, ok bool) {
	return c.placeTaking(class, rank, allow, false)
}

// Grade returns the grade of the node that Place would choose, api.NoGrade for none.
func (c *Cache) Grade(class *api.Class) uint32 {
	cl := c.plan(class)
	s, ok := c.bestWished(cl, 0, nil)
	if !ok {
		return api.NoGrade
	}
	if cl.set.pins != nil {
		w := c.newWish(cl.set, cl.api.Wishes)
		return w.alone(w.likes(c.bySlot[s].object))
	}
	w := c.wishOf(cl)
	return w.kinds[w.kind[s]].grade()
}

// Ungraded returns how much Compared may grow by finding out how good nodes are for a class.
func (c *Cache) Ungraded(class *api.Class) int64 {
	if len(class.Wishes) == 0 && c.reluctant == 0 || c.wishes[wishKey(string(class.Constraints), class.Wishes)] != nil {
		return 0
	}
	return int64(len(class.Wishes))*int64(c.there) + int64(len(class.Constraints))*int64(c.reluctant)
}

// bestWished returns the first slot of the order in the best tier that has a slot which a class fits. Tiers below a grade are left
// out.
func (c *Cache) bestWished(cl *class, least uint32, allow func(number int32) bool) (int32, bool) {
	if cl.set.pins != nil {
		return c.bestPinnedWished(cl, least, allow)
	}
	if cl.unreadable != "" {
		return -1, false
	}
	best := c.best
	if allow != nil {
		best = func(cl *class) (int32, bool) { return c.bestWithin(cl, allow) }
	}
	w := c.wishOf(cl)
	for k := range w.levels {
		if w.lowest[k] < least || k == w.levels-1 && least == 0 {
			continue
		}
		if s, ok := best(c.tier(cl, w, k)); ok {
			if w.mixed[k] {
				c.miss(w, cl)
			}
			return s, true
		}
	}
	c.remember(cl) // tiers may have taken its place
	if least > 0 {
		return -1, false
	}
	s, ok := best(cl)
	if ok && w.mixed[w.levels-1] {
		c.miss(w, cl)
	}
	return s, ok
}

// bestPinnedWished is bestWished for a class whose set is pinned: the few nodes are scored one by one, and those that fit are compared.
func (c *Cache) bestPinnedWished(cl *class, least uint32, allow func(number int32) bool) (best int32, ok bool) {
	w := c.newWish(cl.set, cl.api.Wishes)
	var fit []int32
	var likes []liking
	var most liking
	for _, s := range c.candidates(cl.set.pins) {
		if what, _ := c.obstacle(cl, s, c.verdict(cl, s)); what != Nothing || allow != nil && !allow(c.bySlot[s].number) {
			continue
		}
		l := w.likes(c.bySlot[s].object)
		if w.alone(l) < least {
			continue
		}
		fit, likes, most = append(fit, s), append(likes, l), most.most(l)
	}
	best = -1
	top := int64(0)
	for i, s := range fit {
		score := w.score(likes[i], most)
		if !ok || score > top || score == top && c.keyOf(s) < c.keyOf(best) {
			best, top, ok = s, score, true
		}
	}
	return best, ok
}

// ---- tiers as classes

// tierMark begins the keys of classes and sets that are tiers: no resource has such a name, and no protobuf begins so.
const tierMark = "\x03"

// tier returns a tier of a class as a class that is planned.
func (c *Cache) tier(cl *class, w *wish, k int) *class {
	t := cl.tiers[k]
	if t == nil || !t.planned || t.set.wish != w {
		key := tierMark + string(rune('0'+k)) + cl.api.Key
		if t = c.classes[key]; t == nil {
			a := *cl.api
			a.Key = key
			t = &class{api: &a, bit: -1, grouped: cl.grouped, choosy: cl.choosy, requests: slices.Clone(cl.requests)}
			setKey := tierMark + string(rune('0'+k)) + w.key
			if t.set = c.sets[setKey]; t.set == nil {
				t.set = &set{key: setKey, spec: cl.set.spec, exclusives: cl.set.exclusives, once: cl.set.once, wish: w, tier: uint8(k)}
			}
		}
		cl.tiers[k] = t
	}
	c.remember(t)
	return t
}

// tierVerdict is the verdict of a set that is a tier.
func (st *set) tierVerdict(s int32) verdict {
	if k := st.wish.kind[s]; k != 0 && st.wish.kinds[k].level == st.tier {
		return admitted
	}
	return mismatched
}

// ---- scores

func wishKey(constraints string, wishes []byte) string {
	return fmt.Sprintf("%d:%s%s", len(constraints), constraints, wishes)
}

// wishOf returns the wish of a class whose set is not pinned, and makes it if it is new.
func (c *Cache) wishOf(cl *class) *wish {
	w := cl.wish
	if w == nil || w.dead {
		if w = c.wishes[wishKey(cl.set.key, cl.api.Wishes)]; w == nil {
			w = c.makeWish(cl)
		}
		cl.wish = w
	}
	w.use = c.uses
	return w
}

func (c *Cache) makeWish(cl *class) *wish {
	if len(c.wishes) >= c.limits.wishes {
		var oldest *wish
		for _, w := range c.wishes { // in any order: no two are equal
			if oldest == nil || w.use < oldest.use || w.use == oldest.use && w.key < oldest.key {
				oldest = w
			}
		}
		c.dropWish(oldest)
	}
	w := c.newWish(cl.set, cl.api.Wishes)
	w.kind = make([]uint8, len(c.slots), cap(c.slots))
	c.wishes[w.key] = w
	for s := range c.slots {
		if c.slots[s].there {
			c.regradeSlot(w, int32(s))
		}
	}
	if c.cfg.Elsewhere != nil {
		for n := range c.cfg.Elsewhere {
			c.gradeElsewhere(w, n)
		}
	}
	c.relevel(w)
	return w
}

// gradeElsewhere takes a node of another shard into account, and reports whether it changes the scores.
func (c *Cache) gradeElsewhere(w *wish, n *api.Node) bool {
	c.compared += w.bytes
	if most := w.elsewhere.most(w.likes(n)); most != w.elsewhere && w.set.judge(n) == admitted {
		w.elsewhere = most
		return true
	}
	return false
}

// SeenElsewhere tells of a node of another shard that is new, or has other labels or taints.
func (c *Cache) SeenElsewhere(n *api.Node) {
	for _, w := range c.wishes { // each by itself
		if c.gradeElsewhere(w, n) {
			c.relevel(w)
		}
	}
}

// dropWish forgets a wish, and the tiers of it.
func (c *Cache) dropWish(w *wish) {
	w.dead = true
	delete(c.wishes, w.key)
	for i := 0; i < len(c.planned); i++ {
		if t := c.planned[i]; t.set.wish == w {
			c.unplan(t)
			c.planned = slices.Delete(c.planned, i, i+1)
			if i < c.hand {
				c.hand--
			}
			i--
		}
	}
	if c.hand >= len(c.planned) {
		c.hand = 0
	}
}

func (c *Cache) newWish(st *set, wishes []byte) *wish {
	w := &wish{key: wishKey(st.key, wishes), set: st, bytes: int64(len(wishes)), kinds: make([]kind, 1), levels: 1}
	if len(wishes) == 0 {
		return w
	}
	read, err := api.ReadWishes(wishes)
	if err != nil {
		return w // a wish that cannot be read keeps no pod from its place
	}
	w.class = read.Class
	for _, name := range read.Images {
		w.images = append(w.images, wishedImage{name: name, share: c.shareOf(name)})
	}
	for _, t := range read.Terms {
		if p, err := nodeaffinity.NewPreferredSchedulingTerms([]v1.PreferredSchedulingTerm{t}); err == nil && t.Weight > 0 {
			w.preferred = append(w.preferred, p)
			w.weight += int64(t.Weight)
		}
	}
	return w
}

// likes says how a node fulfils a wish.
func (w *wish) likes(n *api.Node) (l liking) {
	if len(w.preferred) > 0 {
		object := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}}
		for _, p := range w.preferred {
			l.affinity += p.Score(object)
		}
	}
	l.images = w.imagesOn(n)
	if w.class != "" {
		l.tier = n.Tiers.Of(w.class)
	}
	var tolerations []v1.Toleration
	if w.set.spec != nil {
		tolerations = w.set.spec.Tolerations
	}
	for i := range n.Taints { // a toleration of another effect tolerates none of these
		if n.Taints[i].Effect == v1.TaintEffectPreferNoSchedule && !schedulinghelper.TolerationsTolerateTaint(klog.Logger{}, tolerations, &n.Taints[i], false) {
			l.taints++
		}
	}
	return l
}

// regrade finds out anew how good a slot is for each class: its node came, changed or went.
func (c *Cache) regrade(s int32) {
	for _, w := range c.wishes { // each by itself
		c.regradeSlot(w, s)
		if w.stale {
			c.relevel(w)
		}
	}
}

func (c *Cache) regradeSlot(w *wish, s int32) {
	now := uint8(0)
	if c.slots[s].there && c.verdictOf(w.set, s) == admitted {
		n := c.bySlot[s].object
		now = w.kindOf(w.likes(n))
		if c.compared += w.bytes; reluctant(n) {
			c.compared += int64(len(w.set.key))
		}
	}
	old := w.kind[s]
	if now == old {
		return
	}
	w.kind[s] = now
	if old != 0 {
		if w.kinds[old].slots--; w.kinds[old].slots == 0 {
			w.stale = true
		}
	}
	if now != 0 {
		if w.kinds[now].slots++; w.kinds[now].slots == 1 {
			w.kinds[now].fresh, w.stale = true, true
		}
	}
}

// kindOf returns the kind of nodes that are liked so, and makes it if it is new. If there are too many, it is the one that comes closest.
func (w *wish) kindOf(l liking) uint8 {
	spare, closest, far := 0, 1, int64(-1)
	for i := 1; i < len(w.kinds); i++ {
		k := &w.kinds[i]
		if k.liking == l {
			return uint8(i)
		}
		if k.slots == 0 {
			spare = i
		}
		d := abs(k.affinity-l.affinity) + maxScore*abs(k.taints-l.taints) + abs(k.images-l.images)
		if d += abs(tierOf(k.tier)-tierOf(l.tier)) * maxScore; far < 0 || d < far {
			closest, far = i, d
		}
	}
	switch {
	case spare == 0 && len(w.kinds) > maxKinds:
		return uint8(closest)
	case spare == 0:
		spare = len(w.kinds)
		w.kinds = append(w.kinds, kind{})
	}
	w.kinds[spare] = kind{liking: l}
	return uint8(spare)
}

func abs(n int64) int64 { return max(n, -n) }

// relevel quantises the scores of a wish. If nodes change tiers by that, the tiers lose their bits, which are made anew when they are missed.
func (c *Cache) relevel(w *wish) {
	w.stale = false
	most := w.elsewhere
	for i := range w.kinds {
		if k := &w.kinds[i]; k.slots > 0 {
			most = most.most(k.liking)
		}
	}
	w.scores = w.scores[:0]
	for i := range w.kinds {
		if k := &w.kinds[i]; k.slots > 0 {
			k.score = w.score(k.liking, most)
			w.scores = append(w.scores, k.score)
		}
	}
	slices.SortFunc(w.scores, func(a, b int64) int { return cmp.Compare(b, a) })
	w.scores = slices.Compact(w.scores)
	var levels []uint8
	levels, w.skip = levelsOf(w.scores, w.skip)
	w.levels, w.mixed = 1, [maxLevels]bool{}
	for i, level := range levels {
		w.levels = int(level) + 1
		w.mixed[level] = i > 0 && levels[i-1] == level
	}
	for k := range w.lowest {
		w.lowest[k] = math.MaxUint32
	}
	moved := false
	for i := range w.kinds {
		k := &w.kinds[i]
		if k.slots == 0 {
			continue
		}
		level := levels[slices.Index(w.scores, k.score)]
		moved = moved || !k.fresh && k.level != level
		k.level, k.fresh = level, false
		w.lowest[level] = min(w.lowest[level], k.grade())
	}
	if moved {
		c.dismissTiers(w)
	}
}

// dismissTiers takes the bits of the tiers of a wish.
func (c *Cache) dismissTiers(w *wish) {
	for _, cl := range c.index.owners {
		if cl != nil && cl.set.wish == w {
			c.dismiss(cl)
		}
	}
}

// miss counts a search that ended in a tier with several scores, and moves the tiers when they have cost enough.
func (c *Cache) miss(w *wish, cl *class) {
	if w.missed += searchCost; w.missed <= len(c.slots) {
		return
	}
	w.missed = 0
	top := int64(-1)
	for s, i := range w.kind {
		if k := &w.kinds[i]; i != 0 && k.score > top {
			if what, _ := c.obstacle(cl, int32(s), admitted); what == Nothing {
				top = k.score
			}
		}
	}
	skip := w.skip
	if w.skip = max(0, slices.Index(w.scores, top)-1); w.skip != skip {
		c.relevel(w)
	}
}

// reluctant reports whether a node has a taint that would rather not have some pods.
func reluctant(n *api.Node) bool {
	return n != nil && slices.ContainsFunc(n.Taints, func(t v1.Taint) bool { return t.Effect == v1.TaintEffectPreferNoSchedule })
}

// countReluctant counts a node that was so and is so now; nil when it is not there.
func (c *Cache) countReluctant(before, now *api.Node) {
	if reluctant(before) {
		c.reluctant--
	}
	if reluctant(now) {
		c.reluctant++
	}
}
