package demo

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// view shows what goes on while it goes on: on a terminal a picture that is drawn again and again, elsewhere a line now and
// then.
type view struct {
	d     *demo
	mu    sync.Mutex
	ended bool
	lines int // of the picture on the screen
	shown int // violations printed as lines
	said  int // moments of part 3 printed as lines
	last  int // pods bound at the last picture
	at    time.Time
	rate  float64
}

func newView(d *demo) *view { return &view{d: d} }

func (v *view) run(ctx context.Context) {
	every := 5 * time.Second
	if v.d.Width > 0 {
		every = 400 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	v.draw()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			v.draw()
		}
	}
}

// stop draws once more and then no more.
func (v *view) stop() {
	v.draw()
	v.mu.Lock()
	v.ended = true
	v.mu.Unlock()
}

func (v *view) draw() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ended {
		return
	}
	if v.d.Width == 0 {
		v.d.track.mu.Lock()
		said := v.d.track.teams.said(v.said)
		v.d.track.mu.Unlock()
		v.said += len(said)
		for _, m := range said {
			fmt.Fprintf(v.d.Out, "%6.1fs  part 3: batch has %3d cores, prod %3d: %s\n", m.at.Sub(v.d.begin).Seconds(), m.batch, m.prod, m.what)
		}
		fmt.Fprintln(v.d.Out, v.line())
		found := v.d.violations()
		for ; v.shown < len(found); v.shown++ {
			fmt.Fprintln(v.d.Out, "VIOLATION", found[v.shown])
		}
		return
	}
	picture := v.picture()
	var b strings.Builder
	if v.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", v.lines)
	}
	for _, l := range picture {
		b.WriteString(cut(l, v.d.Width-1))
		b.WriteString("\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	v.lines = len(picture)
	fmt.Fprint(v.d.Out, b.String())
}

func (v *view) line() string {
	d, t := v.d, v.d.track
	v.measure()
	t.mu.Lock()
	defer t.mu.Unlock()
	words := fmt.Sprintf(
		"%d of %d pods bound, %.0f/s; %d gangs; CPU %.0f %%",
		t.bound,
		d.pods.Load(),
		v.rate,
		len(t.complete),
		d.share(t.cpu),
	)
	if strings.HasPrefix(d.phase.Load().(string), "part 3") {
		words = fmt.Sprintf(
			"cores: batch %d, prod %d, of %d; %d gangs evicted",
			t.teams.cores(batchTeam),
			t.teams.cores(prodTeam),
			sharedCores,
			len(t.teams.evicted()),
		)
	}
	return cut(
		fmt.Sprintf(
			"%4.0fs  %-40s  %s",
			time.Since(d.begin).Seconds(),
			strings.Replace(d.phase.Load().(string), ", the active coordinator,", "", 1),
			words,
		),
		summaryColumns,
	)
}

// measure keeps the rate of bindings of the last seconds.
func (v *view) measure() {
	t := v.d.track
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if dt := now.Sub(v.at).Seconds(); !v.at.IsZero() && dt > 0 {
		v.rate = 0.5*v.rate + 0.5*float64(t.bound-v.last)/dt
	}
	v.at, v.last = now, t.bound
}

func (v *view) picture() []string {
	d, t := v.d, v.d.track
	v.measure()
	found := d.violations()
	t.mu.Lock()
	defer t.mu.Unlock()
	gangs, pods := 0, 0
	for _, g := range t.gangs {
		if g.never == "" {
			gangs++
		}
		pods += len(g.pods)
	}
	share := d.share(t.cpu)
	out := []string{
		fmt.Sprintf("basalt demo  seed %d  %s  %s", d.Seed, time.Since(d.begin).Round(time.Second), d.phase.Load()),
		"",
		fmt.Sprintf("  CPU     %s %5.1f %%  of %d cores on %d nodes", bar(share/100, 30), share, d.plan.cores, len(d.plan.nodes)),
		fmt.Sprintf("  pods    %s %d created, %d bound, %d finished, %.0f bound/s", bar(float64(t.bound)/float64(pods), 30), d.pods.Load(), t.bound, t.finished, v.rate),
		fmt.Sprintf("  gangs   %s %d of %d bound, %d denied by quota for a while", bar(float64(len(t.complete))/float64(gangs), 30), len(t.complete), gangs, len(t.denied)),
		"",
	}
	members := t.members()
	for i := range d.Shards {
		name := d.system.shard(i)
		state := fmt.Sprintf("%4d of %d buckets", members[name], api.Buckets)
		if dead := t.shardDeath; dead != nil && dead.name == name {
			switch {
			case dead.replaced.IsZero():
				state += fmt.Sprintf("  killed %.1f s ago", time.Since(dead.at).Seconds())
			default:
				state += fmt.Sprintf("  killed, replaced after %.1f s", dead.replaced.Sub(dead.at).Seconds())
			}
		}
		out = append(out, fmt.Sprintf("  %-8s%s %s", name, bar(float64(members[name])/api.Buckets, 30), state))
	}
	out = append(out, fmt.Sprintf("  %s leads; table epoch %d; %d reservations, %d open intents", orNobody(t.store.Leader.GetName()), t.epoch(), len(t.store.Reservations), t.rows()), "",
		"  queue                 charged / capability in cores")
	charged, admitted := map[string]int64{}, map[string]int{} // at a queue and under it
	for _, r := range t.store.Reservations {
		for _, path := range api.Lineage(r.GetGang().GetQueue()) {
			charged[path] += cpu(r.GetDemand())
			admitted[path]++
		}
	}
	for _, path := range d.plan.paths() {
		if strings.HasPrefix(path, service+".") || strings.HasPrefix(path, unlimited+".") {
			continue // many and alike
		}
		depth := strings.Count(path, ".")
		limit := cpu(t.store.Limits[path].GetCapability())
		label := strings.Repeat("  ", depth) + path[strings.LastIndexByte(path, '.')+1:]
		if limit > 0 {
			out = append(out, fmt.Sprintf("  %-16s %s %6d / %d, %d gangs", label, bar(float64(charged[path])/float64(limit), 30), charged[path]/1000, limit/1000, admitted[path]))
		} else if api.Parent(path) == shared {
			out = append(out, fmt.Sprintf("  %-16s %s %6d, deserves %d, %d gangs", label, bar(float64(charged[path])/1000/sharedCores, 30), charged[path]/1000, deservedCores, admitted[path]))
		} else {
			out = append(out, fmt.Sprintf("  %-16s %-32s %6d, %d gangs", label, "", charged[path]/1000, admitted[path]))
		}
	}
	if said := t.teams.said(0); len(said) > 0 {
		out = append(out, "", "  part 3: "+said[len(said)-1].what)
	}
	out = append(out, "")
	if len(found) == 0 {
		out = append(out, "  auditor: no violation")
	}
	for _, f := range found[max(0, len(found)-3):] {
		out = append(out, "  VIOLATION "+f.String())
	}
	return out
}

func (d *demo) share(milli int64) float64 { return 100 * float64(milli) / float64(d.plan.cores*1000) }

func (t *tracker) epoch() api.Epoch {
	if t.store.Table == nil {
		return 0
	}
	return t.store.Table.Epoch
}

func (t *tracker) rows() int {
	n := 0
	for _, r := range t.store.Intents {
		n += len(r.GetRows())
	}
	return n
}

// cpu is in milli-cores.
func cpu(amounts []*wire.Amount) int64 {
	for _, a := range amounts {
		if a.GetResource() == "cpu" {
			return a.GetValue()
		}
	}
	return 0
}

func orNobody(name string) string {
	if name == "" {
		return "nobody"
	}
	return name
}

func bar(share float64, width int) string {
	n := max(0, min(width, int(share*float64(width)+0.5)))
	return "[" + strings.Repeat("#", n) + strings.Repeat("-", width-n) + "]"
}

// cut shortens a line to a width, so that it does not wrap.
func cut(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:max(0, width)])
}
