package local

// Forget has a cluster forget that somebody could have stopped a server of it.
func Forget(c *Cluster) { c.touched = false }
