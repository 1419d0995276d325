package cache

import (
	"slices"
	"unsafe"
)

// grown makes room for n more, as slices.Grow does, for what is read at random at each decision. Where that is large it is
// asked for in large pages: with those of 4 KiB, finding out where a line lies costs as much again as reading it.
func grown[T any](s []T, n int) []T {
	if cap(s)-len(s) >= n {
		return s
	}
	out := slices.Grow([]T(nil), max(len(s)+n, 2*len(s)))[:len(s)]
	large(out)
	copy(out, s)
	return out
}

// largeFrom is from what size on memory is asked for in large pages, in bytes: half a page of the usual size.
const largeFrom = 1 << 20

// large asks the system to keep what a slice has room for in large pages.
func large[T any](s []T) []T {
	var one T
	if bytes := uintptr(cap(s)) * unsafe.Sizeof(one); bytes >= largeFrom {
		adviseLarge(uintptr(unsafe.Pointer(unsafe.SliceData(s))), bytes)
	}
	return s
}
