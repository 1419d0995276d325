package coordinator

import (
	"slices"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// planOf is what a home would answer to a mandate if room were no matter: the first candidates that are enough, and of them none that is not
// needed; nothing if there is no such set. Surplus pods alone are tried first; pods says which ones a gang has.
func planOf(m *wire.Mandate, pods func(*wire.Candidate) []*wire.SurplusPod) []*wire.Victim {
	var singles []*wire.Candidate
	of := map[*wire.Candidate]int{} // whose pod
	for i, v := range m.Candidates {
		if v.Least == 0 || pods == nil {
			continue
		}
		for _, p := range pods(v) {
			s := &wire.Candidate{Gang: &wire.GangRef{Uid: p.Uid, Queue: v.Gang.Queue}, Demand: p.Amounts, Side: v.Side}
			of[s] = i
			singles = append(singles, s)
		}
	}
	if taken := choose(m, singles); len(taken) > 0 {
		var out []*wire.Victim
		for _, s := range taken {
			v := m.Candidates[of[s]]
			if n := len(out); n == 0 || out[n-1].Gang != v.Gang {
				out = append(out, &wire.Victim{Gang: v.Gang, Attempt: v.Attempt})
			}
			last := out[len(out)-1]
			last.Pods = append(last.Pods, &wire.SurplusPod{Uid: s.Gang.Uid, Amounts: s.Demand})
		}
		return out
	}
	var out []*wire.Victim
	for _, v := range choose(m, m.Candidates) {
		out = append(out, &wire.Victim{Gang: v.Gang, Attempt: v.Attempt})
	}
	return out
}

func choose(m *wire.Mandate, from []*wire.Candidate) []*wire.Candidate {
	tries := 1000
	taken := search(m, nil, from, &tries)
	for i := len(taken) - 1; i >= 0; i-- {
		if fewer := slices.Delete(slices.Clone(taken), i, i+1); enough(m, fewer) && allowed(m, fewer) {
			taken = fewer
		}
	}
	return taken
}

// search returns the first candidates that are enough and may go together, of which some are taken already; nil if it
// finds none. Like the planner of a home it goes back where sides forbid what comes first, as often as tries says.
func search(m *wire.Mandate, taken, from []*wire.Candidate, tries *int) []*wire.Candidate {
	if enough(m, taken) {
		return taken
	}
	for i, v := range from {
		if with := append(slices.Clip(taken), v); allowed(m, with) {
			if found := search(m, with, from[i+1:], tries); found != nil {
				return found
			}
		}
		if *tries--; *tries < 0 {
			return nil
		}
	}
	return nil
}

func enough(m *wire.Mandate, taken []*wire.Candidate) bool {
	for _, l := range m.Lacks {
		for _, v := range taken {
			if api.Under(v.Gang.Queue, l.Queue) {
				l = &wire.Lack{Queue: l.Queue, Resource: l.Resource, Short: l.Short - value(v.Demand, l.Resource)}
			}
		}
		if l.Short > 0 {
			return false
		}
	}
	for _, a := range m.AtLeast {
		sum := int64(0)
		for _, v := range taken {
			sum += value(v.Demand, a.Resource)
		}
		if sum < a.Value {
			return false
		}
	}
	return len(taken) > 0
}

func allowed(m *wire.Mandate, taken []*wire.Candidate) bool {
	for i, side := range m.Sides {
		var here []*wire.Candidate
		for _, v := range taken {
			for s := v.Side; s > 0; s = m.Sides[s-1].Parent {
				if int(s-1) == i {
					here = append(here, v)
				}
			}
		}
		freed := func(resource string) (sum, smallest int64) {
			for n, v := range here {
				x := value(v.Demand, resource)
				if sum += x; n == 0 || x > 0 && (x < smallest || smallest == 0) {
					smallest = x
				}
			}
			return sum, smallest
		}
		fine := side.Borrowed || len(here) == 0
		for _, a := range side.Above {
			sum, smallest := freed(a.Resource)
			fine = fine || sum-smallest < a.Value
		}
		for _, a := range side.Spare {
			if sum, _ := freed(a.Resource); sum > a.Value {
				return false
			}
		}
		if !fine {
			return false
		}
	}
	return true
}

func value(amounts []*wire.Amount, resource string) int64 {
	for _, a := range amounts {
		if a.Resource == resource {
			return a.Value
		}
	}
	return 0
}
