package fair

import (
	"context"
	"fmt"
	"slices"
	"time"

	"basalt.dev/basalt/bench/measure/report"
)

// contender is one of those that are compared on the same trace.
type contender struct {
	name string
	by   func(*hall) scheduler
}

const (
	nobody       = "nobody evicts"
	ourDeserved  = "Basalt, reclaimPolicy Deserved"
	ourFair      = "Basalt, reclaimPolicy FairShare"
	volcanoName  = "Volcano"
	kaiQuotaName = "KAI, up to the quota"
	kaiFairName  = "KAI, up to the fair share"
)

var contenders = []contender{
	{nobody, basaltNever}, {ourDeserved, basaltDeserved}, {ourFair, basaltFair},
	{volcanoName, newVolcano}, {kaiQuotaName, newKaiQuota}, {kaiFairName, newKaiFair},
}

const (
	nameWaste  = "wasted by evictions, of the resource used most"
	nameUnused = "free though a gang that waits would fit, mean"
	nameClosed = "evictions in a closed hour, after its first minute"
	nameReturn = "a queue that deserves 20 % becomes busy: until it has 99 % of that"
	nameEdit   = "a weight is edited under FairShare: until the queue has 99 % of its share"
)

// wasteLoad is what all queues together want, of what there is, on the trace of evictions.
const wasteLoad = 1.2

// measureWaste runs the trace of evictions once by each of the contenders.
func measureWaste(ctx context.Context, o Options, r *report.Report) error {
	wasted := map[string]float64{}
	for _, c := range contenders {
		run := r.Run(c.name, 1)
		h := newHall(o.Seed, wasteLoad, ofOpenb, c.by)
		for hour := range o.Hours {
			if err := ctx.Err(); err != nil {
				return err
			}
			o.Progress.Say("%s: hour %d of %d", c.name, hour+1, o.Hours)
			h.until(time.Duration(hour+1) * time.Hour)
		}
		wasted[c.name] = slices.Max(h.wasted)
		run.Values = []report.Value{
			{Name: nameWaste, Unit: "%", Value: 100 * slices.Max(h.wasted) / float64(o.Hours)},
			{Name: "cores wasted by evictions", Unit: "core h", Value: h.wasted[0] * cores},
			{Name: "evictions", Value: float64(len(h.ended))},
			{Name: "gangs that ran to their end", Value: float64(h.completed)},
			{Name: "in use, of the resource used most", Unit: "%", Value: 100 * h.used / float64(max(1, len(h.all)))},
			{Name: "what queues lack of what they deserve and want, mean", Unit: "%", Value: mean(h.lacking)},
			{Name: "largest distance to the oracle, mean over time", Unit: "%", Value: mean(h.all)},
			{Name: nameUnused, Unit: "%", Value: mean(h.idle)},
		}
		first, later := h.closedHour()
		run.Values = append(run.Values, report.Value{Name: "evictions in the first minute of a closed hour", Value: float64(first)}, report.Value{Name: nameClosed, Value: float64(later)})
		ours := c.name == ourDeserved || c.name == ourFair
		r.Medians(c.name, func(name string) report.Target {
			switch {
			case ours && name == nameUnused:
				return report.AtMost(3)
			case ours && name == nameClosed:
				return report.AtMost(0)
			}
			return report.Target{}
		})
	}
	const relative = "wasted work, relative"
	targets := map[string]report.Target{}
	run := r.Run(relative, 1)
	for _, of := range []struct {
		ours, theirs string
		most         float64
	}{{ourDeserved, volcanoName, 0.6}, {ourDeserved, kaiQuotaName, 0.8}, {ourFair, kaiFairName, 0.8}} {
		name := fmt.Sprintf("%s: of that of %s", of.ours, of.theirs)
		ratio := 1.0 // neither wastes anything
		if wasted[of.theirs] > 0 {
			ratio = wasted[of.ours] / wasted[of.theirs]
		} else if wasted[of.ours] > 0 {
			ratio = 99
		}
		run.Values = append(run.Values, report.Value{Name: name, Value: ratio})
		targets[name] = report.AtMost(of.most)
	}
	r.Medians(relative, func(name string) report.Target { return targets[name] })
	return nil
}

// closedHour lets an hour pass in which nothing comes and nothing ends by itself, and returns how many were evicted in its first minute, and
// later.
func (h *hall) closedHour() (first, later int) {
	before, began := len(h.ended), h.now
	h.closed = true
	h.until(began + time.Hour)
	for _, at := range h.ended[before:] {
		if at <= began+time.Minute {
			first++
		} else {
			later++
		}
	}
	return first, later
}

// ---- how fast a share comes back

// returned bounds how long a share takes to come back: the delay before others are evicted, their grace, and 3 s.
const returned = 10*time.Second + grace + 3*time.Second

func measureReturn(o Options, r *report.Report) {
	const subject = "Basalt, a share comes back"
	run := r.Run(subject, 1)
	o.Progress.Say("%s", subject)
	run.Values = []report.Value{{Name: nameReturn, Unit: "s", Value: timeToReturn(o.Seed).Seconds()}, {Name: nameEdit, Unit: "s", Value: timeAfterEdit(o.Seed).Seconds()}}
	r.Medians(subject, func(string) report.Target { return report.AtMost(returned.Seconds()) })
}

// five is a hall with five queues, of which four have all of it, in gangs that never end: nothing becomes free by itself.
func five(seed uint64, deserved float64, by func(*hall) scheduler) (h *hall, back *team) {
	h = empty(seed)
	h.tick = 100 * time.Millisecond
	for i := range 5 {
		h.team(h.root, fmt.Sprint("q", i), deserved, 1)
	}
	h.sched = by(h)
	h.until(3 * time.Second)
	for _, t := range h.teams[1:] {
		h.backlog(t, 0.3)
	}
	h.until(5 * time.Minute)
	return h, h.teams[0]
}

// backlog has gangs of 64 cores come to a team, as many as want a part of the whole.
func (h *hall) backlog(t *team, part float64) {
	demand := []int64{64_000, 1 << 30, 0}
	for range int64(part * float64(h.whole[0]) / float64(demand[0])) {
		h.come(t, demand, 1000*time.Hour)
	}
}

// has waits until a team has so much of the whole, and returns when that was, at most ten minutes from now.
func (h *hall) has(t *team, part float64) time.Duration {
	began := h.now
	for h.now < began+10*time.Minute && float64(t.charged[0]) < part*float64(h.whole[0]) {
		h.until(h.now + h.tick)
	}
	return h.now - began
}

func timeToReturn(seed uint64) time.Duration {
	h, back := five(seed, 0.2, basaltDeserved)
	h.backlog(back, 0.4)
	return h.has(back, 0.99*0.2)
}

// timeAfterEdit is for a queue among five that all want more, whose weight goes from 1 to 3: it has a fifth, and is to have three sevenths.
func timeAfterEdit(seed uint64) time.Duration {
	h, back := five(seed, 0, basaltFair)
	h.backlog(back, 0.6)
	h.until(h.now + 5*time.Minute)
	back.node.weight = 3
	h.sched.(*basalt).edit(back.node)
	return h.has(back, 0.99*3./7)
}
