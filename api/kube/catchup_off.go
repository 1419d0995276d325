//go:build !faults

package kube

import "time"

// catchUpFrom is how long a list takes from which on a watch that catches up takes its place.
const catchUpFrom = time.Second
