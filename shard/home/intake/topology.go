package intake

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1alpha1"
)

// readTopology reads the topology constraints of a PodGroup. One that asks for what cannot be done is refused, with the field; the schema keeps
// such ones out, but not those of other kinds, or made before it.
func (g *Group) readTopology(seen *v1alpha1.PodGroup) {
	g.Required, g.Preferred = "", ""
	if seen.Spec.SchedulingConstraints == nil {
		return
	}
	words := ""
	for i, t := range seen.Spec.SchedulingConstraints.Topology {
		field := fmt.Sprintf("spec.schedulingConstraints.topology[%d]", i)
		of := &g.Required
		if t.Mode == v1alpha1.TopologyPreferred {
			of = &g.Preferred
		}
		if words != "" {
			break
		}
		switch {
		case t.Mode != "" && t.Mode != v1alpha1.TopologyRequired && t.Mode != v1alpha1.TopologyPreferred:
			words = fmt.Sprintf("%s.mode: %q is not supported: Required or Preferred", field, api.Shorten(string(t.Mode), 64))
		case len(validation.IsQualifiedName(t.Key)) > 0:
			words = fmt.Sprintf("%s.key: %q is not the name of a label", field, api.Shorten(t.Key, 64))
		case *of != "":
			words = field + ": more than one constraint of the same mode is not supported"
		default:
			*of = t.Key
		}
	}
	if words != "" && g.Refused == nil {
		g.Required, g.Preferred = "", ""
		g.Refused = api.RefuseGroup(g.Name.Kind, g.Name.Namespace, g.Name.Name, words)
	}
}
