package api

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// operators of node selectors, as labels are selected.
var operators = map[v1.NodeSelectorOperator]selection.Operator{
	v1.NodeSelectorOpIn: selection.In, v1.NodeSelectorOpNotIn: selection.NotIn, v1.NodeSelectorOpExists: selection.Exists,
	v1.NodeSelectorOpDoesNotExist: selection.DoesNotExist, v1.NodeSelectorOpGt: selection.GreaterThan, v1.NodeSelectorOpLt: selection.LessThan,
}

// NodesIn says in words which nodes a selector selects, and what of it cannot be read: a node matches no such term.
func NodesIn(s *v1.NodeSelector) string {
	if s == nil {
		return "any node"
	}
	var terms []string
	for _, t := range s.NodeSelectorTerms {
		var all []string
		for _, r := range slices.Concat(t.MatchExpressions, t.MatchFields) {
			all = append(all, requirementIn(r))
		}
		if len(all) > 0 { // an empty term selects none
			terms = append(terms, strings.Join(all, " and "))
		}
	}
	if len(terms) == 0 {
		return "no node"
	}
	return strings.Join(terms, ", or ")
}

func requirementIn(r v1.NodeSelectorRequirement) string {
	if plugin, is := strings.CutPrefix(r.Key, unmigratedPrefix); is {
		if r.Operator == v1.NodeSelectorOpExists {
			return plugin + " not migrated to CSI"
		}
		return plugin + " migrated to CSI"
	}
	one, err := k8slabels.NewRequirement(r.Key, operators[r.Operator], r.Values)
	if err != nil {
		return fmt.Sprintf("%s %s %q, which cannot be read (%v)", r.Key, r.Operator, r.Values, err)
	}
	return one.String()
}
