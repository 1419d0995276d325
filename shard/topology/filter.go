package topology

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"basalt.dev/basalt/api"
)

// filterSet is the filters of all spreads.
type filterSet struct {
	filters  map[string]*filter
	filtered map[string]int // bytes of them, by namespace
}

// forgetFilters forgets those that are not used.
func (s *filterSet) forgetFilters(used map[*filter]bool) {
	maps.DeleteFunc(s.filters, func(_ string, f *filter) bool {
		if used[f] {
			return false
		}
		if s.filtered[f.maker] -= len(f.id); s.filtered[f.maker] <= 0 {
			delete(s.filtered, f.maker)
		}
		return true
	})
}

// filter says which nodes a spread counts for pods with some constraints.
type filter struct {
	id       string
	maker    string // in filterSet.filtered
	admits   []bool // by node
	affinity *nodeaffinity.RequiredNodeAffinity
	taints   bool
	tolerate []v1.Toleration
}

// filterOf returns the filter of a spread for pods with some constraints, nil if it admits all nodes. Their own
// selectors are those of the constraints unless they are given. It is not ok if it is new and may not be made.
func (v *View) filterOf(s *api.Spread, own *v1.PodSpec, constraints []byte, by string, may bool) (_ *filter, ok bool) {
	if !s.Affinity && !s.Taints {
		return nil, true
	}
	spec, err := api.ReadConstraints(constraints)
	if err != nil {
		return nil, true
	}
	if own != nil {
		spec.NodeSelector, spec.Affinity = own.NodeSelector, own.Affinity
		if constraints, err = spec.Marshal(); err != nil {
			return nil, true
		}
	}
	selects := s.Affinity && (len(spec.NodeSelector) > 0 || spec.Affinity != nil)
	if !selects && !s.Taints {
		return nil, true
	}
	id := string([]byte{flag(selects), flag(s.Taints)}) + string(constraints)
	if f := v.filters[id]; f != nil || !may || v.filtered[by]+len(id) > filterBytes {
		return f, f != nil
	}
	v.filtered[by] += len(id)
	v.spent.Spend(v.now, by, int64(v.there*(1+len(constraints)/64)))
	f := &filter{id: id, maker: by, admits: make([]bool, len(v.nodes)), taints: s.Taints, tolerate: spec.Tolerations}
	if selects {
		a := nodeaffinity.NewRequiredNodeAffinity(spec.NodeSelector, spec.Affinity)
		f.affinity = &a
	}
	for n := range v.nodes {
		f.admits[n] = f.admit(v.nodes[n].object)
	}
	v.filters[id] = f
	return f, true
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// admit reports whether a node counts; it may be nil.
func (f *filter) admit(o *api.Node) bool {
	if o == nil {
		return false
	}
	if f.affinity != nil {
		if match, _ := f.affinity.Match(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.Name, Labels: o.Labels}}); !match {
			return false
		}
	}
	if f.taints {
		if _, bad := corev1.FindMatchingUntoleratedTaint(klog.Logger{}, o.Taints, f.tolerate, repels, false); bad {
			return false
		}
	}
	return true
}

func repels(t *v1.Taint) bool {
	return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
}

func sameTaint(a, b v1.Taint) bool { return a.MatchTaint(&b) && a.Value == b.Value }
