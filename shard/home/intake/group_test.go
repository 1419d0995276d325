package intake

import (
	"testing"

	"basalt.dev/basalt/api"
)

// Names are ordered by their namespaces first.
func TestCompareNames(t *testing.T) {
	ordered := []Name{{"", "z", 0}, {"a", "", 0}, {"a", "b", 0}, {"a", "b", api.VolcanoGroup}, {"a", "c", 0}, {"b", "a", 0}, {"b", "b", 0}}
	for i, a := range ordered {
		for j, b := range ordered {
			if got := compareNames(a, b); got < 0 != (i < j) || got > 0 != (i > j) {
				t.Errorf("%v and %v compare as %d", a, b, got)
			}
		}
	}
}
