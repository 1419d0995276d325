package topology

import (
	"slices"

	"basalt.dev/basalt/api"
)

// remembered is how much of what was read or made is remembered, of a kind.
const remembered = 4096

// memo remembers, and forgets everything when it is too much.
type memo[K comparable, V any] map[K]V

func (m *memo[K, V]) put(k K, v V) {
	if *m == nil || len(*m) >= remembered {
		*m = memo[K, V]{}
	}
	(*m)[k] = v
}

// reading is what was read of classes.
type reading struct {
	terms  memo[string, []*api.Term] // those of Class.Repels that readWide returns
	onePod memo[string, []string]    // claims in Class.Repels that one pod at a time may use
	joins  memo[string, *api.Joins]
	leans  memo[string, *api.Leanings]
}

// wide returns the terms of a class that are about larger domains than a node, or that this view has to count all the
// same, as they count in a namespace.
func (v *View) wide(namespace, repels string) []*api.Term {
	terms := v.readWide(repels, v.shared)
	if !slices.ContainsFunc(terms, func(t *api.Term) bool { return t.Crosses(namespace) }) {
		return terms
	}
	s := v.in(namespace)
	of, known := s.terms[repels]
	if !known {
		of = api.TermsOf(terms, namespace, s.labels)
		s.terms.put(repels, of)
	}
	return of
}

// readWide returns such terms as they are written; with shared also those about hostnames, which nodes share.
func (r *reading) readWide(repels string, shared bool) []*api.Term {
	if repels == "" {
		return nil
	}
	terms, known := r.terms[repels]
	if !known {
		all, err := api.ReadRepels([]byte(repels))
		if err != nil {
			all = nil // a pod of ours with such terms is refused when it is read
		}
		for _, t := range all {
			if t.Topology != api.LabelHostname || shared {
				terms = append(terms, t)
			}
		}
		r.terms.put(repels, terms)
	}
	return terms
}

// onePodOf returns the claims that pods of a class use and one pod at a time may use.
func (r *reading) onePodOf(repels string) []string {
	if repels == "" {
		return nil
	}
	claims, known := r.onePod[repels]
	if !known {
		claims = api.OnePodClaims([]byte(repels))
		r.onePod.put(repels, claims)
	}
	return claims
}

// joinsOf returns the affinity and the spread of a class that has some, nil if they cannot be read.
func (r *reading) joinsOf(class *api.Class) *api.Joins {
	joins, known := r.joins[string(class.Joins)]
	if !known {
		joins, _ = api.ReadJoins(class.Joins)
		r.joins.put(string(class.Joins), joins)
	}
	return joins
}

// leaningsOf returns the leanings of a class that has some, nil if they cannot be read.
func (r *reading) leaningsOf(class *api.Class) *api.Leanings {
	leanings, known := r.leans[string(class.Leanings)]
	if !known {
		leanings, _ = api.ReadLeanings(class.Leanings)
		r.leans.put(string(class.Leanings), leanings)
	}
	return leanings
}
