package follow

import (
	"encoding/json"
	"testing"

	"basalt.dev/basalt/api/v1beta1"
)

// What the API server accepts and Go does not costs the object its status, or its spec, and nothing else.
func TestDecode(t *testing.T) {
	const metadata = `"metadata":{"name":"g","namespace":"n","uid":"u","resourceVersion":"7"}`
	for _, c := range []struct {
		name, object string
		readable     bool
		least        int32
		status       bool
	}{
		{"plain", `{` + metadata + `,"spec":{"schedulingPolicy":{"gang":{"minCount":3}}},"status":{"pods":2}}`, true, 3, true},
		{"a time that Go does not read", `{` + metadata + `,"spec":{"schedulingPolicy":{"gang":{"minCount":3}}},
			"status":{"conditions":[{"type":"X","lastTransitionTime":"2026-01-01T00:00:00.5z"}]}}`, false, 3, false},
		{"a number that is none", `{` + metadata + `,"spec":{"schedulingPolicy":{"gang":{"minCount":"many"}}},"status":{"pods":2}}`, false, 0, false},
	} {
		var raw map[string]any
		if err := json.Unmarshal([]byte(c.object), &raw); err != nil {
			t.Fatal(err)
		}
		g, err := decode[v1beta1.PodGroup](raw)
		if (err == nil) != c.readable || g.Name != "g" || g.ResourceVersion != "7" || g.Spec.SchedulingPolicy.Gang.MinCount != c.least || (g.Status != nil) != c.status {
			t.Errorf("%s: %+v, %v", c.name, g, err)
		}
	}
}
