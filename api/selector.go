package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Selector is metav1.LabelSelectorAsSelector, but that of several labels which are wrong it always names the same one: the error is a word
// for users, and matchLabels come in any order.
func Selector(s *metav1.LabelSelector) (k8slabels.Selector, error) {
	if s != nil {
		for _, key := range SortedKeys(s.MatchLabels) {
			if _, err := k8slabels.NewRequirement(key, selection.Equals, []string{s.MatchLabels[key]}); err != nil {
				return nil, err
			}
		}
	}
	return metav1.LabelSelectorAsSelector(s)
}
