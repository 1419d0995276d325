// Package otlp receives traces over OTLP as any collector would, for the measurements that read Basalt's own spans. It keeps
// nothing: who listens decides what of a span matters. An exporter may send a span twice.
package otlp

import (
	"context"
	"fmt"
	"net"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// Receiver is a collector on loopback.
type Receiver struct {
	collector.UnimplementedTraceServiceServer
	Address string
	server  *grpc.Server
	take    func(*trace.Span)
}

// Listen hands each span to take, those of several processes at once, until Stop.
func Listen(take func(*trace.Span)) (*Receiver, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for traces: %w", err)
	}
	r := &Receiver{Address: l.Addr().String(), server: grpc.NewServer(), take: take}
	collector.RegisterTraceServiceServer(r.server, r)
	go func() { _ = r.server.Serve(l) }() // ends with Stop
	return r, nil
}

// Stop ends it.
func (r *Receiver) Stop() { r.server.Stop() }

// Export implements the collector.
func (r *Receiver) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	for _, rs := range req.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, span := range ss.Spans {
				r.take(span)
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}
