package home

import (
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/shard/home/intake"
	"basalt.dev/basalt/shard/home/report"
)

// TestObstacleOfAGangThatIsNotLookedAtYet: a pod that could not be placed is edited, and somebody asks what its gang
// waits for before the gang is counted again, as a gang of many pods is only at the next tick.
func TestObstacleOfAGangThatIsNotLookedAtYet(t *testing.T) {
	c := logged(New(Config{Self: "a", Strict: true}))
	g := c.newGang("g", "team", intake.Name{Namespace: "ns", Name: "g", Kind: api.BasaltGroup})
	p := &pod{Entry: &intake.Entry{Pod: &api.Pod{Namespace: "ns", Name: "p", UID: "p"}}, gang: g}
	x := &p.some().rejected
	x.why, x.until = report.Rejected("by a policy"), epoch0.Add(time.Hour)
	g.members["p"] = p
	c.census.recount(g)
	p.some().rejected = rejection{}
	if why := c.obstacle(g); !why.Is(v1beta1.ReasonBindingRejected) {
		t.Errorf("it waits for %v", why)
	}
}
