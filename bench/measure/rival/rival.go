// Package rival gives one and the same load to different schedulers on a real API server and measures them by what the API
// server shows: Basalt, kube-scheduler, any other scheduler that runs there already, and null, a client that binds round
// robin and decides nothing, which is the floor.
//
// It decides who runs when (in turn, on a fresh control plane each time, so that a machine that is busy for a while is busy
// for all), and what a figure means. It owns the processes it starts and the objects it makes. It refuses to favour: all
// get the same objects from the same client (PodGroups and Queues too, where their kinds are served, although only Basalt
// reads them), all clients have the same rate limit, none, and all are watched in the same way.
//
// How it measures:
//   - Times are those at which one watch on pods, in this process, delivered an event, on this process's monotonic clock:
//     created is a pod's first event, bound is the first with a node.
//   - CPU is user and system time from /proc, from before the first create to two seconds after the last Binding, so that
//     late writes of statuses are in it.
//   - Counts (requests by user, watch events, stages of a gang) come from a run of their own, with audit log, traces and
//     metrics on, of which no time is reported.
package rival

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/bench/measure/report"
	"basalt.dev/basalt/bench/measure/scenario"
	"basalt.dev/basalt/bench/stage/local"
)

// Subject is a scheduler that is measured.
type Subject struct {
	Name      string // in the report
	Scheduler string // in the pods' spec.schedulerName
	Shards    int    // of Basalt, 0 for another
	Env       string // of Basalt's processes: a NAME=VALUE, to measure what it changes
	Volcano   Volcano
	Views     int // pages of a console that are open
}

// Volcano is what of Volcano's is there.
type Volcano string

const (
	NoVolcano     Volcano = ""
	VolcanoOn     Volcano = "on"     // its kinds are served, and Basalt runs with --volcano=write
	VolcanoGroups Volcano = "groups" // and all gangs are PodGroups of Volcano's
)

// Null binds round robin and decides nothing.
func Null() Subject { return Subject{Name: "null", Scheduler: "null"} }

// KubeScheduler is kube-scheduler of the local control plane.
func KubeScheduler() Subject {
	return Subject{Name: "kube-scheduler", Scheduler: local.SchedulerName}
}

// Basalt has its default name in pods.
func Basalt(shards int) Subject {
	return Subject{Name: fmt.Sprintf("basalt, %d shards", shards), Scheduler: api.SchedulerName, Shards: shards}
}

// With is the subject with an environment variable, beside the one without.
func (s Subject) With(env string) Subject {
	s.Name, s.Env = s.Name+", "+env, env
	return s
}

// Through is the subject with something of Volcano's, beside the one without.
func (s Subject) Through(v Volcano) Subject {
	s.Name, s.Volcano = map[Volcano]string{VolcanoOn: s.Name + ", --volcano=write", VolcanoGroups: s.Name + ", all gangs by Volcano's PodGroups"}[v], v
	return s
}

// Watched is the subject with so many pages of a console open, beside the one without.
func (s Subject) Watched(views int) Subject {
	s.Name, s.Views = fmt.Sprintf("%s, %d pages of a console", s.Name, views), views
	return s
}

// Options of a comparison.
type Options struct {
	Scenario *scenario.Scenario
	Seed     uint64
	Runs     int
	Subjects []Subject
	// Kubeconfig names the API server; empty starts a local control plane for each run, and the scheduler with it.
	Kubeconfig string
	// MakeNodes makes the scenario's nodes on the API server of Kubeconfig, too. Nobody runs pods there.
	MakeNodes bool
	// Pids are processes of this machine whose CPU and memory are measured beside an API server that was not started here;
	// the names "apiserver", "etcd" and "scheduler" are used in figures.
	Pids map[string]int
	// Count adds the run with audit log, traces and metrics, where the control plane is local.
	Count bool
	// Profiles is a folder for CPU profiles of Basalt's processes and the API server, taken in the run that counts.
	Profiles string
	// Patience ends a run that does not bind all its pods; 5 minutes if 0.
	Patience time.Duration
	// Basalt is the program; bin/basalt if empty. Flags are added to all its processes.
	Basalt string
	Flags  []string
	// Out takes progress; nil for none.
	Out io.Writer
}

// settle is how long CPU and writes are counted after the last Binding.
const settle = 2 * time.Second

// Creates in flight at most: an open loop must not wait for them.
const (
	closedWorkers = 32
	openWorkers   = 128
)

// Run makes all runs and returns the report; also with an error, for the raw runs that there are.
func Run(ctx context.Context, o Options) (*report.Report, error) {
	if o.Patience == 0 {
		o.Patience = 5 * time.Minute
	}
	if o.Seed == 0 {
		o.Seed = o.Scenario.Seed
	}
	r := report.New("kube", o.Scenario.Name(), o.Scenario.About, o.Seed)
	r.Set("runs", fmt.Sprintf("%d of each, in turn", o.Runs))
	r.Set("clients' QPS and burst", "unlimited, for the load and for every scheduler")
	r.Set("creates in flight at most", fmt.Sprintf("%d in a closed batch, %d in an open loop", closedWorkers, openWorkers))
	if o.Kubeconfig == "" {
		r.Machine.Versions["kube-apiserver, kube-scheduler"] = "v1.37.1"
		r.Set("control plane", "local, fresh for each run; the API server's etcd does not sync its disk, the control store does")
	} else {
		r.Set("control plane", "not ours")
		o.Count = false
	}
	w := &work{o: o, report: r, whole: map[string]*report.Latency{}, gang: map[string]*report.Latency{}}
	if o.Out != nil {
		w.progress = report.NewProgress(o.Out)
		defer w.progress.Done()
	}
	rates := o.Scenario.Rates()
	for number := 1; number <= o.Runs; number++ {
		for _, rate := range rates {
			for i := range o.Subjects { // each round begins with another one
				s := o.Subjects[(i+number-1)%len(o.Subjects)]
				if err := w.measure(ctx, s, rate, number); err != nil {
					w.summarise()
					return r, err
				}
			}
		}
	}
	if o.Count {
		for _, s := range o.Subjects {
			if err := w.count(ctx, s, rates[0]); err != nil {
				w.summarise()
				return r, err
			}
		}
	}
	w.summarise()
	return r, nil
}

// work is what grows over the runs.
type work struct {
	o           Options
	report      *report.Report
	progress    *report.Progress
	whole, gang map[string]*report.Latency // subject -> all its runs
	stages      []*report.Latency
}

func named(s Subject, rate int) string {
	if rate == 0 {
		return s.Name
	}
	return fmt.Sprintf("%s at %d pods/s", s.Name, rate)
}

// measure makes one run for its figures.
func (w *work) measure(ctx context.Context, s Subject, rate, number int) error {
	t := newTrial(w, s, rate, false)
	name := named(s, rate)
	t.label = fmt.Sprintf("%s, run %d of %d", name, number, w.o.Runs)
	if err := t.run(ctx); err != nil {
		return fmt.Errorf("%s: %w", t.label, err)
	}
	run := w.report.Run(name, number)
	t.values(run)
	if t.ends() {
		t.slope(run)
	}
	if w.whole[name] == nil {
		w.whole[name], w.gang[name] = report.NewLatency(name, report.Whole), report.NewLatency(name, report.Gang)
	}
	t.watch.latencies(w.whole[name], w.gang[name])
	if number == 1 {
		t.series(w.report, name)
	}
	rateShown, _ := run.Get(podsPerSecond)
	p99, _ := run.Get(bindP99)
	w.progress.Line("%s: %.0f pods/s, create to bind p99 %.0f ms", t.label, rateShown.Value, p99.Value)
	return nil
}

// count makes the run with everything on.
func (w *work) count(ctx context.Context, s Subject, rate int) error {
	t := newTrial(w, s, rate, true)
	t.label = s.Name + ", counting"
	if err := t.run(ctx); err != nil {
		return fmt.Errorf("%s: %w", t.label, err)
	}
	run := w.report.Run(named(s, rate), 0)
	t.counts(run)
	if t.spans != nil {
		w.stages = append(w.stages, t.spans.latencies(run.Subject)...)
	}
	w.progress.Line("%s: done", t.label)
	return nil
}

// Names of values that targets and ratios refer to.
const (
	podsPerSecond = "pods bound a second"
	bindP50       = "create to bind, p50"
	bindP99       = "create to bind, p99"
	gangP50       = "last member to gang's last Binding, p50"
	gangP99       = "last member to gang's last Binding, p99"
	schedulerCPU  = "CPU a pod of the scheduler, with its store"
	apiCPU        = "CPU a pod of API server and its etcd"
	writesPerPod  = "API writes a pod by the scheduler"
	storeWrites   = "control-store transactions a pod"
	storeKeys     = "control-store keys written a pod"
	notBound      = "pods not bound"
	inTime        = "pods bound when the stream ended"
)

// summarise makes figures of the runs. Targets are the project's, for its own scenarios.
func (w *work) summarise() {
	r, o := w.report, w.o
	r.Finish()
	var basalts []Subject
	has := map[string]bool{}
	for _, s := range o.Subjects {
		has[s.Name] = true
		if s.Shards > 0 {
			basalts = append(basalts, s)
		}
	}
	null, kubeScheduler := Null(), KubeScheduler()
	closed := o.Scenario.Name() == "kube" || o.Scenario.Name() == "kube-ones"
	reach := func(on bool, t report.Target) report.Target {
		if !on {
			return report.Target{}
		}
		return t
	}
	for _, rate := range o.Scenario.Rates() {
		for i, b := range basalts {
			name := named(b, rate)
			if has[null.Name] {
				r.Ratio(name, named(null, rate), podsPerSecond, reach(o.Scenario.Name() == "kube" && b.Shards == 3, report.AtLeast(0.8)))
				r.Ratio(name, named(null, rate), apiCPU, reach(closed, report.AtMost(1.3)))
			}
			if has[kubeScheduler.Name] {
				r.Ratio(name, named(kubeScheduler, rate), podsPerSecond, report.Target{})
				r.Ratio(name, named(kubeScheduler, rate), schedulerCPU, reach(closed, report.AtMost(0.2)))
			}
			if i > 0 {
				target := reach(closed && basalts[0].Shards == 3 && b.Shards == 8, report.AtLeast(0.95))
				switch b.Volcano {
				case VolcanoOn:
					target = report.AtLeast(0.98)
				case VolcanoGroups:
					target = report.AtLeast(0.9)
				}
				r.Ratio(name, named(basalts[0], rate), podsPerSecond, target)
				r.Ratio(name, named(basalts[0], rate), schedulerCPU, report.Target{})
			}
		}
		if has[kubeScheduler.Name] && has[null.Name] {
			r.Ratio(named(kubeScheduler, rate), named(null, rate), podsPerSecond, report.Target{})
			r.Ratio(named(kubeScheduler, rate), named(null, rate), apiCPU, report.Target{})
		}
	}
	targets := map[string]func(b Subject, rate int) report.Target{
		writesPerPod: func(Subject, int) report.Target {
			return reach(closed, report.AtMost(map[bool]float64{true: 1.2, false: 2.1}[o.Scenario.Name() == "kube"]))
		},
		storeWrites: func(Subject, int) report.Target { return reach(closed, report.AtMost(0.5)) },
		gangP99: func(_ Subject, rate int) report.Target {
			return reach(o.Scenario.Name() == "kube-open", report.AtMost(map[bool]float64{true: 2000, false: 500}[rate >= 250]))
		},
	}
	for _, s := range o.Subjects {
		curve := &report.Curve{Subject: s.Name}
		for _, rate := range o.Scenario.Rates() {
			name := named(s, rate)
			r.Medians(name, func(value string) report.Target {
				if t := targets[value]; t != nil && s.Shards > 0 {
					return t(s, rate)
				}
				return report.Target{}
			})
			r.Latency(w.whole[name])
			r.Latency(w.gang[name])
			for _, l := range w.stages {
				if l.Subject == name {
					r.Latency(l)
				}
			}
			if l := w.gang[name]; rate > 0 && l != nil {
				curve.Points = append(curve.Points, report.Point{Rate: float64(rate), Reached: r.Value(name, podsPerSecond),
					P50: float64(l.Percentile(50).Milliseconds()), P99: float64(l.Percentile(99).Milliseconds())})
			}
		}
		if len(curve.Points) > 0 {
			r.Curves = append(r.Curves, curve)
		}
	}
	if o.Count {
		r.Note("counts of requests, watch events and transactions, and the stages of a gang, are of a run of their own with audit log and traces on")
	}
	r.Note("CPU and counts are from before the first create to %s after the last Binding", settle)
	r.Note("every scheduler gets the same objects: PodGroups and Queues are made for all where their kinds are served, and their pods are plain pods to all but Basalt")
	if has[null.Name] {
		r.Note("the null client runs inside the load's process, and its CPU is in the load's")
	}
}

// ParseSubjects reads names: null, kube-scheduler, basalt:SHARDS.
func ParseSubjects(list []string) ([]Subject, error) {
	var out []Subject
	for _, name := range list {
		shards := 0
		switch _, err := fmt.Sscanf(strings.TrimSpace(name), "basalt:%d", &shards); {
		case name == "null":
			out = append(out, Null())
		case name == "kube-scheduler":
			out = append(out, KubeScheduler())
		case err == nil && shards > 0:
			out = append(out, Basalt(shards))
		default:
			return nil, fmt.Errorf("%q is none of null, kube-scheduler and basalt:SHARDS", name)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("there is nothing to measure")
	}
	return out, nil
}
