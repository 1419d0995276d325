package cache

import "golang.org/x/sys/unix"

const largePage = 2 << 20 // where it is another size, advice about parts of a page does no harm

// adviseLarge says that the pages on which some of our memory lies should be large ones, where the administrator leaves that
// to programs (madvise); where it is forbidden or done anyway, nothing changes. What is there already in small pages is put
// together now, where the kernel knows how. No error is one: memory works as it is.
func adviseLarge(at, bytes uintptr) {
	from := at &^ (largePage - 1)
	size := (at + bytes - from + largePage - 1) &^ (largePage - 1)
	for _, advice := range []uintptr{unix.MADV_HUGEPAGE, unix.MADV_COLLAPSE} {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, size, advice)
	}
}
