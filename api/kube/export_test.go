package kube

// CatchUpAlways has even short lists not made where the watch can do.
func (f *Follower[T]) CatchUpAlways() { f.catchUpFrom = 0 }
