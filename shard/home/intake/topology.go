package intake

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
)

// readTopology reads the topology constraints of a PodGroup. One that asks for what cannot be done is refused, with the field; the schema keeps
// such ones out, but not those of other kinds, or made before it.
func (g *Group) readTopology(seen *v1beta1.PodGroup) {
	g.Required, g.Preferred, g.Slice = "", "", Slice{}
	if seen.Spec.SchedulingConstraints == nil {
		return
	}
	for i := range seen.Spec.SchedulingConstraints.Topology {
		t := &seen.Spec.SchedulingConstraints.Topology[i]
		if words := g.constrain(t, seen.Spec.SchedulingPolicy.Gang.MinCount); words != "" {
			g.Required, g.Preferred, g.Slice = "", "", Slice{}
			if g.Refused == nil {
				g.Refused = api.RefuseGroup(g.Name.Kind, g.Name.Namespace, g.Name.Name, fmt.Sprintf("spec.schedulingConstraints.topology[%d]%s", i, words))
			}
			return
		}
	}
}

// constrain adds a constraint, or says what is wrong with it, beginning with the field.
func (g *Group) constrain(t *v1beta1.TopologyConstraint, minCount int32) (wrong string) {
	of := &g.Required
	if t.Mode == v1beta1.TopologyPreferred {
		of = &g.Preferred
	}
	switch {
	case t.Mode != "" && t.Mode != v1beta1.TopologyRequired && t.Mode != v1beta1.TopologyPreferred:
		return fmt.Sprintf(".mode: %q is not supported: Required or Preferred", api.Shorten(string(t.Mode), 64))
	case len(validation.IsQualifiedName(t.Key)) > 0:
		return fmt.Sprintf(".key: %q is not the name of a label", api.Shorten(t.Key, 64))
	case t.SliceSize < 0:
		return fmt.Sprintf(".sliceSize: is %d, and is to be at least 1", t.SliceSize)
	case t.SliceSize > 0 && of == &g.Preferred:
		return ".mode: a constraint with a sliceSize is Required"
	case t.SliceSize > max(1, minCount):
		return fmt.Sprintf(".sliceSize: is %d, and is to be at most spec.schedulingPolicy.gang.minCount, which is %d", t.SliceSize, max(1, minCount))
	case t.SliceSize > 0 && g.Slice.Key != "":
		return ": more than one constraint with a sliceSize is not supported"
	case t.SliceSize > 0:
		g.Slice = Slice{t.Key, int(t.SliceSize)}
	case *of != "":
		return ": more than one constraint of the same mode is not supported"
	default:
		*of = t.Key
	}
	if g.Slice.Key != "" && (g.Slice.Key == g.Required || g.Slice.Key == g.Preferred) {
		return ".key: " + g.Slice.Key + " is named by another constraint"
	}
	return ""
}
