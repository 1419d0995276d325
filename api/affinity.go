package api

import v1 "k8s.io/api/core/v1"

// AllOf returns a node selector that matches a node just where each of the given ones does; nil ones match any node. A selector
// matches where one of its terms does, so the terms of the result are the product of theirs. It returns false instead of a selector
// with more than MaxConstraintEntries entries.
//
// A term without requirements matches nothing, and so does one with a requirement that cannot be parsed: the former is left out
// here, the latter makes the products that it is part of match nothing. A product that wants a label and its absence is left out, too: the
// terms of volumes often come in such pairs (package volume, UnmigratedMark), and their number would double with each volume.
func AllOf(selectors ...*v1.NodeSelector) (*v1.NodeSelector, bool) {
	var all []v1.NodeSelectorTerm
	any := true // until a selector says otherwise
	for _, s := range selectors {
		if s == nil {
			continue
		}
		var terms []v1.NodeSelectorTerm
		for _, t := range s.NodeSelectorTerms {
			if len(t.MatchExpressions)+len(t.MatchFields) > 0 {
				terms = append(terms, t)
			}
		}
		if any {
			all, any = terms, false
			continue
		}
		if len(all)*entriesOf(terms)+len(terms)*entriesOf(all) > 2*MaxConstraintEntries { // each product is one term, not two
			return nil, false
		}
		product := make([]v1.NodeSelectorTerm, 0, len(all)*len(terms))
		for _, a := range all {
			for _, b := range terms {
				if excludes(a.MatchExpressions, b.MatchExpressions) || excludes(b.MatchExpressions, a.MatchExpressions) {
					continue
				}
				product = append(product, v1.NodeSelectorTerm{
					MatchExpressions: concat(a.MatchExpressions, b.MatchExpressions), MatchFields: concat(a.MatchFields, b.MatchFields)})
			}
		}
		all = product
	}
	if any {
		return nil, true
	}
	if entriesOf(all) > MaxConstraintEntries {
		return nil, false
	}
	if len(all) == 0 {
		all = []v1.NodeSelectorTerm{{}} // matches nothing
	}
	return &v1.NodeSelector{NodeSelectorTerms: all}, true
}

// excludes reports whether one of some requirements wants a label to be absent of which one of others wants a value, or any.
func excludes(some, others []v1.NodeSelectorRequirement) bool {
	for i := range some {
		if some[i].Operator != v1.NodeSelectorOpDoesNotExist {
			continue
		}
		for j := range others {
			if op := others[j].Operator; others[j].Key == some[i].Key && (op == v1.NodeSelectorOpExists || op == v1.NodeSelectorOpIn) {
				return true
			}
		}
	}
	return false
}

// concat is like append, and shares nothing that append would write to.
func concat(a, b []v1.NodeSelectorRequirement) []v1.NodeSelectorRequirement {
	if len(a)+len(b) == 0 {
		return nil
	}
	return append(append(make([]v1.NodeSelectorRequirement, 0, len(a)+len(b)), a...), b...)
}

// entriesOf counts terms, requirements and values.
func entriesOf(terms []v1.NodeSelectorTerm) (n int) {
	for i := range terms {
		n++
		for _, list := range [][]v1.NodeSelectorRequirement{terms[i].MatchExpressions, terms[i].MatchFields} {
			for j := range list {
				n += 1 + len(list[j].Values)
			}
		}
	}
	return n
}
