package api

import (
	"time"

	"github.com/cespare/xxhash/v2"
)

// Span is a finished piece of a gang's trace, as a core reports it; a shell exports it.
type Span struct {
	TraceID    [16]byte
	SpanID     [8]byte
	ParentID   [8]byte // zero for the root
	Name       string
	Start, End time.Time
	Attributes []Attribute
}

// Attribute of a span; keys follow OpenTelemetry's conventions where one exists.
type Attribute struct{ Key, Value string }

// TraceIDOf and SpanIDOf derive ids from words, so that cores need no random source and an heir goes on in the trace of
// its predecessor.
func TraceIDOf(words ...string) (id [16]byte) {
	copy(id[:8], digest("trace", words))
	copy(id[8:], digest("trace'", words))
	return id
}

// SpanIDOf derives a span's id.
func SpanIDOf(words ...string) (id [8]byte) {
	copy(id[:], digest("span", words))
	return id
}

func digest(kind string, words []string) []byte {
	h := xxhash.New()
	_, _ = h.WriteString(kind)
	for _, w := range words {
		_, _ = h.Write([]byte{0})
		_, _ = h.WriteString(w)
	}
	return h.Sum(nil)
}
