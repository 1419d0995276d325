package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// sequences sums up many sequences.
type sequences struct {
	seed                          uint64
	played                        int
	seconds                       float64
	byShards                      map[int]int
	pods, placed, denied, refused int
	supported                     int
	late                          []uint64 // seeds
	excused                       map[string]int
	wrong                         []wrongPlay
	errors                        []string
}

type wrongPlay struct {
	seed     uint64
	mismatch Mismatch
}

// runSequences plays sequences from a seed on.
func runSequences(seed uint64, count int, stop <-chan os.Signal) *sequences {
	type play struct {
		shards int
		out    *Played
		err    error
	}
	began := time.Now()
	r := &sequences{seed: seed, byShards: map[int]int{}, excused: map[string]int{}}
	overSeeds(seed, count, stop, func(seed uint64) play {
		p := Plan(seed)
		out, err := Play(p)
		return play{p.shards, out, err}
	}, func(seed uint64, j play) {
		r.played++
		r.byShards[j.shards]++
		if j.err != nil {
			r.errors = append(r.errors, fmt.Sprintf("seed %d: %v", seed, j.err))
			return
		}
		r.pods += j.out.Pods
		r.placed += j.out.Placed
		r.denied += j.out.Denied
		r.refused += j.out.Refused
		r.supported += j.out.Supported
		if j.out.Late > 0 {
			r.late = append(r.late, seed)
		}
		for id := range j.out.Excused {
			r.excused[id]++
		}
		if j.out.Wrong != nil {
			r.wrong = append(r.wrong, wrongPlay{seed, *j.out.Wrong})
		}
	})
	r.seconds = time.Since(began).Seconds()
	return r
}

func (r *sequences) failed() bool { return len(r.errors)+len(r.wrong) > 0 }

// print writes what came out, with some shrunk sequences that went wrong.
func (r *sequences) print(w io.Writer, show int) {
	fmt.Fprintf(w, "%d sequences from seed %d in %.1f s: %.0f sequences/s\n", r.played, r.seed, r.seconds, float64(r.played)/r.seconds)
	for _, n := range []int{1, 3, 8} {
		fmt.Fprintf(w, "  over %d shards          %d\n", n, r.byShards[n])
	}
	fmt.Fprintf(w, "  pods                   %d created, %d bound to nodes that kube-scheduler takes\n", r.pods, r.placed)
	fmt.Fprintf(w, "  without a node         %d, for which kube-scheduler has none either\n", r.denied)
	fmt.Fprintf(w, "  commits refused        %d, by a judgement or because a hold was lost\n", r.refused)
	fmt.Fprintf(w, "  supported              %d pods by others that were bound before, with later rows\n", r.supported)
	slices.Sort(r.late)
	fmt.Fprintf(w, "  late                   %d sequences in which a pod had its node after 5 s or more without any event; seeds %v\n", len(r.late), r.late[:min(len(r.late), 10)])
	for _, id := range sortedKeys(r.excused) {
		fmt.Fprintf(w, "  exception              %d  %s\n", r.excused[id], id)
	}
	for _, e := range r.errors[:min(len(r.errors), 10)] {
		fmt.Fprintf(w, "  error                  %s\n", e)
	}
	slices.SortFunc(r.wrong, func(a, b wrongPlay) int { return int(a.seed) - int(b.seed) })
	for _, f := range r.wrong[:min(len(r.wrong), 20)] {
		fmt.Fprintf(w, "  wrong                  seed %d: %v\n", f.seed, f.mismatch)
	}
	for _, f := range r.wrong[:min(len(r.wrong), show)] {
		p := shrinkPlan(Plan(f.seed), f.mismatch.Kind)
		out, err := Play(p)
		if err != nil || out.Wrong == nil {
			continue
		}
		fmt.Fprintf(w, "\n%v (seed %d, %d shards)\n", *out.Wrong, f.seed, p.shards)
		for _, line := range out.Trail {
			fmt.Fprintln(w, "#", line)
		}
		fmt.Fprint(w, out.Case.YAML())
	}
}
