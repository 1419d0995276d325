package home

import (
	"fmt"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1alpha1"
)

// closedToPods returns why no further pod of a PodGroup is placed, whatever capacity and quota there are.
func (c *Core) closedToPods(g *gang) reason {
	switch {
	case g.group == nil:
	case g.mismatch:
		return reason{v1alpha1.ReasonQueueMismatch, c.mismatch(g.group)}
	case g.group.deleting:
		return reason{v1alpha1.ReasonNotEnoughPods, "the PodGroup is being deleted"}
	}
	return reason{}
}

// obstacle returns why a gang cannot request its reservation, nothing if it can.
func (c *Core) obstacle(g *gang) reason {
	t, least := &g.tally, g.minCount()
	closed := c.closedToPods(g)
	switch {
	case g.orphan:
		return reason{v1alpha1.ReasonNotEnoughPods, fmt.Sprintf("PodGroup %s does not exist (label %s)", c.orphanOf(g), api.LabelPodGroup)}
	case closed.reason != "":
		return closed
	case g.placed+t.candidates >= least:
		return reason{}
	case g.placed+t.candidates+t.refusals >= least:
		return reason{t.refused.Refused.Reason, fmt.Sprintf("pod %s/%s: %s", t.refused.Namespace, t.refused.Name, t.refused.Refused.Message)}
	case g.single:
		return reason{v1alpha1.ReasonNotEnoughPods, "the pod cannot be scheduled: it is gated or being deleted"}
	}
	words := fmt.Sprintf("%d of %d pods can be scheduled", g.placed+t.candidates, least)
	if t.gated > 0 {
		words += fmt.Sprintf(", %d more have scheduling gates", t.gated)
	}
	if t.refused != nil {
		words += fmt.Sprintf(", %d are rejected", t.refusals)
	}
	return reason{v1alpha1.ReasonNotEnoughPods, words}
}

func (c *Core) orphanOf(g *gang) string {
	for _, p := range g.members {
		return p.group.String()
	}
	return g.name.String()
}
