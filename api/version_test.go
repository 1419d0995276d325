package api

import "testing"

func TestNewerVersion(t *testing.T) {
	ascending := []string{"", "1", "9", "10", "11", "99", "100", "18446744073709551615"}
	for i, a := range ascending {
		for j, b := range ascending {
			if got := NewerVersion(a, b); got != (i > j) {
				t.Errorf("NewerVersion(%q, %q) = %v", a, b, got)
			}
		}
	}
}
