package coordinator

import "slices"

// insert and remove keep a list in order. Most come at the end and go from the front, where both cost nothing.
func insert[E any](list []E, e E, compare func(E, E) int) []E {
	i, _ := slices.BinarySearchFunc(list, e, compare)
	return slices.Insert(list, i, e)
}

func remove[E any](list []E, e E, compare func(E, E) int) []E {
	i, found := slices.BinarySearchFunc(list, e, compare)
	switch {
	case !found:
		return list
	case i == 0:
		clear(list[:1])
		return list[1:]
	}
	return slices.Delete(list, i, i+1)
}
