//go:build faults

package fault

import (
	"os"
	"slices"
	"strings"
)

var on = strings.Split(os.Getenv("BASALT_FAULTS"), ",")

// On tells whether a bug is switched on, by the environment variable BASALT_FAULTS: names separated by commas.
func On(f Fault) bool { return slices.Contains(on, string(f)) }
