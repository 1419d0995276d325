package api

import (
	"cmp"
	"slices"
)

// SortedKeys returns the keys of m in ascending order, the only order in which a core walks a map. It allocates once: most maps of
// the cores hold few keys, and there slices.Sorted(maps.Keys(m)) takes up to three times as long, with three allocations and more.
func SortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// SetOf returns a set of some names.
func SetOf(names []string) map[string]bool {
	out := make(map[string]bool, len(names))
	for _, name := range names {
		out[name] = true
	}
	return out
}

// YesOrNo reads a label or annotation that is "true" or "false". It returns nil for anything else, which says nothing.
func YesOrNo(value string) *bool {
	switch value {
	case "true", "false":
		return new(value == "true")
	}
	return nil
}
