package follow

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// What a reflector of client-go puts its objects into.

// sink turns what a reflector says into events.
type sink[T runtime.Object] struct {
	replaced func([]T)
	seen     func(T)
	gone     func(T)
}

func (s sink[T]) Add(o any) error { return s.each(o, s.seen) }

func (s sink[T]) Update(o any) error { return s.each(o, s.seen) }

func (s sink[T]) Delete(o any) error { return s.each(o, s.gone) }

func (s sink[T]) Resync() error { return nil }

func (s sink[T]) each(o any, f func(T)) error {
	t, ok := o.(T)
	if !ok {
		return fmt.Errorf("watch gave a %T", o)
	}
	f(t)
	return nil
}

func (s sink[T]) Replace(list []any, _ string) error {
	items := make([]T, 0, len(list))
	for _, o := range list {
		if t, ok := o.(T); ok {
			items = append(items, t)
		}
	}
	s.replaced(items)
	return nil
}
