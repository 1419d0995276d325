//go:build faults

package kube

// catchUpFrom has programs for tests, whose clusters are small, catch up always.
const catchUpFrom = 0
