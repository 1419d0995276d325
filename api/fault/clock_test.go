//go:build faults

package fault

import (
	"testing"
	"time"
)

func TestSteppedClock(t *testing.T) {
	defer offset.Store(0)
	before := Now()
	for _, by := range []time.Duration{90 * time.Second, -time.Hour, 0} {
		offset.Store(int64(by / time.Second))
		now := Now()
		if wrong := time.Unix(now.Unix(), 0).Sub(time.Unix(time.Now().Unix(), 0)); wrong < by-time.Second || wrong > by+time.Second {
			t.Errorf("stepped by %s, the wall clock is wrong by %s", by, wrong)
		}
		if passed := now.Sub(before); passed < 0 || passed > time.Second {
			t.Errorf("stepped by %s, the monotonic clock moved by %s", by, passed)
		}
	}
}
