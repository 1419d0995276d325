//go:build !faults

package fault

import "time"

// Now is time.Now.
func Now() time.Time { return time.Now() }
