package home

import "basalt.dev/basalt/api"

// Which pods are asked for with their labels. Node shards compare labels with the anti-affinity terms of other pods,
// but labels make a class of their own out of every job. So they are said only in namespaces that some term is about,
// of any pod that is not finished. A term whose domains are larger than a node concerns other namespaces than its pod's
// only while such a pod is in a domain (View.Concerned). A node shard that knows of a term before its home shard does
// takes a pod without labels for one that the term matches.
//
// Most namespaces may not repel pods of others (api.TermsOf): there, terms are about their own.

// repeller is a pod with anti-affinity terms. Those with domains larger than a node are noted for its namespace alone.
type repeller struct {
	class      *api.Class // that has them
	namespaces []string
}

// repellers are all of them.
type repellers struct {
	pods     map[string]repeller // by UID
	about    map[string]int      // pods with terms about a namespace
	labelled map[labelled]*api.Class
	may      map[string]map[string]string // the labels of namespaces that may repel pods of others

	strangers uint64 // View.Strangers when those who were refused were woken
}

type labelled struct {
	class  *api.Class
	labels *api.Labels
}

// anyNamespace stands for the namespaces that have some labels.
const anyNamespace = ""

// maxLabelled is how many classes with labels are remembered.
const maxLabelled = 4096

// noteRepeller takes a pod as it is now, nil when it is gone.
func (c *rules) noteRepeller(uid string, p *api.Pod) {
	x := &c.repellers
	old, known := x.pods[uid]
	repels := p != nil && !p.Finished && p.Class != nil && len(p.Class.Repels) > 0
	if !known && !repels || known && repels && old.class.Key == p.Class.Key {
		return
	}
	if known {
		delete(x.pods, uid)
		for _, namespace := range old.namespaces {
			if x.about[namespace]--; x.about[namespace] == 0 {
				delete(x.about, namespace)
			}
		}
	}
	if !repels {
		return
	}
	r := repeller{class: p.Class}
	terms, _ := api.ReadRepels(p.Class.Repels) // none for claims that one pod at a time may use: those are not about labels
	named := map[string]bool{}
	for _, t := range terms {
		if t.Topology != api.LabelHostname || x.may[p.Namespace] == nil {
			named[p.Namespace] = true
			continue
		}
		namespaces, any := t.Namespaces()
		for _, namespace := range namespaces {
			named[namespace] = true
		}
		if any {
			named[anyNamespace] = true
		}
	}
	r.namespaces = api.SortedKeys(named)
	fresh := false
	for _, namespace := range r.namespaces {
		fresh = fresh || x.about[namespace] == 0
		x.about[namespace]++
	}
	x.pods[uid] = r
	if fresh {
		c.wakeUnsaid(x.strangers)
	}
}

// wakeUnsaid wakes those that were refused because labels were not said, at each change of View.Strangers.
func (c *rules) wakeUnsaid(strangers uint64) {
	c.repellers.strangers = strangers
	c.shards.room++
	c.shards.changed = true
}

// noteRight takes the labels of a namespace.
func (c *rules) noteRight(namespace string, labels map[string]string) {
	x := &c.repellers
	if may := labels[api.LabelRepelsOthers] == "true"; !may && x.may[namespace] == nil {
		return
	} else if may {
		if x.may == nil {
			x.may = map[string]map[string]string{}
		}
		x.may[namespace] = labels
	} else {
		delete(x.may, namespace)
	}
	for _, uid := range api.SortedKeys(x.pods) {
		if p := c.pods[uid]; p != nil && p.Namespace == namespace {
			c.noteRepeller(uid, nil)
			c.noteRepeller(uid, p.Pod)
		}
	}
}

// ignored says which terms of a pod are ignored in part, "" for none.
func (x *repellers) ignored(p *api.Pod) string {
	return api.IgnoredTerms(p.Class, p.Namespace, x.may[p.Namespace])
}

// ignoredOf adds the same about the pods of a gang.
func (x *repellers) ignoredOf(g *gang) string {
	for _, p := range g.members {
		if words := x.ignored(p.Pod); words != "" {
			return "; " + words
		}
	}
	return ""
}

// ask sets the classes that pods without a room are asked for with. What others have was asked for as it was.
func (c *rules) ask(pods []*pod) {
	x := &c.repellers
	for _, p := range pods {
		if p.stage != nowhere {
			continue
		}
		p.asked = p.Class
		constrained := len(p.Class.Repels)+len(p.Class.Joins) > 0
		if constrained || x.about[anyNamespace] > 0 || x.about[p.Namespace] > 0 || c.topology.Concerned(p.Namespace) {
			p.asked = x.labelledAs(p)
		}
	}
}

// labelledAs returns the class of a pod with its labels.
func (x *repellers) labelledAs(p *pod) *api.Class {
	key := labelled{p.Class, p.Labels}
	class := x.labelled[key]
	if class == nil {
		class = p.Class.With(p.Labels)
		if len(x.labelled) >= maxLabelled {
			clear(x.labelled)
		}
		x.labelled[key] = class
	}
	return class
}

// forgetRepellers forgets the pods that a list of all lacks.
func (c *rules) forgetRepellers(listed map[string]bool) {
	for _, uid := range api.SortedKeys(c.repellers.pods) {
		if !listed[uid] {
			c.noteRepeller(uid, nil)
		}
	}
}
