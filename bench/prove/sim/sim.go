// Package sim runs the whole of Basalt on one goroutine from one seed, in virtual time: the production cores of one to five
// shards and of two coordinators, around models of the control store, of the API server and of the network between them.
// A workload and faults are drawn from the seed; after every change of either server the invariants of the design are
// judged from the models' own state, and at the end, with the faults switched off, that everything that fits was placed
// and nothing is left lying about.
//
// It decides nothing about Basalt. The two servers are those of package bench/prove/model; how processes lag behind them is in
// store.go and apiserver.go; what is read and written in the control store, and how a lost answer is resolved, is the shipping
// code of package api/store/protocol. network.go is the streams of package api/link, shard.go and coordinator.go are the
// shells, without which the cores do nothing: when a coordinator campaigns, leads and resigns is the shipping code of package
// coordinator/leadership, what the answers of both servers mean that of the packages effect. check.go is the judge. draw.go
// draws the workload and the faults, contend.go those of worlds in which gangs evict each other, claims.go judges when these start, and act.go
// carries all of it out. groups.go does so for groups of other kinds than PodGroup;
// between these everything is a line of a script (script.go), and a script that fails is shrunk to the lines that it needs
// (shrink.go). bugs.go lists the seeded bugs that have to be found. outputs.go hashes what the cores put out, also what
// no log line shows.
//
// Invariants: the same seed gives the same log, byte by byte, and so does the script of its run, without the random source;
// there is no clock, no goroutine and no other randomness; maps are walked in sorted order where order can reach an output.
// It refuses to go on after the first violation.
package sim

import (
	"container/heap"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
)

// Config of a run.
type Config struct {
	Seed   uint64
	Script *Script   // what happens, instead of what would be drawn from Seed
	Steps  int       // events before the faults end; 5,000 if 0
	Calm   bool      // no faults at all
	Brief  bool      // ends when the faults do, without judging what is left
	Out    io.Writer // every line of the log; nil for none
	Tail   int       // lines of the log kept for a failure; 120 if 0

	Outputs  bool // computes Result.Outputs
	Progress bool // some worlds are of lives (contend.go), and who waits at rest is judged (claims.go)
}

// Result of a run.
type Result struct {
	Seed      uint64
	Steps     int           // events, those after the end of the faults included
	Simulated time.Duration // virtual time
	Hash      uint64        // of the log
	Outputs   uint64        // of every output of every core, with its time, in order; zero unless Config asks for it
	Counts    map[string]int
	Violation string // empty when there is none
	Late      bool   // it was found after the faults had ended
	Step      int    // at which it was found
	Tail      []string
	Script    *Script // all that happened: run again, it gives the same log
}

// String is a report for people.
func (r Result) String() string {
	var b strings.Builder
	if r.Violation != "" {
		for _, line := range r.Tail {
			b.WriteString(line)
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "seed %d step %d after %s: %s\n", r.Seed, r.Step, r.Simulated, r.Violation)
		return b.String()
	}
	fmt.Fprintf(&b, "seed %d: %d steps, %s, log %016x", r.Seed, r.Steps, r.Simulated.Round(time.Second), r.Hash)
	for _, k := range slices.Sorted(maps.Keys(r.Counts)) {
		fmt.Fprintf(&b, ", %s %d", k, r.Counts[k])
	}
	return b.String()
}

// violation ends a run.
type violation string

// world is one run.
type world struct {
	cfg    Config
	rng    *rand.Rand // of workload and faults; nothing else draws from it
	die    *die       // of whoever acts now
	now    time.Time
	start  time.Time
	step   int
	calm   bool                     // the faults are over
	waits  map[string]int           // who waits at rest and could start -> how often in a row that was seen
	waited map[string]int           // when it was judged before
	over   bool                     // all that was to happen in a world of lives has
	slow   map[string]time.Duration // how long what is slow now takes at most
	events events
	order  uint64
	made   map[string]int // processes so far, by name
	script *player        // nil when all is drawn
	record *Script

	store     *store
	api       *apiServer
	net       *network
	gossip    *gossip
	processes []*process // that are alive
	coords    []*coordinator
	shards    []*shard
	load      workload
	check     check
	audit     *audit.Auditor
	found     int // violations of the auditor's that were looked at

	hash    *xxhash.Digest
	outputs *xxhash.Digest // nil unless it is asked for
	tail    []string
	at      int
	counts  map[string]int
	buf     []byte
}

// Run makes one run.
func Run(cfg Config) (result Result) {
	if cfg.Steps == 0 {
		cfg.Steps = 5000
	}
	if cfg.Tail == 0 {
		cfg.Tail = 120
	}
	w := newWorld(cfg)
	start := w.start
	defer func() {
		result = Result{Seed: cfg.Seed, Steps: w.step, Simulated: w.now.Sub(start), Hash: w.hash.Sum64(), Counts: w.counts, Script: w.record}
		if w.outputs != nil {
			result.Outputs = w.outputs.Sum64()
		}
		switch failed := recover().(type) {
		case nil:
			return
		case violation:
			result.Violation = string(failed)
		default:
			result.Violation = fmt.Sprintf("panic: %v\n%s", failed, debug.Stack())
		}
		result.Late = w.calm
		if !w.calm {
			w.record.add(w.now.Sub(start), "calm")
		}
		result.Step = w.step
		for i := range w.tail {
			if line := w.tail[(w.at+i)%len(w.tail)]; line != "" {
				result.Tail = append(result.Tail, line)
			}
		}
	}()
	w.begin()
	for w.goesOn() {
		w.next()
	}
	if !cfg.Brief {
		w.settle()
	}
	return result
}

// goesOn reports whether more is to be drawn, or played, before the faults end.
func (w *world) goesOn() bool {
	switch {
	case w.script != nil:
		return len(w.events) > 0 && !w.events[0].at.After(w.start.Add(w.script.calm))
	case !w.events[0].at.After(w.now):
		return true
	case w.load.lives:
		return !w.over
	}
	return w.step < w.cfg.Steps
}

// newWorld makes a world in which nothing has begun.
func newWorld(cfg Config) *world {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	w := &world{
		cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0xba5a17)), now: start, start: start, made: map[string]int{}, slow: map[string]time.Duration{},
		record: &Script{Jitter: cfg.Seed},
		hash:   xxhash.New(), tail: make([]string, cfg.Tail), counts: map[string]int{},
		// What needs two streams to lag is judged by check.go at the end; here every stream is seen at once.
		audit: audit.New(audit.Config{Volcano: true, Exact: true, Lag: 10000 * time.Hour, Grace: 10000 * time.Hour, Unresolved: 10000 * time.Hour}),
	}
	if cfg.Script != nil {
		w.record.Jitter = cfg.Script.Jitter
		w.script = newPlayer(cfg.Script)
	}
	if cfg.Outputs {
		w.outputs = xxhash.New()
	}
	w.die = w.newDie("cluster")
	w.store, w.api, w.net, w.gossip, w.check = newStore(w), newAPIServer(w), newNetwork(w), newGossip(w), newCheck(w)
	return w
}

// next carries out one event.
func (w *world) next() {
	if len(w.events) == 0 {
		w.fail("nothing happens any more")
	}
	e := heap.Pop(&w.events).(*timed)
	w.now, w.die = e.at, e.die
	if !e.outside {
		w.step++
	}
	e.do()
}

// after has something done at a later time; what is due at the same time is done in the order of asking.
func (w *world) after(d time.Duration, do func()) { w.atTime(w.now.Add(d), do) }

func (w *world) atTime(at time.Time, do func()) {
	if at.Before(w.now) {
		at = w.now
	}
	w.order++
	heap.Push(&w.events, &timed{at: at, order: w.order, do: do, die: w.die})
}

// outside is after for whoever draws or reads what happens: that is no step.
func (w *world) outside(d time.Duration, do func()) {
	at := w.now.Add(d)
	w.order++
	heap.Push(&w.events, &timed{at: at, order: w.order, do: do, die: w.newDie("at " + at.Sub(w.start).String()), outside: true})
}

type timed struct {
	at      time.Time
	order   uint64
	do      func()
	die     *die
	outside bool
}

type events []*timed

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	if !e[i].at.Equal(e[j].at) {
		return e[i].at.Before(e[j].at)
	}
	return e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(*timed)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*e = old[:len(old)-1]
	return x
}

// fail ends the run.
func (w *world) fail(format string, args ...any) { panic(violation(fmt.Sprintf(format, args...))) }

// log adds a line to the log.
func (w *world) log(format string, args ...any) {
	w.buf = fmt.Appendf(w.buf[:0], "%6d %9.3f ", w.step, w.now.Sub(w.start).Seconds())
	w.buf = fmt.Appendf(w.buf, format, args...)
	_, _ = w.hash.Write(w.buf)
	line := string(w.buf)
	w.tail[w.at] = line
	w.at = (w.at + 1) % len(w.tail)
	if w.cfg.Out != nil {
		fmt.Fprintln(w.cfg.Out, line)
	}
}

// some is true once in n times.
func (w *world) some(n int) bool { return w.die.below(n) == 0 }

// between draws a duration.
func (w *world) between(from, to time.Duration) time.Duration {
	return from + time.Duration(w.die.next()%uint64(to-from+1))
}

// delay of anything that crosses a wire or waits for a worker: short as a rule.
func (w *world) delay() time.Duration {
	drawn := w.some(40)
	short, long := w.between(200*time.Microsecond, 8*time.Millisecond), w.between(20*time.Millisecond, 1500*time.Millisecond)
	if w.calm {
		return short
	}
	if d, slow := w.mishap(drawn, "slow", w.die.name, long); slow {
		return d
	}
	return short
}

// slow are what can be slow for a while, wherever it is: requests to the control store and to the API server by kind, what
// watches of either bring, and messages.
var slow = []string{"lease", "grants", "intents", "tidy", "read", "list", "bind", "resolve", "write", "watch", "store-watch", "message"}

// slowness is what d becomes while things of this kind are slow.
func (w *world) slowness(kind string, d time.Duration) time.Duration {
	if most := w.slow[kind]; most > 0 {
		return max(d, w.between(0, most))
	}
	return d
}

func (w *world) count(what string) { w.counts[what]++ }

// heard looks at what the auditor found since it was asked last.
func (w *world) heard() {
	for _, v := range w.audit.Found(w.found) {
		w.fail("audit: %s", v)
	}
}

// ---- processes

// stream keeps the order of what comes to a process from one source.
type stream struct {
	last    time.Time
	queue   []func()
	blocked bool
}

// process is what shards and coordinators have in common: it can die and pause.
type process struct {
	w           *world
	die         *die
	name        string
	inc         api.Incarnation
	dead        bool
	paused      bool
	pausedUntil time.Time
	held        []func()  // what waits for it to go on
	blocked     []*stream // likewise
	fuse        int       // outputs until it dies, 0 for never
	noStore     time.Time // cut off from the control store until then
	noAPI       time.Time // from the API server
	slowStore   time.Time // its requests reach the control store late until then
	slowAPI     time.Time
	book        map[api.Incarnation]bool // shards that are registered, as far as it knows
	leader      api.Incarnation
	followers   []*follower
	watchers    []*watcher
	onDeath     func()
}

func (w *world) newProcess(name string) *process {
	w.made[name]++
	p := &process{w: w, name: name, inc: api.Incarnation(fmt.Sprintf("%s-%d", name, w.made[name])), book: map[api.Incarnation]bool{}}
	p.die = w.newDie(string(p.inc))
	w.processes = append(w.processes, p)
	return p
}

// later has something done in the process: never once it is dead, and after it resumes when it is paused.
func (p *process) later(d time.Duration, do func()) {
	p.as(func() { p.w.after(d, func() { p.run(do) }) })
}

// as has what is drawn or asked for in do be the process's.
func (p *process) as(do func()) {
	was := p.w.die
	p.w.die = p.die
	do()
	p.w.die = was
}

func (p *process) run(do func()) {
	switch {
	case p.dead:
	case p.paused:
		p.held = append(p.held, do)
	default:
		do()
	}
}

// ordered is later for what comes from one source: the order stays.
func (p *process) ordered(s *stream, d time.Duration, do func()) {
	at := p.w.now.Add(d)
	if at.Before(s.last) {
		at = s.last
	}
	s.last = at
	p.as(func() {
		p.w.atTime(at, func() {
			if p.dead {
				return
			}
			s.queue = append(s.queue, do)
			if p.paused && !s.blocked {
				s.blocked = true
				p.blocked = append(p.blocked, s)
			}
			if !s.blocked {
				p.drain(s)
			}
		})
	})
}

func (p *process) drain(s *stream) {
	for len(s.queue) > 0 && !p.dead {
		do := s.queue[0]
		s.queue[0] = nil
		s.queue = s.queue[1:]
		do()
	}
}

// pause stops a process as SIGSTOP does; what it has sent goes on.
func (p *process) pause(d time.Duration) {
	w := p.w
	if p.dead || p.paused {
		return
	}
	p.paused, p.pausedUntil = true, w.now.Add(d)
	w.log("%s pauses for %s", p.inc, d)
	w.count("pauses")
	w.after(d, p.resume)
}

func (p *process) resume() {
	w := p.w
	if p.dead || !p.paused {
		return
	}
	p.paused = false
	w.log("%s resumes", p.inc)
	held, blocked := p.held, p.blocked
	p.held, p.blocked = nil, nil
	for _, do := range held { // goroutines wake in any order
		p.later(w.between(0, 30*time.Millisecond), do)
	}
	for _, s := range blocked {
		w.after(w.between(0, 30*time.Millisecond), func() { p.unblock(s) })
	}
}

func (p *process) unblock(s *stream) {
	if p.paused {
		p.blocked = append(p.blocked, s)
		return
	}
	s.blocked = false
	p.drain(s)
}

// end ends a process. What it has sent is still delivered.
func (p *process) end(why string) {
	if p.dead {
		return
	}
	w := p.w
	p.dead = true
	w.log("%s ends: %s", p.inc, why)
	w.processes = slices.DeleteFunc(w.processes, func(o *process) bool { return o == p })
	for _, f := range p.followers {
		f.end()
	}
	for _, x := range p.watchers {
		x.end()
	}
	w.net.gone(p)
	p.onDeath()
}

// unwatch ends a watch of the store and one of the API server.
func (p *process) unwatch(f *follower, x *watcher) {
	f.end()
	x.end()
	p.followers = slices.DeleteFunc(p.followers, func(o *follower) bool { return o == f })
	p.watchers = slices.DeleteFunc(p.watchers, func(o *watcher) bool { return o == x })
}

// burn counts an output; it tells that the process died before carrying it out.
func (p *process) burn() bool {
	if p.fuse > 0 {
		if p.fuse--; p.fuse == 0 {
			p.w.count("crashes")
			p.end("crash between two outputs")
		}
	}
	return p.dead
}

// call sends a request to a server: do is carried out there, and done is told whether an answer came. Without an answer
// do may have been carried out, or be later, or never. Of a kind of request that is slow now both ways take their time.
func (p *process) call(s *server, kind string, timeout time.Duration, do func(), done func(answered bool)) {
	w := p.w
	p.later(w.between(0, 2*time.Millisecond), func() {
		finished := false
		finish := func(answered bool) func() {
			return func() {
				if !finished {
					finished = true
					done(answered)
				}
			}
		}
		lost := func() { // an error that comes at once, or a timeout
			d := timeout
			if w.some(2) {
				d = w.between(time.Millisecond, timeout)
			}
			p.later(d, finish(false))
		}
		cut, slow, name := p.noStore, p.slowStore, "store"
		if s == &w.api.server {
			cut, slow, name = p.noAPI, p.slowAPI, "api"
		}
		fate := w.die.below(1000)
		_, noRequest := w.mishap(fate < s.unreliable, "request-lost", string(p.inc)+" "+name, 0)
		_, noAnswer := w.mishap(fate >= s.unreliable && fate < 2*s.unreliable, "answer-lost", string(p.inc)+" "+name, 0)
		_, late := w.mishap(fate >= 2*s.unreliable && fate < 3*s.unreliable, "very-late", string(p.inc)+" "+name, 0)
		switch {
		case w.now.Before(cut):
			lost()
		case w.now.Before(s.down):
			if w.some(2) { // it waits there
				w.atTime(s.down.Add(w.delay()), do)
			}
			lost()
		case noRequest:
			w.count("requests lost")
			lost()
		case noAnswer:
			w.count("answers lost")
			w.after(w.delay(), do)
			lost()
		case late:
			w.count("requests very late")
			from, to := timeout/2, timeout+20*time.Second
			if w.some(2) { // the connection broke, and the request was on its way
				from, to, timeout = 10*time.Millisecond, 2*time.Second, 10*time.Millisecond
			}
			w.after(w.between(from, to), do)
			lost()
		default:
			d := w.delay()
			if w.now.Before(slow) {
				d = w.between(0, 3*time.Second)
			}
			d = w.slowness(kind, d)
			if d > timeout {
				p.later(timeout, finish(false))
			}
			w.after(d, func() {
				if w.now.Before(s.down) {
					if w.some(2) {
						w.atTime(s.down.Add(w.delay()), do)
					}
					p.later(w.between(time.Millisecond, timeout), finish(false))
					return
				}
				do()
				p.later(w.slowness(kind, w.delay()), finish(true))
			})
		}
	})
}

// server is what the two servers have in common.
type server struct {
	down       time.Time // until then it does not answer
	unreliable int       // of 1,000 requests so many are lost, so many lose their answer, so many come very late
}

// coreLog drops the log lines of cores, except for those that must never be written.
func (w *world) coreLog(who api.Incarnation, level slog.Level, message string, attrs any) {
	if level >= slog.LevelError {
		w.fail("%s: %s %v", who, message, attrs)
	}
	w.log("%s: %s %v", who, message, attrs)
}
