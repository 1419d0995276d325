package console

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/visibility"
)

// history is what queues were charged and deserved over the last day, a sample every five minutes. It is in memory
// alone.
type history struct {
	mu     sync.Mutex
	series map[seriesOf]*[samples]sample
	at     [samples]int64 // number of the sample that each place holds
}

type seriesOf struct{ queue, resource string }

// sample is one; the zero says that there was none.
type sample struct {
	there             bool
	charged, deserved float32
}

const (
	sampleEach = 5 * time.Minute
	samples    = 288
	maxSeries  = 4000 // each takes 3.4 KB
)

func newHistory() *history { return &history{series: map[seriesOf]*[samples]sample{}} }

// keep takes samples until ctx ends.
func (h *history) keep(ctx context.Context, read <-chan struct{}, of *objects) {
	select {
	case <-read:
	case <-ctx.Done():
		return
	}
	tick := time.NewTicker(sampleEach)
	defer tick.Stop()
	for {
		h.take(time.Now(), of.tree())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// take takes a sample.
func (h *history) take(now time.Time, all []*v1beta1.Queue) {
	h.mu.Lock()
	defer h.mu.Unlock()
	number64 := now.Unix() / int64(sampleEach/time.Second)
	i := number64 % samples
	h.at[i] = number64
	for key, s := range h.series { // of queues that are gone nothing is left after a day
		s[i] = sample{}
		if empty(s) {
			delete(h.series, key)
		}
	}
	for _, q := range all {
		for _, r := range visibility.OfQueue(q).Amounts {
			key := seriesOf{q.Name, r.Resource}
			s := h.series[key]
			if s == nil {
				if len(h.series) >= maxSeries {
					continue
				}
				s = &[samples]sample{}
				h.series[key] = s
			}
			s[i] = sample{true, float32(number(r.Charged)), float32(number(r.Deserved))}
		}
	}
}

func empty(s *[samples]sample) bool {
	for i := range s {
		if s[i].there {
			return false
		}
	}
	return true
}

// lines are what is drawn of a queue's resource.
type lines struct {
	Charged, Deserved string // points
	Words             string
}

// of returns the lines of a queue's resource, nil with fewer than two samples.
func (h *history) of(queue, resource string, now time.Time) *lines {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.series[seriesOf{queue, resource}]
	if s == nil {
		return nil
	}
	last := now.Unix() / int64(sampleEach/time.Second)
	most, least, peak, n := float32(0), float32(-1), float32(0), 0
	each := func(do func(x int64, v sample)) {
		for number := last - samples + 1; number <= last; number++ {
			if i := number % samples; h.at[i] == number && s[i].there {
				do(number-(last-samples+1), s[i])
			}
		}
	}
	each(func(_ int64, v sample) {
		n++
		most, peak = max(most, v.charged, v.deserved), max(peak, v.charged)
		if least < 0 || v.charged < least {
			least = v.charged
		}
	})
	if n < 2 {
		return nil
	}
	var charged, deserved strings.Builder
	each(func(x int64, v sample) {
		high := func(v float32) float32 { return 40 - 38*v/max(most, 1e-9) }
		fmt.Fprintf(&charged, "%d,%.1f ", x, high(v.charged))
		fmt.Fprintf(&deserved, "%d,%.1f ", x, high(v.deserved))
	})
	return &lines{strings.TrimSpace(charged.String()), strings.TrimSpace(deserved.String()),
		fmt.Sprintf("charged between %s and %s in %s", saidOf(resource, float64(least)), saidOf(resource, float64(peak)),
			spanOf(time.Duration(n-1)*sampleEach))}
}

// saidOf writes a number as an amount of a resource.
func saidOf(what string, v float64) string {
	if what == "cpu" {
		v *= 1000
	}
	return api.FormatAmount(what, int64(v))
}
