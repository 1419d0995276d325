package cache

import "basalt.dev/basalt/api"

// tierOf is what a tier of the configuration adds to a score. It is more than any two scores of one tier differ by,
// with what a class prefers of other pods (lean.go).
func tierOf(tier uint8) int64 { return int64(api.LastTier-tier) * api.TierStep }

// levelsOf returns the tier of each of some scores, the best first, and how many are skipped: no more than leave
// something to tell apart. A tier begins where one of the configuration does, and at maxTiers-1 more scores, the
// first ones after those that are skipped.
func levelsOf(scores []int64, skip int) (levels []uint8, skipped int) {
	levels = make([]uint8, len(scores))
	var within []int // scores of the same tier of the configuration as the one before
	for i := 1; i < len(scores); i++ {
		if scores[i]/api.TierStep == scores[i-1]/api.TierStep {
			within = append(within, i)
		}
	}
	if n := len(within) - maxTiers; n < 0 {
		skip = 0
	} else {
		skip = min(skip, within[n])
	}
	level, left := uint8(0), maxTiers-1
	for i := 1; i < len(scores); i++ {
		if len(within) == 0 || within[0] != i {
			level++
		} else if within = within[1:]; i > skip && left > 0 {
			level++
			left--
		}
		levels[i] = level
	}
	return levels, skip
}
