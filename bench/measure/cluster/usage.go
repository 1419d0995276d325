package cluster

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"

	"github.com/google/pprof/profile"
)

// CPU is the processor time of a measured part. Everything but the control store runs in one program; whose the program's
// time is, a profile of that part says: Basalt's goroutines carry a label. The API in memory and what stands in for users
// and kubelets are the bench's, also where Basalt's goroutines call them. What the runtime does for both (collecting garbage,
// finding the next goroutine) is split as the bytes that both allocated.
type CPU struct {
	Basalt, Store, Bench time.Duration
	Runtime              time.Duration // in Basalt and Bench already
}

// Sum of what Basalt costs: its processes and its control store.
func (c CPU) Sum() time.Duration { return c.Basalt + c.Store }

const (
	ours     = "basalt.dev/basalt/"
	partName = "part" // the label
)

// asBasalt runs f with the label.
func asBasalt(ctx context.Context, name string, f func(context.Context) error) (err error) {
	pprof.Do(ctx, pprof.Labels(partName, name), func(ctx context.Context) { err = f(ctx) })
	return err
}

// meter measures one part.
type meter struct {
	plant     *Plant
	profile   bytes.Buffer
	program   time.Duration
	store     time.Duration
	allocated shares
}

// shares of the program in anything.
type shares struct{ basalt, bench, runtime float64 }

func (p *Plant) startMeter() (*meter, error) {
	m := &meter{plant: p, program: ownCPU(), store: p.storeCPU(), allocated: allocated()}
	if err := pprof.StartCPUProfile(&m.profile); err != nil {
		return nil, fmt.Errorf("profile the program: %w", err)
	}
	return m, nil
}

func ownCPU() time.Duration {
	var self syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &self)
	return time.Duration(self.Utime.Nano() + self.Stime.Nano())
}

// stop returns the time used since the start, and the profile.
func (m *meter) stop() (CPU, []byte, error) {
	pprof.StopCPUProfile()
	program, store := ownCPU()-m.program, m.plant.storeCPU()-m.store
	now := allocated()
	bytesOf := shares{basalt: now.basalt - m.allocated.basalt, bench: now.bench - m.allocated.bench}
	raw := m.profile.Bytes()
	p, err := profile.ParseData(raw)
	if err != nil {
		return CPU{}, nil, fmt.Errorf("read the program's profile: %w", err)
	}
	var s shares
	for _, sample := range p.Sample {
		s.add(stackOf(sample), len(sample.Label[partName]) > 0, float64(sample.Value[0]))
	}
	return split(program, store, s, bytesOf), raw, nil
}

// split divides a program's time.
func split(program, store time.Duration, cpu, allocated shares) CPU {
	of := func(part, whole float64) time.Duration {
		if whole <= 0 {
			return 0
		}
		return time.Duration(float64(program) * part / whole)
	}
	all := cpu.basalt + cpu.bench + cpu.runtime
	c := CPU{Store: store, Runtime: of(cpu.runtime, all), Bench: of(cpu.bench, all)}
	if bytes := allocated.basalt + allocated.bench; bytes > 0 {
		c.Bench += time.Duration(float64(c.Runtime) * allocated.bench / bytes)
	}
	c.Basalt = program - c.Bench // what a short profile has no sample of is Basalt's
	return c
}

func stackOf(s *profile.Sample) []string {
	var out []string
	for _, l := range s.Location {
		for _, line := range l.Line {
			if line.Function != nil {
				out = append(out, line.Function.Name)
			}
		}
	}
	return out
}

// add counts a stack, innermost function first.
func (s *shares) add(stack []string, labelled bool, value float64) {
	basalt, bench := labelled, false
	for _, f := range stack {
		of, is := strings.CutPrefix(f, ours)
		switch {
		case !is:
		case strings.HasPrefix(of, "bench/stage/memory."):
			s.bench += value
			return
		case strings.HasPrefix(of, "bench/") || strings.HasPrefix(of, "cmd/"):
			bench = true
		default:
			basalt = true
		}
	}
	switch {
	case basalt:
		s.basalt += value
	case bench:
		s.bench += value
	default:
		s.runtime += value
	}
}

// allocated is what was allocated up to the last collection but one, in bytes.
func allocated() (s shares) {
	runtime.GC() // twice, and the profile is of now
	runtime.GC()
	var records []runtime.MemProfileRecord
	for n, ok := runtime.MemProfile(nil, true); !ok; {
		records = make([]runtime.MemProfileRecord, n+64)
		if n, ok = runtime.MemProfile(records, true); ok {
			records = records[:n]
		}
	}
	for _, r := range records {
		var stack []string
		frames := runtime.CallersFrames(r.Stack())
		for {
			f, more := frames.Next()
			stack = append(stack, f.Function)
			if !more {
				break
			}
		}
		s.add(stack, false, float64(r.AllocBytes))
	}
	s.basalt += s.runtime // what libraries allocate in goroutines of their own: gRPC, etcd's client, memberlist
	s.runtime = 0
	return s
}
