//go:build !faults

package server

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/shard/event"
)

// withStorm adds node updates of its own only in programs for tests.
func (w *watches) withStorm(_ context.Context, seen, gone func(*corev1.Node) event.Event) (_, _ func(*corev1.Node) event.Event) {
	return seen, gone
}
