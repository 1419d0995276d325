package cluster

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"basalt.dev/basalt/api"
)

// spans receives traces as any collector would, and keeps when the steps of some gangs ended. A gang that tries several
// times has a step several times: the last one counts.
type spans struct {
	collector.UnimplementedTraceServiceServer
	address string
	server  *grpc.Server

	mu     sync.Mutex
	wanted map[[16]byte]map[string]step
}

// step is a span: "queue wait", "reserve", "hold", "commit", "bind".
type step struct{ start, end time.Time }

func receiveSpans() (*spans, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("receive spans: %w", err)
	}
	s := &spans{address: l.Addr().String(), server: grpc.NewServer(), wanted: map[[16]byte]map[string]step{}}
	collector.RegisterTraceServiceServer(s.server, s)
	go func() { _ = s.server.Serve(l) }() // ends with stop
	return s, nil
}

func (s *spans) stop() { s.server.Stop() }

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

// Export implements the collector.
func (s *spans) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rs := range r.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, sp := range ss.Spans {
				if len(sp.TraceId) != 16 {
					continue
				}
				of := s.wanted[[16]byte(sp.TraceId)]
				if of == nil {
					continue
				}
				now := step{time.Unix(0, int64(sp.StartTimeUnixNano)), time.Unix(0, int64(sp.EndTimeUnixNano))}
				if now.end.After(of[sp.Name].end) {
					of[sp.Name] = now
				}
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}
