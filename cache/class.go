package cache

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	features "k8s.io/component-helpers/nodedeclaredfeatures"
	featuretypes "k8s.io/component-helpers/nodedeclaredfeatures/types"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"basalt.dev/basalt/api"
)

// class is one api.Class as the cache works with it. It lives while pods of it are charged or while it is planned.
type class struct {
	api      *api.Class
	set      *set
	number   int32     // while stored
	refs     int       // charges
	own      int32     // of which are of Basalt's own pods
	requests []request // positive requests, in name order
	grouped  bool      // its pods belong to groups, or avoid some
	choosy   bool      // so they do, or have exclusives: what is on a node already matters
	wishful  bool      // it prefers some nodes
	wish     *wish     // once it was needed
	// unreadable says what is wrong with the class; such a class fits nowhere.
	unreadable string

	// While planned.
	planned bool
	used    bool // more than once since the hand of Cache.planned passed
	lastUse uint64
	bit     int    // in the rows of the index, -1 for none
	cost    int    // of looking without a bit
	sought  bool   // could and looked mean something
	could   int32  // slot +1 of a node that would take one if it were empty, 0 for none
	looked  uint64 // Cache.facts when that was found
	counted bool
	why     Reasons // counted last
	due     uint64  // Cache.changes from which on it is counted again

	tiers [maxLevels]*class // of a class with wishes
}

// request is one resource that a class requests.
type request struct {
	name   string
	col    int // -1 when no node offers it
	amount int64
}

// set is what classes with equal constraints share. It lives while one of them does.
type set struct {
	key        string
	classes    int         // stored ones
	planned    int         // of which planned
	spec       *v1.PodSpec // nil when nothing but requests matters
	exclusives []api.Exclusive
	once       bool  // a node takes one pod of them, for their exclusives
	pins       *pins // nil when nodes are not named
	unreadable string
	compiled   bool
	affinity   *nodeaffinity.RequiredNodeAffinity // nil when any node will do
	features   features.FeatureSet                // that a node has to declare
	featured   bool                               // there are such
	verdict    []verdict                          // by slot, while a class of it is planned
	judged     int                                // of those that are known
	row        []uint64                           // the bits of its classes
	wish       *wish                              // of which it is a tier, nil for other sets
	tier       uint8
}

// obstacleOf is what keeps a pod from a node with a conflicting one.
func obstacleOf(e api.Exclusive) Obstacle {
	if e.Disk.ID != "" {
		return DiskInUse
	}
	return HostPort
}

// verdict is what a class's constraints say of a node, whatever is free there.
type verdict uint8

const (
	unknown verdict = iota // not judged yet
	admitted
	unreadable
	unschedulable
	mismatched
	lacking // a feature
	tainted // and above: tainted+i means the i-th taint of the node
)

// find returns the class as the cache keeps it, or makes one that nobody keeps.
func (c *Cache) find(a *api.Class) *class {
	if a == nil {
		a = &api.Class{}
	}
	if c.last != nil && c.last.api == a {
		return c.last
	}
	cl, ok := c.classes[a.Key]
	if !ok {
		cl = c.newClass(a)
	}
	c.last = cl
	return cl
}

// keep stores a class if it is not yet stored.
func (c *Cache) keep(cl *class) {
	if !cl.planned && cl.refs == 0 {
		c.classes[cl.api.Key] = cl
		if k := len(c.unused) - 1; k >= 0 {
			cl.number, c.unused = c.unused[k], c.unused[:k]
			c.numbered[cl.number] = cl
		} else {
			cl.number = int32(len(c.numbered))
			c.numbered = append(c.numbered, cl)
		}
		if st, ok := c.sets[cl.set.key]; ok {
			cl.set = st
		} else {
			c.sets[cl.set.key] = cl.set
			cl.set.row = make([]uint64, c.index.words)
		}
		cl.set.classes++
	}
}

// letGo forgets a class that nothing needs any more.
func (c *Cache) letGo(cl *class) {
	if cl.refs > 0 || cl.planned {
		return
	}
	delete(c.classes, cl.api.Key)
	c.numbered[cl.number] = nil
	c.unused = append(c.unused, cl.number)
	if cl.set.classes--; cl.set.classes == 0 {
		delete(c.sets, cl.set.key)
	}
	if c.last == cl {
		c.last = nil
	}
}

func (c *Cache) newClass(a *api.Class) *class {
	cl := &class{api: a, bit: -1, grouped: len(a.In)+len(a.Avoids) > 0, wishful: len(a.Wishes) > 0}
	for _, r := range a.Requests {
		if r.Value < 0 {
			cl.unreadable = fmt.Sprintf("the pod requests a negative amount of %s", r.Resource)
		}
		if r.Value <= 0 {
			continue
		}
		i := 0
		for i < len(cl.requests) && cl.requests[i].name != r.Resource {
			i++
		}
		if i < len(cl.requests) { // named twice, by a peer that does not keep the rules
			cl.requests[i].amount = api.AddSat(cl.requests[i].amount, r.Value)
			continue
		}
		k := request{name: r.Resource, col: -1, amount: r.Value}
		if col, ok := c.byName[r.Resource]; ok {
			k.col = col
		}
		cl.requests = append(cl.requests, k)
	}
	for _, a := range a.Attach {
		if a.Value > 0 {
			cl.requests = append(cl.requests, request{name: api.VolumesOf(a.Resource), col: c.columnOf(api.VolumesOf(a.Resource)).i, amount: a.Value})
		}
	}
	st, ok := c.sets[string(a.Constraints)]
	if !ok {
		st = newSet(a.Constraints)
	}
	cl.set, cl.choosy = st, cl.grouped || len(st.exclusives) > 0
	if cl.unreadable == "" {
		cl.unreadable = st.unreadable
	}
	return cl
}

func newSet(constraints []byte) *set {
	st := &set{key: string(constraints)}
	if len(constraints) == 0 {
		return st
	}
	spec, err := api.ReadConstraints(constraints)
	if err != nil {
		st.unreadable = err.Error()
		return st
	}
	st.spec, st.pins = spec, pinsOf(spec)
	st.exclusives = api.ExclusivesOf(spec)
	st.once = slices.ContainsFunc(st.exclusives, func(e api.Exclusive) bool { return e.Conflicts(e) })
	return st
}

// verdictOf judges a slot with a node, or knows how it was judged.
func (c *Cache) verdictOf(st *set, s int32) verdict {
	if st.verdict == nil {
		if st.wish != nil {
			return st.tierVerdict(s)
		}
		return st.judge(c.bySlot[s].object)
	}
	v := st.verdict[s]
	if v == unknown {
		v = st.judge(c.bySlot[s].object)
		st.verdict[s] = v
		st.judged++
		c.compared += int64(len(st.key))
	}
	return v
}

// forgetVerdict has a slot judged anew.
func (st *set) forgetVerdict(s int32) {
	if st.verdict != nil && st.verdict[s] != unknown {
		st.verdict[s] = unknown
		st.judged--
	}
}

// Compared returns how many bytes of constraints were compared with nodes so far: what it cost to find out which nodes they
// allow. A class is compared once with each node while it is planned.
func (c *Cache) Compared() int64 { return c.compared }

// Uncompared returns how much that may grow by planning a pod of a class.
func (c *Cache) Uncompared(class *api.Class) int64 {
	judged := 0
	if st, ok := c.sets[string(class.Constraints)]; ok { // else it would have to be read first, which costs, too
		if judged = st.judged; st.pins != nil {
			return 0
		}
	}
	return int64(len(class.Constraints)) * int64(max(0, c.there-judged))
}

// judge asks the constraints about a node, in the order of kube-scheduler's filters. Terms of a node affinity that
// cannot be parsed match nothing, and the others count: kube-scheduler does the same.
func (st *set) judge(n *api.Node) verdict {
	if st.unreadable != "" {
		return unreadable
	}
	var tolerations []v1.Toleration
	if st.spec != nil {
		tolerations = st.spec.Tolerations
	}
	// The last argument of both calls is kube-scheduler's gate TaintTolerationComparisonOperators, which is off by default.
	if n.Unschedulable && !schedulinghelper.TolerationsTolerateTaint(klog.Logger{}, tolerations,
		&v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}, false) {
		return unschedulable
	}
	if len(n.Taints) > 0 {
		if taint, untolerated := schedulinghelper.FindMatchingUntoleratedTaint(klog.Logger{}, n.Taints, tolerations, repels, false); untolerated {
			i := 0
			for i < len(n.Taints)-1 && i < int(^verdict(0)-tainted) && !n.Taints[i].MatchTaint(&taint) {
				i++
			}
			return tainted + verdict(i)
		}
	}
	if st.spec == nil {
		return admitted
	}
	if !st.compiled {
		st.compiled = true
		if len(st.spec.NodeSelector) > 0 || st.spec.Affinity != nil {
			a := nodeaffinity.NewRequiredNodeAffinity(st.spec.NodeSelector, st.spec.Affinity)
			st.affinity = &a
		}
		if set, err := features.DefaultFramework.InferForPodScheduling(&featuretypes.PodInfo{Spec: st.spec}, kubernetes); err == nil {
			st.features, st.featured = set, !set.IsEmpty()
		}
	}
	if st.affinity != nil {
		object := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}}
		if match, _ := st.affinity.Match(object); !match {
			return mismatched
		}
	}
	if st.featured {
		if match, err := st.features.IsSubset(features.DefaultFramework.TryMap(n.Features)); !match || err != nil {
			return lacking
		}
	}
	return admitted
}

// kubernetes is the version whose kube-scheduler decides which features a pod needs.
var kubernetes = version.MustParseGeneric("1.37.1")

func repels(t *v1.Taint) bool {
	return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
}
