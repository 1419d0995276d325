package sim

import (
	"context"
	"sync"

	"basalt.dev/basalt/api/fault"
)

// Skipped are the bugs of package api/fault that the simulator cannot show, and why.
var Skipped = map[fault.Fault]string{
	fault.StartKept:        "one seed in hundreds shows it: bench/prove/explore shows it always",
	fault.NodesUnsaid:      "bench/prove/order shows it, and TestFaultsAreSeen of shard/topology plays it",
	fault.LabelsUnawaited:  "bench/prove/order shows it, and TestFaultsAreSeen of shard/topology plays it",
	fault.LogAnewComplete:  "bench/prove/order shows it as break-unlisted, and shard/topology plays it",
	fault.UnsaidLabels:     "one seed in hundreds shows it: TestFaultsAreSeen of shard/node plays it",
	fault.HeirForgetsTerms: "one seed in hundreds shows it: TestFaultsAreSeen of shard/node plays it",
	fault.LeftUnjudged:     "one seed in hundreds shows it: TestFaultsAreSeen of shard/node plays it",
	fault.EvictUnread:      "one seed in thousands shows it: TestEvictUnread plays it",
	fault.BandThreePasses:  "what others borrow is taken back, a moment later: TestFaultsAreSeen of coordinator plays it",

	fault.PromiseReplaced:     "bench/prove/claims shows it, and TestFaultsAreSeen of shard/node plays it",
	fault.CondemnBelowMinimum: "bench/prove/explore shows it, and TestFaultsAreSeen of coordinator plays it",
	fault.CondemnedReplaced:   "bench/prove/claims shows it, and TestFaultsAreSeen of coordinator plays it",
	fault.SharedNodes:         "a race between goroutines of one process: bench/prove/failures shows it on real ones",
}

// Bug is one of package api/fault that the simulator has to find.
type Bug struct {
	fault.Fault
	Known uint64 // seeds that it took at most, over the last draws, with 20,000 steps
}

// Often reports whether a bug shows in one seed of a few: such ones are looked for in every run of the tests, the others by
// `make sim-bugs`, for they take minutes.
func (b Bug) Often() bool { return b.Known <= 8 }

// Bugs in the order of package api/fault.
var Bugs = []Bug{
	{fault.LeaderFence, 18}, {fault.PlainRead, 37}, {fault.IntentsTwice, 33}, {fault.LateIntents, 68}, {fault.NoIdempotency, 6},
	{fault.ForgottenPod, 8}, {fault.NewerVersion, 23}, {fault.InheritedFree, 6}, {fault.EmptyResolve, 286}, {fault.PodsFirst, 11}, {fault.PodsFromCache, 34},
	{fault.SharedKeyDeleted, 40}, {fault.NewerTable, 6}, {fault.NoReservationFence, 126}, {fault.BindBeforePrepared, 1},
	{fault.EvictOpen, 2}, {fault.DeletedIsGone, 1}, {fault.OthersTried, 32}, {fault.SkippedAncestor, 4},
	{fault.AncestorsNotAsked, 1}, {fault.CousinsGuarantee, 5}, {fault.LaggingLimits, 9}, {fault.UnheldQueue, 448}, {fault.TablesEpoch, 1},
	{fault.LeakedHold, 213}, {fault.SleepersForgotten, 1}, {fault.LateReserve, 44}, {fault.LabelsMoveBound, 3}, {fault.TwoStatusWriters, 1},
	{fault.NamesNotUIDs, 1}, {fault.PanicBelowZero, 1}, {fault.TermKeepsKey, 1}, {fault.RecordEndsProcess, 58},
	{fault.UnboundedBatch, 20}, {fault.EndlessEarmark, 45}, {fault.ForeignInFull, 1},
	{fault.FloorLost, 4}, {fault.RoleIgnored, 27}, {fault.WrittenUnleased, 1},
	{fault.JudgedUnseen, 6}, {fault.PlainUnjudged, 11}, {fault.DeletedIsOver, 17}, {fault.GivenUpUntold, 4}, {fault.RowTermsIgnored, 67},
	{fault.RowsSupport, 11}, {fault.ClaimRowsIgnored, 9}, {fault.DomainUnnamed, 10}, {fault.DomainStale, 18},
	{fault.GangUnjudged, 4},
	{fault.ClaimForgotten, 7}, {fault.RealShares, 8}, {fault.PruneUnchecked, 4}, {fault.RuntimeForgotten, 4},
	{fault.PromiseStolen, 31}, {fault.CondemnUnwritten, 31},
	{fault.OneSided, 1},
}

// Hunt runs seeds from first on, at most so many and with so many at a time, with a bug switched on, until one fails. It
// returns that run and how many seeds it took; a run without violation when none did. The bug is off when it returns.
func Hunt(ctx context.Context, bug fault.Fault, first uint64, seeds, steps, workers int) (found Result, took int) {
	fault.Set(bug)
	defer fault.Set()
	var mu sync.Mutex
	var wg sync.WaitGroup
	next, took := 0, seeds
	for range workers {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				over := i >= took || ctx.Err() != nil
				mu.Unlock()
				if over {
					return
				}
				r := Run(Config{Seed: first + uint64(i), Steps: steps, Tail: 60})
				mu.Lock()
				if r.Violation != "" && (found.Violation == "" || i+1 < took) {
					found, took = r, i+1
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return found, took
}
