package api

import "time"

// Timers of more than one core.
const (
	// Overdue is how much longer than its grace period a pod may take to go. Then nobody counts on it: it is lost, its
	// room does not count as becoming free, claims that await it end. Its node is dead, or a finalizer is not removed.
	Overdue = time.Minute
	// GraceMost is the longest grace period that others wait for.
	GraceMost = time.Hour
	// PatientFor is how long one gang may keep partial holds.
	PatientFor = 2 * time.Minute
	// UnplacedFor is the lifetime of an Unplaced. It is repeated three times in it.
	UnplacedFor = 15 * time.Second
)
