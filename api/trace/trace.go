// Package trace exports the spans that cores report, as OTLP over gRPC. Spans arrive finished, with their ids and times. The
// ids are derived from the gang, so that all processes that handle a gang use the same ids without communication. Without an
// endpoint, no spans are created, and tracing costs nothing.
package trace

import (
	"context"
	"crypto/rand"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"basalt.dev/basalt/api"
)

// Exporter sends spans. A nil Exporter drops them.
type Exporter struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// New makes an exporter to an OTLP endpoint (host:port, or a URL), nil for an empty one.
func New(ctx context.Context, endpoint, role, name, incarnation string) (*Exporter, error) {
	if endpoint == "" {
		return nil, nil
	}
	options := []otlptracegrpc.Option{otlptracegrpc.WithInsecure(), otlptracegrpc.WithEndpoint(endpoint)}
	if hasScheme(endpoint) {
		options = []otlptracegrpc.Option{otlptracegrpc.WithEndpointURL(endpoint)}
	}
	exporter, err := otlptracegrpc.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("export traces to %s: %w", endpoint, err)
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithIDGenerator(given{}),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.namespace", "basalt"), attribute.String("service.name", "basalt-"+role),
			attribute.String("service.instance.id", incarnation), attribute.String("basalt.name", name))))
	return &Exporter{provider: provider, tracer: provider.Tracer("basalt.dev/basalt")}, nil
}

func hasScheme(endpoint string) bool {
	for i := range endpoint {
		if endpoint[i] == ':' {
			return len(endpoint) > i+2 && endpoint[i+1:i+3] == "//"
		}
	}
	return false
}

// Export sends one span, later and in a batch.
func (e *Exporter) Export(s api.Span) {
	if e == nil {
		return
	}
	ctx := context.WithValue(context.Background(), idsKey{}, s)
	if s.ParentID != ([8]byte{}) {
		ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: s.TraceID, SpanID: s.ParentID, TraceFlags: trace.FlagsSampled, Remote: true}))
	}
	attributes := make([]attribute.KeyValue, len(s.Attributes))
	for i, a := range s.Attributes {
		attributes[i] = attribute.String(a.Key, a.Value)
	}
	_, span := e.tracer.Start(ctx, s.Name, trace.WithTimestamp(s.Start), trace.WithAttributes(attributes...))
	span.End(trace.WithTimestamp(s.End))
}

// Shutdown sends what is left.
func (e *Exporter) Shutdown(ctx context.Context) error {
	if e == nil {
		return nil
	}
	return e.provider.Shutdown(ctx)
}

type idsKey struct{}

// given hands out the ids that a span came with.
type given struct{}

func (given) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if s, ok := ctx.Value(idsKey{}).(api.Span); ok {
		return s.TraceID, s.SpanID
	}
	var t trace.TraceID
	var s trace.SpanID
	_, _ = rand.Read(t[:])
	_, _ = rand.Read(s[:])
	return t, s
}

func (g given) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	_, s := g.NewIDs(ctx)
	return s
}
