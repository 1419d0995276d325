package api

// ObjectVersion names one version of one object.
type ObjectVersion struct{ Namespace, Name, UID, Version string }

// NewerVersion reports whether resourceVersion a is newer than b: both are numbers without leading zeros, "" is older than any.
func NewerVersion(a, b string) bool {
	if len(a) != len(b) {
		return len(a) > len(b)
	}
	return a > b
}
