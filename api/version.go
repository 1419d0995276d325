package api

// NewerVersion reports whether resourceVersion a is newer than b: both are numbers without leading zeros, "" is older than any.
func NewerVersion(a, b string) bool {
	if len(a) != len(b) {
		return len(a) > len(b)
	}
	return a > b
}
