package home

import (
	"testing"

	"basalt.dev/basalt/api"
)

// What is sent for a gang that has its minimum belongs to the span in which it is bound, but for what is asked of the coordinator.
func TestTraceOf(t *testing.T) {
	for _, tracing := range []bool{false, true} {
		for _, started := range []bool{false, true} {
			for _, kind := range []string{spanReserve, spanHold, spanBind} {
				c := New(Config{Self: "a", Tracing: tracing})
				g := &gang{id: "g", life: life{started: started}}
				got, want := c.traceOf(g, kind), kind
				if started && kind == spanHold {
					want = spanBind
				}
				if !tracing {
					if got != nil {
						t.Errorf("without tracing: %v", got)
					}
					continue
				}
				trace, span := api.TraceIDOf("g"), g.spanID(want)
				if string(got.GetTraceId()) != string(trace[:]) || string(got.GetSpanId()) != string(span[:]) {
					t.Errorf("started %v, %s: not the span %s", started, kind, want)
				}
			}
		}
	}
}
