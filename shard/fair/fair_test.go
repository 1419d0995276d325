package fair

import (
	"strings"
	"testing"
)

// Each namespace has its turn, in the order in which they came; one without anything left is forgotten until it comes again.
func TestTurns(t *testing.T) {
	var f Queues[[]string]
	if !f.Empty() || f.Next() != nil {
		t.Error("the zero value is not empty")
	}
	for _, item := range strings.Fields("a1 a2 a3 b1 c1 c2") {
		q := f.Of(item[:1])
		*q = append(*q, item)
	}
	var served []string
	for q := f.Next(); q != nil; q = f.Next() {
		served = append(served, (*q)[0])
		*q = (*q)[1:]
		f.Rotate(len(*q) == 0)
		if len(served) == 4 {
			q := f.Of("b")
			*q = append(*q, "b2")
		}
	}
	if got, want := strings.Join(served, " "), "a1 b1 c1 a2 c2 a3 b2"; got != want {
		t.Errorf("served %s, want %s", got, want)
	}
	if !f.Empty() || len(f.queues) != 0 {
		t.Errorf("%d queues are left", len(f.queues))
	}
}
