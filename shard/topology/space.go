package topology

import "basalt.dev/basalt/api"

// space is a namespace.
type space struct {
	name     string
	labels   map[string]string
	pods     map[string]*pod   // by UID
	users    map[string][]user // by claim: those that name it
	counted  bool              // some constraint is about its pods, and so they are counted
	kins     map[kinKey][]*kin
	counters []*counter                // that name it
	carriers []*carrier                // those heeded whose terms name it
	terms    memo[string, []*api.Term] // what those count as here that its pods carry and that cross namespaces

	concerned  []*carrier // those whose terms select namespaces, and this is one of them,
	compared   int        // as far as carriers have been compared: the serial of the last one
	generation uint64     // of both: rules of another are made anew
}

// pod is one that is not finished.
type pod struct {
	object  *api.Pod
	entries []entry
	uses    []use // the claims that it named when it was first seen: it never names others
}

// use is a claim that a pod names, and where the pod is among its users.
type use struct {
	claim string
	at    int32
}

// user is a pod that names a claim, its k-th.
type user struct {
	pod *pod
	k   int32
}

// entry is a pod where it counts.
type entry struct {
	node   int32
	kin    *kin
	weight weight
}

// in returns a namespace, which it makes if it is new.
func (v *View) in(namespace string) *space {
	s := v.spaces[namespace]
	if s == nil {
		s = &space{
			name: namespace, pods: map[string]*pod{}, users: map[string][]user{}, kins: map[kinKey][]*kin{},
			counted: v.everywhere,
		}
		v.spaces[namespace] = s
	}
	return s
}

// podOf returns a pod, nil if it is not known.
func (v *View) podOf(namespace, uid string) *pod {
	if s := v.spaces[namespace]; s != nil {
		return s.pods[uid]
	}
	return nil
}

// Knows reports whether the pod watch has shown a pod.
func (v *View) Knows(namespace, uid string) bool { return v.podOf(namespace, uid) != nil }
