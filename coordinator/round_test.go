package coordinator

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// A round tells every reservation that is there all the time, however many come and go meanwhile.
func TestRound(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		made := 0
		var r round
		admit := func(q *queue) {
			made++
			g := &gang{key: gangKey{q.path, fmt.Sprint(made)}, res: &reservation{queue: q, tenant: q.join("ns")}}
			q.admits(g)
		}
		for i := range 1 + rng.IntN(4) {
			q := &queue{path: fmt.Sprint(i)}
			r.queues = append(r.queues, q)
			for range rng.IntN(50) {
				admit(q)
			}
		}
		queues, stays := r.queues, map[*gang]bool{}
		for _, q := range queues {
			for _, g := range q.members.reserved {
				stays[g] = true
			}
		}
		r.left = -1
		told := map[*gang]bool{}
		for g := r.next(); g != nil; g = r.next() {
			told[g] = true
			for range rng.IntN(3) {
				q := queues[rng.IntN(len(queues))]
				if rng.IntN(2) == 0 {
					admit(q)
				} else if n := len(q.members.reserved); n > 0 {
					gone := q.members.reserved[rng.IntN(n)]
					q.releases(gone)
					delete(stays, gone)
				}
			}
			if len(told) > 10_000 {
				t.Fatalf("seed %d: a round does not end", seed)
			}
		}
		for g := range stays {
			if !told[g] {
				t.Fatalf("seed %d: %s in queue %s was not told", seed, g.key.uid, g.key.queue)
			}
		}
		if !r.over() {
			t.Fatalf("seed %d: it is not over", seed)
		}
	}
}
