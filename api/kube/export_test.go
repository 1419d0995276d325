package kube

import "context"

// CatchUpAlways has even short lists not made where the watch can do.
func (f *Follower[T]) CatchUpAlways() { f.catchUpFrom = 0 }

// IsRestored asks once.
func (f *Follower[T]) IsRestored(ctx context.Context, at Mark) (bool, error) {
	return f.isRestored(ctx, at)
}
