package demo

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// momentRow is a line about a moment, or what was done in it.
type momentRow struct {
	text  string
	words bool // it says what happened, or is the heading
}

// rows returns the moments of part 3 as lines, and puts together what happened within half a second, up to a step.
func (t *teams) rows(zero time.Time) []momentRow {
	const width = batchGangs // a letter for what a gang has
	moments := slices.Clone(t.moments)
	slices.SortStableFunc(moments, func(a, b moment) int { return a.at.Compare(b.at) })
	out := []momentRow{{fmt.Sprintf("%8s  %-*s  %5s  %4s", "", width+2, "B=batch P=prod", "batch", "prod"), true}}
	for len(moments) > 0 {
		n := 1
		for n < len(moments) && !moments[n-1].step && moments[n].at.Sub(moments[0].at) < 500*time.Millisecond {
			n++
		}
		var what []string
		for _, m := range moments[:n] {
			if m.what != "" {
				what = append(what, m.what)
			}
		}
		last := moments[n-1]
		b, p := last.batch*width/sharedCores, last.prod*width/sharedCores
		free := max(0, width-b-p)
		line := fmt.Sprintf("%6.1f s  [%s%s%s]  %5d  %4d  ", math.Round(10*last.at.Sub(zero).Seconds())/10+0, // never -0
			strings.Repeat("B", b), strings.Repeat("P", p), strings.Repeat(".", free), last.batch, last.prod)
		out = append(out, momentRow{strings.TrimRight(line+strings.Join(what[:min(1, len(what))], ""), " "), len(what) > 0})
		for _, more := range what[min(1, len(what)):] {
			out = append(out, momentRow{strings.Repeat(" ", len(line)) + more, true})
		}
		moments = moments[n:]
	}
	return out
}
