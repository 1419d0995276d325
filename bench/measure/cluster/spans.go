package cluster

import (
	"sync"
	"time"

	trace "go.opentelemetry.io/proto/otlp/trace/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/bench/stage/otlp"
)

// spans keeps when the steps of some gangs ended. A gang that tries several times has a step several times: the last one
// counts.
type spans struct {
	*otlp.Receiver
	mu     sync.Mutex
	wanted map[[16]byte]map[string]step
}

// step is a span: "queue wait", "reserve", "hold", "commit", "bind".
type step struct{ start, end time.Time }

func receiveSpans() (*spans, error) {
	s := &spans{wanted: map[[16]byte]map[string]step{}}
	var err error
	s.Receiver, err = otlp.Listen(s.take)
	return s, err
}

// want has the steps of a gang kept, by the UID of its PodGroup.
func (s *spans) want(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted[api.TraceIDOf(uid)] = map[string]step{}
}

// of returns the steps of a gang that were heard of.
func (s *spans) of(uid string) map[string]step {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]step{}
	for name, of := range s.wanted[api.TraceIDOf(uid)] {
		out[name] = of
	}
	return out
}

func (s *spans) take(span *trace.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(span.TraceId) != 16 {
		return
	}
	of := s.wanted[[16]byte(span.TraceId)]
	if of == nil {
		return
	}
	now := step{time.Unix(0, int64(span.StartTimeUnixNano)), time.Unix(0, int64(span.EndTimeUnixNano))}
	if now.end.After(of[span.Name].end) {
		of[span.Name] = now
	}
}
