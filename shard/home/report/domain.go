package report

import (
	"fmt"
	"strings"

	"basalt.dev/basalt/api/v1beta1"
)

// withinConstraints is said of pods that have affinity, anti-affinity or spread.
const withinConstraints = " within their affinity and spread constraints"

// NoDomain says that no topology domain has room for pods that are to be in one, or that the one in which the gang is has none for them: that of the
// first of some values, nil if it is in none.
func NoDomain(key string, in []string, pods, most int, constrained bool) Reason {
	these := count(pods)
	if constrained {
		these += withinConstraints
	}
	words := fmt.Sprintf("no domain of %s has room for %s: the one with the most has room for %d", key, these, most)
	switch {
	case in != nil && most >= pods:
		words = fmt.Sprintf("the gang is in %s=%s, which has no room for %s together", key, in[0], these)
	case in != nil:
		words = fmt.Sprintf("the gang is in %s=%s, which has room for %d of %s", key, in[0], most, these)
	case most == 0:
		words = fmt.Sprintf("no domain of %s has room for any of %s", key, these)
	case most >= pods:
		words = fmt.Sprintf("no domain of %s has room for %s together", key, these)
	}
	return Reason{v1beta1.ReasonUnschedulable, words}
}

// Uncompared says that node shards did not compare what pods require with nodes and other pods. A namespace may be full: its pods require
// as many different things of other pods as are counted.
func Uncompared(namespace string, full bool) Reason {
	words := "its constraints are not compared with all nodes yet, because those of the pods in its namespace take too much time"
	if full {
		words = fmt.Sprintf("the pods of namespace %s require more different things of other pods than are counted (%s): its constraints are compared when pods that require others are gone",
			namespace, "spec.affinity.podAffinity and podAntiAffinity, spec.topologySpreadConstraints; the limits are 1024 selectors and 2048 pairs of one with a topology key")
	}
	return Reason{v1beta1.ReasonConstraintUnmet, words}
}

// NoLabel says that no node has the labels whose values are the domains that pods are to be in.
func NoLabel(keys []string) Reason {
	if len(keys) == 1 {
		return Reason{v1beta1.ReasonUnschedulable, fmt.Sprintf("no node has the label %s, which is required by spec.schedulingConstraints.topology", keys[0])}
	}
	return Reason{v1beta1.ReasonUnschedulable, fmt.Sprintf("no node has all of the labels %s, which are required by spec.schedulingConstraints.topology", strings.Join(keys, " and "))}
}

// Slices is what is to be placed of a gang each of whose slices is to be in one domain.
type Slices struct {
	Key          string // label of the domains of slices
	Size         int
	Outer, Value string // label of the domain that all slices are to be in, "" for none, and its value
	Decided      bool   // and whether the gang is in it already
	Slices       int    // that are to be placed,
	Small, Last  int    // how many of them are smaller, and the pods of one of these
	Put          int    // how many of these and of Lacking would have room at once
	Lacking      int    // pods that slices lack
	In           string // the domain of the first of these
	Pods         int    // of all of it
	Constrained  bool   // they have affinity, anti-affinity or spread
}

// NoSlices says that the slices of a gang do not have domains.
func NoSlices(s Slices) Reason {
	words := ""
	switch {
	case s.Lacking > 0 && s.Slices == 0:
		words = fmt.Sprintf("a slice of the gang is in %s=%s, and there is no room for %s that slices lack", s.Key, s.In, count(s.Lacking))
		if s.Put > 0 {
			words = fmt.Sprintf("slices of the gang lack %s, and there is room for %d of them in the domains of %s in which these are", count(s.Lacking), s.Put, s.Key)
		}
	case s.Put >= s.Slices+s.Lacking: // node shards refused some
		words = fmt.Sprintf("there is no room together for %s", s.parts())
	case s.Decided:
		words = fmt.Sprintf("the gang is in %s=%s, which has room for %d of %s", s.Outer, s.Value, s.Put, s.parts())
	case s.Outer != "":
		words = fmt.Sprintf("no domain of %s has room for %s: the one with the most has room for %d", s.Outer, s.parts(), s.Put)
	default:
		words = fmt.Sprintf("there is room for %d of %s", s.Put, s.parts())
	}
	return Reason{v1beta1.ReasonUnschedulable, words}
}

// parts are slices, and pods that others lack.
func (s Slices) parts() string {
	words := ""
	if full := s.Slices - s.Small; full > 0 {
		words = fmt.Sprintf("%s of %s", slicesOf(full), count(s.Size))
	}
	if s.Small > 0 {
		if words != "" {
			words += " and "
		}
		if words += slicesOf(s.Small) + " of " + count(s.Last); s.Small > 1 {
			words += " or other numbers"
		}
	}
	if words += ", each in one domain of " + s.Key; s.Slices == 1 {
		words = strings.Replace(words, ", each in", ", in", 1)
	}
	if s.Lacking > 0 {
		words += fmt.Sprintf(", and of %s that other slices lack", count(s.Lacking))
	}
	if s.Constrained {
		words += "," + withinConstraints
	}
	return words
}

func slicesOf(n int) string {
	if n == 1 {
		return "1 slice"
	}
	return fmt.Sprintf("%d slices", n)
}

func count(pods int) string {
	if pods == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", pods)
}
