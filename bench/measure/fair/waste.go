package fair

import (
	"context"
	"fmt"
	"slices"
	"time"

	"basalt.dev/basalt/bench/measure/report"
	"basalt.dev/basalt/bench/measure/workload"
)

// contender is one of those that are compared on the same trace.
type contender struct {
	name  string
	by    func(*hall) scheduler
	named []bool // what queues say they deserve some of
}

const (
	nobody       = "nobody evicts"
	ourDeserved  = "Basalt, reclaimPolicy Deserved"
	ourFair      = "Basalt, reclaimPolicy FairShare"
	volcanoName  = "Volcano"
	kaiQuotaName = "KAI, up to the quota"
	kaiFairName  = "KAI, up to the fair share"
	atOnce       = ", preemptionDelay 0"
	everything   = ", CPU and memory named too"
)

// contenders are compared where queues name what is scarce. Beside that there is what Basalt does without its delay, which the others do not
// have, and what Basalt and Volcano do when queues name everything.
var contenders = []contender{
	{nobody, basaltNever, scarce}, {ourDeserved, basaltDeserved, scarce}, {ourFair, basaltFair, scarce},
	{volcanoName, newVolcano, scarce}, {kaiQuotaName, newKaiQuota, scarce}, {kaiFairName, newKaiFair, scarce},
	{ourDeserved + atOnce, basaltDeservedAtOnce, scarce}, {ourFair + atOnce, basaltFairAtOnce, scarce},
	{ourDeserved + everything, basaltDeserved, allNamed}, {volcanoName + everything, newVolcano, allNamed},
}

const (
	nameEvictions = "evictions"
	nameCores     = "cores wasted by evictions"
	nameGPUs      = "GPUs wasted by evictions"
	nameUnused    = "free though a gang that waits would fit, mean"
	nameClosed    = "evictions in a closed hour, after its first minute"
	nameReturn    = "a queue that deserves 20 % becomes busy: until it has 99 % of that"
	nameEdit      = "a weight is edited under FairShare: until the queue has 99 % of its share"
)

// wasteSeeds is how many traces there are for each load.
const wasteSeeds = 3

// few evictions are no contention: a ratio of what they waste says nothing.
const few = wasteSeeds

// measureWaste runs the traces of evictions by each of the contenders, and compares what they waste.
func measureWaste(ctx context.Context, o Options, r *report.Report) error {
	for _, load := range o.Loads {
		sums := map[string]map[string]float64{}
		for _, c := range contenders {
			subject := fmt.Sprintf("load %.2f: %s", load, c.name)
			sums[c.name] = map[string]float64{}
			for n := range wasteSeeds {
				run := r.Run(subject, n+1)
				h := newHall(o.Seed+uint64(n), load, ofOpenb, c.named, c.by)
				for hour := range o.Hours {
					if err := ctx.Err(); err != nil {
						return err
					}
					o.Progress.Say("%s: trace %d, hour %d of %d", subject, n+1, hour+1, o.Hours)
					h.until(time.Duration(hour+1) * time.Hour)
				}
				run.Values = h.waste()
				for _, v := range run.Values {
					sums[c.name][v.Name] += v.Value
				}
			}
			ours := c.name == ourDeserved || c.name == ourFair
			r.Medians(subject, func(name string) report.Target {
				if ours && name == nameUnused {
					return report.AtMost(3)
				}
				return report.Target{}
			})
		}
		compare(r, load, sums)
	}
	return nil
}

// compare reports what Basalt wastes of what others waste, and whether it stops, over the traces of a load together: a median would hide
// the one trace in which it does not.
func compare(r *report.Report, load float64, sums map[string]map[string]float64) {
	subject := fmt.Sprintf("load %.2f: all traces", load)
	targets := map[string]report.Target{}
	run := r.Run(subject, 1)
	for _, of := range []struct {
		ours, theirs string
		most         float64
	}{{ourDeserved, volcanoName, 0.6}, {ourDeserved, kaiQuotaName, 0.8}, {ourFair, kaiFairName, 0.8}} {
		if sums[of.theirs][nameEvictions] <= few {
			r.Note("load %.2f: %s evicts %.0f gangs and %s %.0f, so no ratio is given.", load, of.ours, sums[of.ours][nameEvictions], of.theirs, sums[of.theirs][nameEvictions])
			continue
		}
		for _, what := range []string{nameCores, nameGPUs} {
			name := fmt.Sprintf("%s by %s, of those by %s", what, of.ours, of.theirs)
			run.Add(name, "", sums[of.ours][what]/sums[of.theirs][what])
			targets[name] = report.AtMost(of.most)
		}
	}
	for _, ours := range []string{ourDeserved, ourFair} {
		name := nameClosed + ", " + ours
		run.Add(name, "", sums[ours][nameClosed])
		targets[name] = report.AtMost(0)
	}
	r.Medians(subject, func(name string) report.Target { return targets[name] })
}

// waste are the figures of the whole time, and of an hour after it.
func (h *hall) waste() []report.Value {
	evictions := float64(len(h.ended))
	cpu, gpu := slices.Index(resources, "cpu"), slices.Index(resources, workload.GPU)
	values := []report.Value{
		{Name: nameCores, Unit: "core h", Value: h.wasted[cpu] * float64(h.whole[cpu]) / 1000},
		{Name: nameGPUs, Unit: "GPU h", Value: h.wasted[gpu] * float64(h.whole[gpu])},
		{Name: nameEvictions, Value: evictions},
		{Name: "gangs that ran to their end", Value: float64(h.completed)},
		{Name: "in use, of the resource used most", Unit: "%", Value: 100 * h.used / float64(max(1, len(h.all)))},
		{Name: "what queues lack of what they deserve and want, mean", Unit: "%", Value: mean(h.lacking)},
		{Name: "what queues with a backlog lack of what the oracle gives them, mean", Unit: "%", Value: mean(h.below)},
		{Name: "largest distance to the oracle, mean over time", Unit: "%", Value: mean(h.all)},
		{Name: nameUnused, Unit: "%", Value: mean(h.idle)},
	}
	first, later := h.closedHour()
	return append(values, report.Value{Name: "evictions in the first minute of a closed hour", Value: float64(first)}, report.Value{Name: nameClosed, Value: float64(later)})
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
		h.come(t, demand, 1, 1000*time.Hour)
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
