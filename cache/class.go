package cache

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"basalt.dev/basalt/api"
)

// class is one api.Class as the cache works with it. It lives while pods of it are charged or while it is planned.
type class struct {
	api  *api.Class
	refs int   // charges
	asks []ask // positive requests, in name order
	// device tells that an extended resource is asked for.
	device bool
	ports  []port
	spec   *v1.PodSpec // nil when nothing but requests matters
	// unreadable says what is wrong with the class; such a class fits nowhere.
	unreadable string

	compiled bool
	affinity *nodeaffinity.RequiredNodeAffinity // nil when any node will do

	// While planned. verdict holds for each slot whether the constraints admit it; tree is described in plan.go.
	planned bool
	lastUse uint64
	verdict []verdict
	tree    []uint64
	synced  uint64 // up to where in the log of changes the tree is right
}

// ask is one resource that a class requests.
type ask struct {
	name   string
	col    int // -1 when no node offers it
	amount int64
	weight uint8 // how it takes part in the score
}

const (
	unweighted uint8 = iota // the number of pods says nothing about how full a node is, if anything else is asked for
	weighsBase
	weighsDevice
)

// port is a host port; two pods that have conflicting ones cannot share a node.
type port struct {
	protocol v1.Protocol
	number   int32
	ip       string
}

const anyIP = "0.0.0.0"

// conflicts is kube-scheduler's rule: the same protocol and number, and the same address or one of them any address.
func (p port) conflicts(o port) bool {
	return p.number == o.number && p.protocol == o.protocol && (p.ip == o.ip || p.ip == anyIP || o.ip == anyIP)
}

// verdict is what a class's constraints say of a node, whatever is free there.
type verdict uint8

const (
	admitted verdict = iota
	absent           // an empty slot
	unreadable
	unschedulable
	mismatched
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
		return c.newClass(a)
	}
	c.last = cl
	return cl
}

// keep returns the class and stores it if it is not yet stored.
func (c *Cache) keep(a *api.Class) *class {
	cl := c.find(a)
	if !cl.planned && cl.refs == 0 {
		c.classes[cl.api.Key] = cl
	}
	return cl
}

// letGo forgets a class that nothing needs any more.
func (c *Cache) letGo(cl *class) {
	if cl.refs > 0 || cl.planned {
		return
	}
	delete(c.classes, cl.api.Key)
	if c.last == cl {
		c.last = nil
	}
}

func (c *Cache) newClass(a *api.Class) *class {
	cl := &class{api: a}
	for _, r := range a.Requests {
		if r.Value < 0 {
			cl.unreadable = fmt.Sprintf("the pod requests a negative amount of %s", r.Resource)
		}
		if r.Value <= 0 {
			continue
		}
		i := 0
		for i < len(cl.asks) && cl.asks[i].name != r.Resource {
			i++
		}
		if i < len(cl.asks) { // named twice, by a peer that does not keep the rules
			cl.asks[i].amount = api.AddSat(cl.asks[i].amount, r.Value)
			continue
		}
		k := ask{name: r.Resource, col: -1, amount: r.Value, weight: weighsBase}
		if col, ok := c.byName[r.Resource]; ok {
			k.col = col
		}
		if isDevice(r.Resource) {
			k.weight = weighsDevice
			cl.device = true
		}
		cl.asks = append(cl.asks, k)
	}
	for i := range cl.asks {
		if cl.asks[i].name == string(v1.ResourcePods) && len(cl.asks) > 1 {
			cl.asks[i].weight = unweighted
		}
	}
	if len(a.Constraints) > 0 {
		spec, err := api.ReadConstraints(a.Constraints)
		if err != nil {
			cl.unreadable = err.Error()
			return cl
		}
		cl.spec = spec
		for i := range spec.Containers {
			for _, p := range spec.Containers[i].Ports {
				if p.HostPort <= 0 {
					continue
				}
				h := port{protocol: p.Protocol, number: p.HostPort, ip: p.HostIP}
				if h.protocol == "" {
					h.protocol = v1.ProtocolTCP
				}
				if h.ip == "" {
					h.ip = anyIP
				}
				cl.ports = append(cl.ports, h)
			}
		}
	}
	return cl
}

// judge asks the class's constraints about a node, in the order of kube-scheduler's filters. Terms of a node affinity that
// cannot be parsed match nothing, and the others count: kube-scheduler does the same.
func (c *Cache) judge(cl *class, n *api.Node) verdict {
	if cl.unreadable != "" {
		return unreadable
	}
	var tolerations []v1.Toleration
	if cl.spec != nil {
		tolerations = cl.spec.Tolerations
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
	if cl.spec == nil {
		return admitted
	}
	if !cl.compiled {
		cl.compiled = true
		if len(cl.spec.NodeSelector) > 0 || cl.spec.Affinity != nil {
			a := nodeaffinity.NewRequiredNodeAffinity(cl.spec.NodeSelector, cl.spec.Affinity)
			cl.affinity = &a
		}
	}
	if cl.affinity != nil {
		object := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}}
		if match, _ := cl.affinity.Match(object); !match {
			return mismatched
		}
	}
	return admitted
}

func repels(t *v1.Taint) bool {
	return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
}
