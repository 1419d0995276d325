package api

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Kubernetes takes these for quantities, and compares them for minutes. Without the look at the exponent this test hangs.
func TestQuantityOfHugeExponent(t *testing.T) {
	for _, text := range []string{"1e400", "1e300000000", "1e2000000000", "10e2000000000"} {
		for _, roundUp := range []bool{false, true} {
			if v, err := FromQuantity("example.com/gpu", resource.MustParse(text), roundUp); err == nil || len(err.Error()) > 200 {
				t.Errorf("%s: %d, %.200v", text, v, err)
			}
		}
	}
	for text, want := range map[string]int64{"1e3": 1000, "0e2000000000": 0, "15e2": 1500, "1e18": 1e18} {
		if v, err := FromQuantity("example.com/gpu", resource.MustParse(text), false); err != nil || v != want {
			t.Errorf("%s: %d, %v, want %d", text, v, err, want)
		}
	}
}
