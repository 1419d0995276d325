package home

import (
	"fmt"
	"slices"
	"time"
)

// For how long nobody is evicted for a gang that did not start though it had room: at first, and, as that doubles with
// each try for which others had been evicted, at most.
const (
	distrustFor = 10 * time.Minute
	maxDistrust = 144 * distrustFor // a day
)

// distrust is what a gang remembers of tries that failed for a reason which room does not mend. It is forgotten with
// the gang, and at a takeover.
type distrust struct {
	why     string    // of the last one
	claims  int       // of those for which others had been evicted
	attempt uint64    // the last of these
	until   time.Time // nobody is evicted for the gang before
}

// fails takes note of a try that failed. Of an attempt for which others were evicted the first one counts.
func (d *distrust) fails(now time.Time, why string, claimed bool, attempt uint64) {
	if d.why = why; claimed && d.attempt != attempt {
		d.claims, d.attempt = d.claims+1, attempt
	}
	d.until = now.Add(min(distrustFor<<min(max(0, d.claims-1), 8), maxDistrust))
}

func (d *distrust) words(now time.Time) string {
	if !now.Before(d.until) {
		return ""
	}
	return fmt.Sprintf("nobody is evicted for it for another %v because %s", d.until.Sub(now).Round(time.Second), d.why)
}

// distrusts says why nobody is evicted for a gang, "" if that is no reason: its volumes failed, or others were evicted
// for it, and the API server rejects its Bindings. Who edits it, or a pod of it, ends the latter.
func (c *common) distrusts(g *gang) string {
	if words := g.search.distrust.words(c.now); words != "" {
		return words
	}
	if !slices.ContainsFunc(g.inOrder(), func(p *pod) bool { return p.Unbound && p.candidate() }) {
		return ""
	}
	return g.trouble.words(c.now)
}
