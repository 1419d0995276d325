package sim

import (
	"context"
	"sync"

	"basalt.dev/basalt/api/fault"
)

// Bugs are those of package api/fault that the simulator has to find. The others of that package need real processes.
var Bugs = []fault.Fault{
	fault.LeaderFence, fault.PlainRead, fault.IntentsTwice, fault.LateIntents, fault.NoIdempotency, fault.ForgottenPod, fault.NewerVersion,
	fault.EmptySettle, fault.PodsFirst, fault.PodsFromCache, fault.SharedKeyDeleted, fault.NewerTable,
	fault.NoReservationFence, fault.BindBeforePrepared, fault.EvictOpen, fault.DeletedIsGone, fault.OthersTried,
	fault.SkippedAncestor, fault.AncestorsNotAsked, fault.CousinsGuarantee, fault.LaggingLimits, fault.TablesEpoch,
	fault.LeakedHold, fault.SleepersForgotten, fault.LateReserve, fault.TwoStatusWriters, fault.NamesNotUIDs,
	fault.PanicBelowZero,
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
