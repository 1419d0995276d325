package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"
)

// overSeeds does something with each of some seeds, on all cores, until stop, and notes what comes of it one after another.
func overSeeds[T any](seed uint64, count int, stop <-chan os.Signal, do func(seed uint64) T, note func(seed uint64, done T)) {
	type job struct {
		seed uint64
		done T
	}
	seeds, done := make(chan uint64), make(chan job)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for s := range seeds {
				done <- job{s, do(s)}
			}
		})
	}
	go func() {
		defer close(seeds)
		for i := range count {
			select {
			case seeds <- seed + uint64(i):
			case <-stop:
				return
			}
		}
	}()
	go func() {
		workers.Wait()
		close(done)
	}()
	for j := range done {
		note(j.seed, j.done)
	}
}

// run compares cases from a seed on.
func run(seed uint64, cases int, stop <-chan os.Signal) *result {
	type judged struct {
		v   Verdict
		err error
	}
	began := time.Now()
	r := newResult(seed)
	overSeeds(seed, cases, stop, func(seed uint64) judged {
		v, err := judge(seed)
		return judged{v, err}
	}, func(seed uint64, j judged) { r.note(seed, j.v, j.err) })
	r.seconds = time.Since(began).Seconds()
	return r
}

// judge compares the case of a seed. A panic on either side is an error of the case.
func judge(seed uint64) (v Verdict, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return Compare(Generate(seed))
}

// print writes what came out, with some shrunk cases of each kind and plugin.
func (r *result) print(w io.Writer, show int, only Kind) {
	fmt.Fprintf(w, "%d cases from seed %d in %.1f s: %.0f cases/s\n", r.cases, r.seed, r.seconds, float64(r.cases)/r.seconds)
	fmt.Fprintf(w, "  agreed                 %d; in %d of them some nodes fit and others do not\n", r.agreed, r.partly)
	fmt.Fprintf(w, "  refused by name        %d; kube-scheduler takes some node in %d of them\n", total(r.refused), r.inVain)
	for _, field := range sortedKeys(r.refused) {
		fmt.Fprintf(w, "    %6d  %s\n", r.refused[field], field)
	}
	for _, field := range sortedKeys(r.wrongly) {
		fmt.Fprintf(w, "  refused wrongly        %s\n", r.wrongly[field])
	}
	for _, id := range sortedKeys(r.excused) {
		fmt.Fprintf(w, "  exception              %d  %s\n", r.excused[id], id)
	}
	for _, plugin := range sortedKeys(r.refusing) {
		fmt.Fprintf(w, "  refused by kube's      %d  %s\n", r.refusing[plugin], plugin)
	}
	for _, e := range r.errors[:min(len(r.errors), 10)] {
		fmt.Fprintf(w, "  error                  %s\n", e)
	}
	for _, kind := range kinds {
		for _, plugin := range sortedKeys(r.found[kind]) {
			fmt.Fprintf(w, "  %-22s %d  %s\n", kind, len(r.found[kind][plugin]), plugin)
		}
	}
	for _, kind := range kinds {
		if only != "" && only != kind {
			continue
		}
		for _, plugin := range sortedKeys(r.found[kind]) {
			for _, f := range smallest(r.found[kind][plugin], show) {
				fmt.Fprintf(w, "\n%s (seed %d)\n%s", f.mismatch, f.seed, f.shrunk.YAML())
			}
		}
	}
}
