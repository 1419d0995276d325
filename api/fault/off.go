//go:build !faults

package fault

// Built reports whether this build has the bugs.
const Built = false

// On reports whether a bug is switched on: never, in this build.
func On(Fault) bool { return false }

// Set would switch bugs on.
func Set(...Fault) {}
