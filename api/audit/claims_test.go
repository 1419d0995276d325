package audit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
)

func cpu(n int64) []*wire.Amount {
	return wire.FromResources(api.FromMap(map[string]int64{"cpu": n}))
}

// share writes the limits of a queue in cores; less than zero is not written.
func (w *world) share(queue string, capability, guarantee, deserved int64, p *wire.QueuePolicy) {
	r := &wire.LimitsRecord{Queue: queue, Uid: "u-" + queue, Generation: 1, Policy: p}
	for _, f := range []struct {
		to    *[]*wire.Amount
		cores int64
	}{{&r.Capability, capability}, {&r.Guarantee, guarantee}, {&r.Deserved, deserved}} {
		if f.cores >= 0 {
			*f.to = cpu(1000 * f.cores)
		}
	}
	w.coordinate(map[string]proto.Message{"queues/" + queue: r})
}

type change = func(*wire.ReservationRecord)

// admit charges a gang that may be evicted, and was admitted ten minutes ago.
func (w *world) admit(gang, queue string, cores int64, changes ...change) {
	w.reserve(gang, 1000*cores, append([]change{in(queue), func(r *wire.ReservationRecord) {
		r.Preemptible, r.GrantedUnixMs, r.Rank = true, w.now.Add(-10*time.Minute).UnixMilli(), &wire.Rank{Priority: 5}
	}}, changes...)...)
}

func in(queue string) change         { return func(r *wire.ReservationRecord) { r.Gang.Queue = queue } }
func kept(r *wire.ReservationRecord) { r.Preemptible, r.Kept = false, true }
func attempt(n uint64) change        { return func(r *wire.ReservationRecord) { r.Attempt = n } }
func ranked(n int64) change {
	return func(r *wire.ReservationRecord) { r.Rank = &wire.Rank{Priority: n} }
}
func grantedAgo(w *world, d time.Duration) change {
	return func(r *wire.ReservationRecord) { r.GrantedUnixMs = w.now.Add(-d).UnixMilli() }
}

// closed is a gang of the store that is given up for another.
func closed(to string) change {
	return func(r *wire.ReservationRecord) {
		r.State = wire.ReservationState_RESERVATION_CLOSING
		if to != "" {
			r.Yields = &wire.Yielding{To: &wire.GangRef{Uid: to}, Rule: wire.Rule_RULE_RECLAIM}
		}
	}
}

func claimRecord(cores int64, victims ...string) *wire.ClaimRecord {
	c := &wire.ClaimRecord{Mandate: 1, Rule: wire.Rule_RULE_RECLAIM, Promised: cpu(1000 * cores)}
	for _, v := range victims {
		c.Victims = append(c.Victims, &wire.Victim{Gang: &wire.GangRef{Uid: v}, Attempt: 1})
	}
	return c
}

// claims writes the claim of gang c in queue lab.x, which waits for the rooms of its victims.
func (w *world) claims(cores int64, victims []string, changes ...change) {
	w.reserve("c", 0, append([]change{in("lab.x"), func(r *wire.ReservationRecord) {
		r.Demand, r.Claim, r.Awaits, r.Rank = nil, claimRecord(cores, victims...), victims, &wire.Rank{Priority: 9}
	}}, changes...)...)
}

func (w *world) drop(gang, queue string) {
	w.coordinate(map[string]proto.Message{key(gang, queue): nil})
}

func gangs(s ...string) []string { return s }

func alone(r *wire.ReservationRecord) { r.Awaits = nil }
func lacking(cores int64) change {
	return func(r *wire.ReservationRecord) { r.Claim.Lacked = cpu(1000 * cores) }
}

// stands has a gang of two run, and lose a pod.
func stands(w *world) {
	w.a.Observe(w.now, audit.Listed[*v1.Pod]{})
	w.share("team", -1, -1, -1, nil)
	w.node("n", "8")
	w.group("g", "j", 2)
	w.admit("g", "team.a", 2)
	w.pod("p1", "1", on("n"), of("j"))
}

func stale(r *wire.ReservationRecord) {
	r.State, r.Yields = wire.ReservationState_RESERVATION_CLOSING, &wire.Yielding{Rule: wire.Rule_RULE_STALE}
}

func preempting(r *wire.ReservationRecord) { r.Claim.Rule = wire.Rule_RULE_PREEMPT }

// lab is a queue with 10 cores, all of them in use: lab.x deserves 6 and has 2, lab.y deserves 4 and has 8. c waits in lab.x.
func lab(w *world) {
	w.share("lab", 10, -1, -1, nil)
	w.share("lab.x", -1, -1, 6, nil)
	w.share("lab.y", -1, -1, 4, nil)
	w.admit("x1", "lab.x", 2)
	w.admit("y1", "lab.y", 3)
	w.admit("y2", "lab.y", 3)
	w.admit("y3", "lab.y", 2)
}

func TestAuditorJudgesClaims(t *testing.T) {
	preempts := &wire.QueuePolicy{Preempts: new(true)}
	for _, test := range []struct {
		name string
		want audit.Kind // "" for a clean report
		in   string     // of the message
		run  func(w *world)
	}{
		{"a claim from its beginning to its end", "", "", func(w *world) {
			w.claims(3, gangs("y2"))
			w.admit("y2", "lab.y", 3, closed("c"))
			w.drop("y2", "lab.y")
			w.reserve("c", 3000, in("lab.x"), func(r *wire.ReservationRecord) { r.Awaits = gangs("y2") })
		}},
		{"a gang that lost a pod is closed as stale", "", "", func(w *world) {
			stands(w)
			w.pod("p3", "1", of("j"))
			w.admit("g", "team.a", 2, stale)
		}},
		{"a gang that runs is closed as stale", audit.Victim, "is closed as stale, and 2 of its pods run", func(w *world) {
			stands(w)
			w.pod("p2", "1", on("n"), of("j"))
			w.admit("g", "team.a", 2, stale)
		}},
		{"a gang that nobody makes whole is closed as stale", audit.Victim, "at least 2 are to, and 0 wait", func(w *world) {
			stands(w)
			w.admit("g", "team.a", 2, stale)
		}},
		{"borrowed by a gang that may not be evicted", audit.Guarantee, "such gangs then have 5, and the queue deserves 4", func(w *world) {
			w.drop("y1", "lab.y")
			w.drop("y2", "lab.y")
			w.admit("y4", "lab.y", 3, kept)
			w.admit("y5", "lab.y", 2, kept)
			w.pass(10 * time.Second)
		}},
		{"a gang that may not be evicted, within what its queue deserves", "", "", func(w *world) {
			w.drop("y1", "lab.y")
			w.admit("y4", "lab.y", 3, kept)
			w.pass(10 * time.Second)
		}},
		{"a claim that is charged before there is room", audit.Quota, "above the capability of 10", func(w *world) {
			w.claims(3, gangs("y2"))
			w.claims(3, gangs("y2"), func(r *wire.ReservationRecord) { r.Demand = cpu(3000) })
		}},
		{"what is promised is admitted to another gang", audit.Quota, "with what is promised to claims", func(w *world) {
			w.claims(3, gangs("y2"))
			w.admit("y2", "lab.y", 3, closed("c"))
			w.drop("y2", "lab.y")
			w.admit("z", "lab.y", 1)
			w.pass(10 * time.Second)
		}},
		{"what is promised is not counted twice", "", "", func(w *world) {
			w.admit("y1", "lab.y", 1)
			w.claims(3, gangs("y2"))
			w.admit("z", "lab.y", 2)
		}},
		{"intents of a gang that has a claim and no quota", audit.Intent, "has a claim and no quota yet", func(w *world) {
			w.claims(3, gangs("y2"))
			w.intend(1, "c", 3000, map[string]string{"p": "n1"})
		}},
		{"a gang is admitted before its victim is closed", audit.Claim, "neither closed nor gone", func(w *world) {
			w.claims(3, gangs("y2"))
			w.drop("y1", "lab.y")
			w.reserve("c", 3000, in("lab.x"))
		}},
		{"a claim is dropped, and nobody waits for who is spared", "", "", func(w *world) {
			w.claims(3, gangs("y2"))
			w.drop("c", "lab.x")
			w.claims(3, gangs("y1"))
		}},
		{"a gang waits for one that is spared", audit.Claim, "still waits for gang y2", func(w *world) {
			w.admit("y1", "lab.y", 2)
			w.reserve("c", 1000, in("lab.x"))
			w.reserve("c", 1000, in("lab.x"), func(r *wire.ReservationRecord) { r.Claim, r.Awaits = claimRecord(0, "y2"), gangs("y2") })
			w.reserve("c", 1000, in("lab.x"), func(r *wire.ReservationRecord) { r.Awaits = gangs("y2") })
		}},

		{"a claim that cannot be read", audit.Record, "promises a negative amount of cpu", func(w *world) {
			w.claims(3, gangs("y2"), func(r *wire.ReservationRecord) { r.Claim.Promised = cpu(-1) })
		}},

		{"a claim that does not end", audit.Leak, "has a claim that had to end at", func(w *world) { overdue(w, true, 3*time.Minute) }},
		{"a claim that does not end yet", "", "", func(w *world) { overdue(w, true, 100*time.Second) }},
		{"a claim that does not end while nobody leads", "", "", func(w *world) { overdue(w, false, 5*time.Minute) }},

		// I13
		{"a victim that is closing", audit.Claim, "not charged and open", func(w *world) {
			w.admit("y2", "lab.y", 3, closed(""))
			w.claims(3, gangs("y2"))
		}},
		{"a victim that is gone", audit.Claim, "not charged and open", func(w *world) { w.claims(3, gangs("gone")) }},
		{"a victim that ends with the claim's transaction", "", "", func(w *world) {
			c := reservation("c", "lab.x", 1, 0, w.term)
			c.Demand, c.Claim = nil, claimRecord(3, "y2")
			w.coordinate(map[string]proto.Message{key("c", "lab.x"): c, key("y2", "lab.y"): nil})
		}},
		{"a victim of another attempt", audit.Claim, "under attempt 1, which is not", func(w *world) {
			w.admit("y2", "lab.y", 3, attempt(2))
			w.claims(3, gangs("y2"))
		}},
		{"a victim that has itself only a claim", audit.Claim, "not charged and open", func(w *world) {
			w.claims(3, gangs("y2"))
			w.reserve("d", 0, in("lab.x"), func(r *wire.ReservationRecord) { r.Demand, r.Claim = nil, claimRecord(1, "c") })
		}},
		{"two claims of one victim", audit.Claim, "which is in the claim of gang c", func(w *world) {
			w.claims(1, gangs("y2"))
			w.reserve("d", 0, in("lab.x"), func(r *wire.ReservationRecord) { r.Demand, r.Claim, r.Awaits = nil, claimRecord(1, "y2"), gangs("y2") })
		}},
		{"a victim twice", audit.Claim, "twice", func(w *world) { w.claims(3, gangs("y2", "y2")) }},
		{"itself", audit.Claim, "names itself", func(w *world) { w.claims(3, gangs("c")) }},
		{"no rule", audit.Claim, "follows no rule", func(w *world) {
			w.claims(3, gangs("y2"), func(r *wire.ReservationRecord) { r.Claim.Rule = wire.Rule_RULE_UNKNOWN })
		}},
		{"a victim that gives quota, and is needed", "", "", func(w *world) { w.claims(3, gangs("y2"), alone) }},
		{"a victim that gives quota, and is not needed", audit.Claim, "without which as much quota", func(w *world) { w.claims(3, gangs("y1", "y2"), alone) }},
		{"a victim that gives room", "", "", func(w *world) { w.claims(3, gangs("y1", "y2")) }},
		{"a victim that gives quota to a gang that lacks room", audit.Claim, "without which as much quota", func(w *world) {
			w.claims(0, gangs("y1"), func(r *wire.ReservationRecord) { r.Demand, r.Awaits = cpu(1000), nil; w.drop("y3", "lab.y") })
		}},
		{"too little is freed", audit.Claim, "frees 2 of cpu in queue lab, and 3 are lacking", func(w *world) { w.claims(3, gangs("y3")) }},
		{"a victim that gives quota to a gang that the nodes lack room for", "", "", func(w *world) { w.claims(3, gangs("y1", "y2"), alone, lacking(4)) }},
		{"a victim more than the nodes lack", audit.Claim, "without which as much quota", func(w *world) { w.claims(3, gangs("y1", "y2"), alone, lacking(3)) }},
		{"less is freed than the nodes lack", audit.Claim, "frees 3 of cpu, and the nodes lack 4", func(w *world) { w.claims(3, gangs("y1"), lacking(4)) }},
		{"who leaves anyway is counted", "", "", func(w *world) {
			w.claims(3, gangs("y2"))
			w.admit("y2", "lab.y", 3, closed("c"))
			w.drop("c", "lab.x")
			w.reserve("d", 0, in("lab.x"), func(r *wire.ReservationRecord) {
				r.Demand, r.Claim, r.Awaits = nil, claimRecord(4, "y3"), gangs("y2", "y3")
			})
		}},

		// I17
		{"a queue without more than it deserves", audit.Claim, "no more than it deserves", func(w *world) {
			w.drop("y1", "lab.y")
			w.drop("y3", "lab.y")
			w.admit("z1", "lab.z", 5)
			w.claims(3, gangs("y2"))
		}},
		{"a queue that borrows all of it", "", "", func(w *world) {
			w.drop("y1", "lab.y")
			w.drop("y3", "lab.y")
			w.admit("z1", "lab.z", 5)
			w.claims(3, gangs("z1"))
		}},
		{"a queue that would have more than it deserves itself", audit.Claim, "which would have 7 of cpu and deserves 6", func(w *world) { w.claims(5, gangs("y1", "y2")) }},
		{"a queue that deserves nothing", audit.Claim, "deserves nothing of what the claimant asks for", func(w *world) {
			w.reserve("d", 0, in("lab.z"), func(r *wire.ReservationRecord) { r.Demand, r.Claim = nil, claimRecord(3, "y2") })
		}},
		{"fair shares are not known", "", "", func(w *world) {
			w.share("lab", 10, -1, -1, &wire.QueuePolicy{Reclaim: wire.Reclaim_RECLAIM_FAIR_SHARE})
			w.claims(5, gangs("y1", "y2"))
		}},
		{"a queue between whose children nothing is reclaimed", audit.Claim, "nothing is reclaimed", func(w *world) {
			w.share("lab", 10, -1, -1, &wire.QueuePolicy{Reclaim: wire.Reclaim_RECLAIM_NEVER})
			w.claims(3, gangs("y2"))
		}},
		{"a queue that is not reclaimable", audit.Claim, "not reclaimable", func(w *world) {
			w.share("lab.y", -1, -1, 4, &wire.QueuePolicy{Kept: true})
			w.claims(3, gangs("y2"))
		}},
		{"a queue's own gangs", audit.Claim, "which is its own", func(w *world) {
			w.claims(2, gangs("x1"))
		}},
		{"less than what is guaranteed", audit.Claim, "are guaranteed", func(w *world) {
			w.share("lab.y", -1, 4, 4, nil)
			w.claims(3, gangs("y1", "y2", "y3"))
		}},
		{"less than deserved by the smallest victim", audit.Claim, "by its smallest victim or more", func(w *world) { w.claims(3, gangs("y1", "y2", "y3")) }},
		{"what is cut is not known", "", "", func(w *world) {
			w.share("lab.y", -1, -1, 9, nil)
			w.claims(3, gangs("y2"))
		}},
		{"a child that shields its parent", audit.Claim, "from queue lab.y.a, which has no more", func(w *world) {
			w.share("lab.y.a", -1, -1, 3, nil)
			w.drop("y2", "lab.y")
			w.admit("ya", "lab.y.a", 3)
			w.claims(3, gangs("ya"))
		}},
		{"preemption", "", "", func(w *world) {
			w.share("lab", 10, -1, -1, preempts)
			w.claims(2, gangs("x1"), preempting)
		}},
		{"preemption where it is not allowed", audit.Claim, "whose policy does not allow it", func(w *world) { w.claims(2, gangs("x1"), preempting) }},
		{"preemption where a child says no", audit.Claim, "whose policy does not allow it", func(w *world) {
			w.share("lab", 10, -1, -1, preempts)
			w.share("lab.x", -1, -1, 6, &wire.QueuePolicy{Preempts: new(false)})
			w.claims(2, gangs("x1"), preempting)
		}},
		{"preemption of a gang of the same priority", audit.Claim, "of priority 5, and its own is 5", func(w *world) {
			w.share("lab", 10, -1, -1, preempts)
			w.claims(2, gangs("x1"), preempting, ranked(5))
		}},
		{"preemption in another queue", audit.Claim, "not its own queue", func(w *world) {
			w.share("lab", 10, -1, -1, preempts)
			w.claims(2, gangs("y3"), preempting)
		}},
		{"preemption of more than is lacking and than it gets", audit.Claim, "without which as much quota", func(w *world) {
			w.share("lab", 10, -1, -1, preempts)
			w.admit("y2", "lab.y", 1)
			w.admit("x2", "lab.x", 2)
			w.claims(2, gangs("x1", "x2"), preempting, alone)
		}},

		// I20
		{"a gang that is not preemptible", audit.Victim, "not preemptible", func(w *world) {
			w.admit("y2", "lab.y", 3, kept)
			w.claims(3, gangs("y2"))
		}},
		{"a gang that somebody else bound", audit.Victim, "bound by others", func(w *world) {
			w.admit("y2", "lab.y", 3, func(r *wire.ReservationRecord) { r.Forced = true })
			w.claims(3, gangs("y2"))
		}},
		{"a gang that was admitted a moment ago", audit.Victim, "is safe for 60000 ms", func(w *world) {
			w.admit("y2", "lab.y", 3, grantedAgo(w, 50*time.Second))
			w.claims(3, gangs("y2"))
		}},
		{"a gang that was admitted long enough ago", "", "", func(w *world) {
			w.admit("y2", "lab.y", 3, grantedAgo(w, 61*time.Second))
			w.claims(3, gangs("y2"))
		}},
		{"a short minimum of a parent", "", "", func(w *world) {
			w.share("lab", 10, -1, -1, &wire.QueuePolicy{ReclaimMinRuntimeMs: new(int64(5000)), PreemptMinRuntimeMs: new(int64(3_600_000))})
			w.admit("y2", "lab.y", 3, grantedAgo(w, 6*time.Second))
			w.claims(3, gangs("y2"))
		}},
		{"a long minimum for preemption", audit.Victim, "is safe for 3600000 ms", func(w *world) {
			w.share("lab", 10, -1, -1, &wire.QueuePolicy{Preempts: new(true), ReclaimMinRuntimeMs: new(int64(0)), PreemptMinRuntimeMs: new(int64(3_600_000))})
			w.claims(2, gangs("x1"), preempting)
		}},
		{"a claim that ends before its victim may be evicted", audit.Victim, "is safe for 60000 ms", func(w *world) {
			w.admit("y2", "lab.y", 3, grantedAgo(w, 61*time.Second))
			w.claims(3, gangs("y2"), func(r *wire.ReservationRecord) { r.Claim.UntilUnixMs = w.now.Add(-20 * time.Second).UnixMilli() })
		}},

		// What is on its way out
		{"a second victim while the first is on its way out", audit.Claim, "as much quota would be free as it needs", func(w *world) { second(w, time.Minute) }},
		{"a second victim once the first is overdue", "", "", func(w *world) { second(w, -10*time.Second) }},

		// Closing
		{"a gang is closed for one without a claim", audit.Victim, "had no claim at an earlier revision", func(w *world) {
			w.admit("y2", "lab.y", 3, closed("c"))
		}},
		{"a gang is closed in the revision of the claim", audit.Victim, "had no claim at an earlier revision", func(w *world) {
			c := reservation("c", "lab.x", 1, 0, w.term)
			c.Demand, c.Claim = nil, claimRecord(3, "y2")
			y := reservation("y2", "lab.y", 1, 3000, w.term)
			closed("c")(y)
			y.Preemptible = true
			w.coordinate(map[string]proto.Message{key("c", "lab.x"): c, key("y2", "lab.y"): y})
		}},
		{"a gang is closed after its claim was dropped", audit.Victim, "had no claim at an earlier revision", func(w *world) {
			w.claims(3, gangs("y2"))
			w.drop("c", "lab.x")
			w.admit("y2", "lab.y", 3, closed("c"))
		}},
		{"a gang is closed under another attempt", audit.Victim, "closed under attempt 2", func(w *world) {
			w.claims(1, gangs("y2"))
			w.drop("y2", "lab.y")
			w.admit("y2", "lab.y", 2, attempt(2))
			w.admit("y2", "lab.y", 2, attempt(2), closed("c"))
		}},
		{"a gang is closed by another rule", audit.Victim, "whose claim says RULE_RECLAIM", func(w *world) {
			w.claims(3, gangs("y2"))
			w.admit("y2", "lab.y", 3, closed("c"), func(r *wire.ReservationRecord) { r.Yields.Rule = wire.Rule_RULE_PREEMPT })
		}},
		{"an open gang that yields", audit.Reservation, "is not closing", func(w *world) {
			w.claims(3, gangs("y2"))
			w.admit("y2", "lab.y", 3, func(r *wire.ReservationRecord) { r.Yields = &wire.Yielding{To: &wire.GangRef{Uid: "c"}} })
		}},
		{"a closing gang forgets for whom", audit.Reservation, "for gang c, then for nobody", func(w *world) {
			w.claims(3, gangs("y2"))
			w.admit("y2", "lab.y", 3, closed("c"))
			w.admit("y2", "lab.y", 3, closed(""))
		}},
		{"a closing gang is open again", audit.Reservation, "is open again", func(w *world) {
			w.claims(3, gangs("y2"))
			w.admit("y2", "lab.y", 3, closed("c"))
			w.admit("y2", "lab.y", 3)
		}},

		// I21
		{"closed twice for one attempt", audit.Victim, "closed a second time for attempt 1 of gang c", func(w *world) { again(w, 1) }},
		{"closed again for a later attempt", "", "", func(w *world) { again(w, 2) }},
		{"closed again after the claim was dropped", "", "", func(w *world) {
			w.claims(3, gangs("y2"))
			w.admit("y2", "lab.y", 3, closed("c"))
			w.drop("y2", "lab.y")
			w.drop("c", "lab.x")
			w.admit("y2", "lab.y", 3, attempt(2))
			w.claims(3, gangs("y2"), func(r *wire.ReservationRecord) { r.Claim.Victims[0].Attempt = 2 })
			w.admit("y2", "lab.y", 3, attempt(2), closed("c"))
		}},
		{"closed again for another further pod", "", "", func(w *world) {
			w.claims(3, gangs("y2"))
			w.admit("y2", "lab.y", 3, closed("c"))
			w.drop("y2", "lab.y")
			w.drop("x1", "lab.x")
			w.reserve("c", 3000, in("lab.x"))
			w.admit("y2", "lab.y", 2, attempt(2))
			w.claims(2, gangs("y2"), func(r *wire.ReservationRecord) {
				r.Demand, r.Claim.Mandate, r.Claim.Victims[0].Attempt = cpu(3000), 2, 2
			})
			w.admit("y2", "lab.y", 2, attempt(2), closed("c"))
		}},
		{"victims on two levels", "", "", func(w *world) { twoLevels(w, "b2", "y2") }},
		{"a victim of the upper level alone", audit.Claim, "which would have 7 of cpu and deserves 6", func(w *world) {
			twoLevels(w, "y2")
		}},
		{"a claim for room is done, and the record has it still", "", "", func(w *world) {
			w.drop("y3", "lab.y")
			w.reserve("c", 1000, in("lab.x"))
			w.claims(0, gangs("y2"), func(r *wire.ReservationRecord) { r.Demand = cpu(1000) })
			w.admit("y2", "lab.y", 3, closed("")) // its home was first
			w.reserve("d", 0, in("lab.x"), func(r *wire.ReservationRecord) { r.Demand, r.Claim, r.Awaits = nil, claimRecord(2, "y1"), gangs("y1") })
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, audit.Config{})
			lab(w)
			w.node("large", "100") // nothing that is deserved is cut
			test.run(w)
			w.check(t, test.want, test.in)
		})
	}
}

// overdue lets time pass after the end of a claim for a minute.
func overdue(w *world, led bool, d time.Duration) {
	for _, gang := range gangs("y1", "y3", "x1") {
		w.drop(gang, "lab."+gang[:1])
	}
	w.share("lab.y", -1, -1, -1, nil)
	for _, gang := range gangs("y2", "c") { // with pods: nothing else is to be found
		w.pod(gang, "3", func(p *v1.Pod) { p.Labels = map[string]string{api.LabelQueue: "lab.y"} })
	}
	w.claims(3, gangs("y2"), func(r *wire.ReservationRecord) { r.Claim.UntilUnixMs = w.now.Add(time.Minute).UnixMilli() })
	if !led {
		w.put("leader/c/1", nil)
	}
	w.pass(d)
}

// second closes y2 for c, and has c claim y1 instead. The pods of y2 should leave within a time.
func second(w *world, within time.Duration) {
	w.claims(3, gangs("y2"))
	w.admit("y2", "lab.y", 3, closed("c"), func(r *wire.ReservationRecord) { r.Yields.UntilUnixMs = w.now.Add(within).UnixMilli() })
	w.drop("c", "lab.x")
	w.claims(3, gangs("y1"), alone)
}

// again closes y2 for c, admits both, and closes y2 for c once more: for its room.
// twoLevels has a gang claim that may take from a sibling of its parent once a gang of its own sibling has left.
func twoLevels(w *world, victims ...string) {
	w.drop("x1", "lab.x")
	w.drop("y3", "lab.y")
	w.share("lab.x.a", -1, -1, 3, nil)
	w.share("lab.x.b", -1, -1, 3, nil)
	w.admit("b1", "lab.x.b", 2)
	w.admit("b2", "lab.x.b", 2)
	w.claims(3, victims, in("lab.x.a"), alone)
}

func again(w *world, of uint64) {
	w.claims(3, gangs("y2"))
	w.admit("y2", "lab.y", 3, closed("c"))
	w.drop("y2", "lab.y")
	w.reserve("c", 3000, in("lab.x"))
	w.share("lab", 20, -1, -1, nil)
	w.admit("y2", "lab.y", 3, attempt(2))
	w.claims(0, gangs("y2"), attempt(of), func(r *wire.ReservationRecord) {
		r.Demand, r.Claim.Mandate, r.Claim.Victims[0].Attempt = cpu(3000), 2, 2
	})
	w.admit("y2", "lab.y", 3, attempt(2), closed("c"))
}

func (w *world) check(t *testing.T, want audit.Kind, in string) {
	t.Helper()
	r := w.a.Report()
	switch {
	case want == "" && r.Sum() != 0:
		t.Fatalf("found %v", r.Violations)
	case want == "":
	case r.Counts[want] == 0 || r.Sum() != r.Counts[want]:
		t.Fatalf("want only %s, found %v", want, r.Violations)
	case !slices.ContainsFunc(r.Violations, func(v audit.Violation) bool { return strings.Contains(v.Message, in) }):
		t.Errorf("want a message with %q, found %v", in, r.Violations)
	}
}

// Who is evicted for another gang, and who is not: I15.
func TestAuditorJudgesEvictions(t *testing.T) {
	evicted := func(reason string) func(*v1.Pod) {
		return condition(v1.DisruptionTarget, v1.ConditionTrue, reason, "for gang c")
	}
	group := func(w *world, started v1.ConditionStatus) {
		g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{UID: "y2", Namespace: "ns", Name: "job"}}
		g.Spec.Queue, g.Spec.SchedulingPolicy.Gang.MinCount = "lab.y", 1
		g.Status = &v1beta1.PodGroupStatus{Stamp: v1beta1.Stamp{Sequence: int64(len(started))},
			Conditions: []metav1.Condition{{Type: v1beta1.ConditionPodGroupInitiallyScheduled, Status: metav1.ConditionStatus(started)}}}
		w.a.Observe(w.now, audit.PodGroupSeen{PodGroup: g})
	}
	started := func(w *world) { group(w, "True") }
	for _, test := range []struct {
		name   string
		want   audit.Kind
		in     string
		reason string
		run    func(w *world)
	}{
		{"for a claim", "", "", v1beta1.ReasonPreempted, func(w *world) {
			w.claims(3, gangs("y2"))
			w.admit("y2", "lab.y", 3, closed("c"))
		}},
		{"for a claim, after it has started", "", "", v1beta1.ReasonPreempted, func(w *world) {
			started(w)
			w.claims(3, gangs("y2"))
			w.admit("y2", "lab.y", 3, closed("c"))
		}},
		{"before it is closed", audit.Eviction, "was never closing", v1beta1.ReasonPreempted, func(w *world) { w.claims(3, gangs("y2")) }},
		{"closed for nobody", audit.Eviction, "never closing for another gang", v1beta1.ReasonPreempted, func(w *world) { w.admit("y2", "lab.y", 3, closed("")) }},
		{"rolled back", "", "", v1beta1.ReasonRolledBack, func(w *world) { w.admit("y2", "lab.y", 3, closed("")) }},
		{"rolled back after it has started", audit.Eviction, "had started and yields to nobody", v1beta1.ReasonRolledBack, func(w *world) {
			started(w)
			w.pass(3 * time.Second)
			w.admit("y2", "lab.y", 3, closed(""))
		}},
		{"rolled back, and started as that shows", "", "", v1beta1.ReasonRolledBack, func(w *world) {
			w.admit("y2", "lab.y", 3, closed(""))
			started(w)
			w.admit("y2", "lab.y", 3, func(r *wire.ReservationRecord) { r.Started = true })
		}},
		{"rolled back after its record said that it had started", audit.Eviction, "had started and yields to nobody", v1beta1.ReasonRolledBack, func(w *world) {
			w.admit("y2", "lab.y", 3, func(r *wire.ReservationRecord) { r.Started = true })
			w.admit("y2", "lab.y", 3, closed(""))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, audit.Config{Grace: time.Hour, Unresolved: time.Hour})
			lab(w)
			group(w, "")
			w.pod("p", "3", of("job"))
			w.intend(1, "y2", 3000, map[string]string{"p": "n1"})
			w.pod("p", "3", on("n1"), of("job"))
			test.run(w)
			w.pod("p", "3", on("n1"), of("job"), evicted(test.reason))
			w.pass(10 * time.Second)
			w.check(t, test.want, test.in)
		})
	}
}

// A gang that had started may be rolled back in its next life.
func TestAuditorJudgesLives(t *testing.T) {
	w := newWorld(t, audit.Config{Grace: time.Hour, Unresolved: time.Hour})
	lab(w)
	life := func(n int, uid string) {
		w.admit("y2", "lab.y", 3, attempt(uint64(n)))
		w.pod(uid, "3", of("job"))
		w.intend(n, "y2", 3000, map[string]string{uid: "n1"})
		w.pod(uid, "3", on("n1"), of("job"))
	}
	g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{UID: "y2", Namespace: "ns", Name: "job"}}
	g.Spec.Queue, g.Spec.SchedulingPolicy.Gang.MinCount = "lab.y", 1
	w.a.Observe(w.now, audit.PodGroupSeen{PodGroup: g.DeepCopy()})
	w.drop("y2", "lab.y")
	life(2, "p")
	g.Status = &v1beta1.PodGroupStatus{Stamp: v1beta1.Stamp{Sequence: 1},
		Conditions: []metav1.Condition{{Type: v1beta1.ConditionPodGroupInitiallyScheduled, Status: metav1.ConditionTrue}}}
	w.a.Observe(w.now, audit.PodGroupSeen{PodGroup: g})
	w.admit("y2", "lab.y", 3, attempt(2), func(r *wire.ReservationRecord) { r.Started = true })
	w.pass(3 * time.Second)
	w.gone("p")
	w.drop("y2", "lab.y")
	life(3, "q")
	w.admit("y2", "lab.y", 3, attempt(3), closed(""))
	w.pod("q", "3", on("n1"), of("job"), condition(v1.DisruptionTarget, v1.ConditionTrue, v1beta1.ReasonRolledBack, ""))
	w.pass(10 * time.Second)
	w.check(t, "", "")
}

// A gang that was evicted starts all together or not at all again.
func TestAuditorCountsTheMinimumAnew(t *testing.T) {
	for _, test := range []struct {
		name string
		want audit.Kind
		pods []string // that are bound after the eviction

		finished bool // a pod of before has finished and is there
	}{
		{"as a whole", "", []string{"c1", "c2"}, false},
		{"in part", audit.Partial, []string{"c1"}, false},
		{"not at all", "", nil, false},
		{"not at all, beside a pod that has finished", "", nil, true},
		{"as a whole with a pod that has finished", "", []string{"c1"}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, audit.Config{})
			lab(w)
			w.share("lab", 20, -1, -1, nil)
			for _, gang := range gangs("x1", "y2", "y3") {
				w.drop(gang, "lab."+gang[:1])
			}
			g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{UID: "g", Namespace: "ns", Name: "job"}}
			g.Spec.Queue, g.Spec.SchedulingPolicy.Gang.MinCount = "lab.y", 2
			w.a.Observe(w.now, audit.PodGroupSeen{PodGroup: g})
			two := func(r *wire.ReservationRecord) { r.Demand = append(r.Demand, &wire.Amount{Resource: "pods", Value: 3}) }
			bind := func(n int, pods ...string) {
				where := map[string]string{}
				for _, p := range pods {
					where[p] = "n1"
				}
				if len(pods) > 0 {
					w.intend(n, "g", 1000, where)
				}
				for _, p := range pods {
					w.pod(p, "1", of("job"))
					w.pod(p, "1", on("n1"), of("job"))
				}
				if len(pods) > 0 {
					w.put("intents/"+w.owner("n1")+fmt.Sprintf("/%016x", n), nil)
				}
			}
			w.pod("f", "1", of("job"))
			w.admit("g", "lab.y", 3, two)
			bind(1, "a1", "f")
			w.pod("f", "1", on("n1"), of("job"), done)
			w.pod("a2", "1", of("job"))
			bind(2, "a2")
			w.claims(1, gangs("g"))
			w.admit("g", "lab.y", 3, two, closed("c"))
			w.gone("a1")
			w.gone("a2")
			if !test.finished {
				w.gone("f")
			}
			w.drop("g", "lab.y")
			w.drop("c", "lab.x")
			w.drop("y1", "lab.y")
			for _, p := range []string{"c1", "c2", "c3"} {
				w.pod(p, "1", of("job"))
			}
			w.admit("g", "lab.y", 3, two, attempt(2))
			bind(3, test.pods...)
			w.pass(40 * time.Second)
			w.check(t, test.want, "1 of at least 2 pods")
		})
	}
}

// The policy in force is that of the Queue.
func TestAuditorComparesPolicies(t *testing.T) {
	for _, test := range []struct {
		name  string
		queue func(*v1beta1.QueueSpec)
		force *wire.QueuePolicy
		want  audit.Kind
	}{
		{"the defaults", func(*v1beta1.QueueSpec) {}, nil, ""},
		{"the defaults in words", func(s *v1beta1.QueueSpec) { s.Reclaimable, s.ReclaimPolicy = new(true), "Deserved" }, nil, ""},
		{"all of it", func(s *v1beta1.QueueSpec) {
			s.Reclaimable, s.ReclaimPolicy, s.PreemptionPolicy = new(false), "FairShare", "PreemptLowerPriority"
			s.ReclaimMinRuntime, s.PreemptMinRuntime, s.PreemptionDelay = &metav1.Duration{Duration: time.Hour}, &metav1.Duration{}, &metav1.Duration{Duration: time.Microsecond}
		}, &wire.QueuePolicy{Kept: true, Reclaim: wire.Reclaim_RECLAIM_FAIR_SHARE, Preempts: new(true), ReclaimMinRuntimeMs: new(int64(3_600_000)),
			PreemptMinRuntimeMs: new(int64(0)), PreemptionDelayMs: new(int64(1))}, ""},
		{"what is said is not in force", func(s *v1beta1.QueueSpec) { s.PreemptionPolicy = "Never" }, nil, audit.Limits},
		{"what is in force is not said", func(*v1beta1.QueueSpec) {}, &wire.QueuePolicy{Kept: true}, audit.Limits},
		{"what cannot be in force", func(s *v1beta1.QueueSpec) { s.ReclaimPolicy = "Always" }, nil, ""},
		{"what is too long", func(s *v1beta1.QueueSpec) { s.PreemptionDelay = &metav1.Duration{Duration: 169 * time.Hour} }, nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, audit.Config{})
			w.coordinate(map[string]proto.Message{"queues/lab": &wire.LimitsRecord{Queue: "lab", Uid: "u", Policy: test.force}})
			q := &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "lab", UID: "u", Finalizers: []string{v1beta1.FinalizerCharged}}}
			test.queue(&q.Spec)
			w.a.Observe(w.now, audit.Seen[*v1beta1.Queue]{Object: q})
			w.pass(2 * time.Minute)
			w.check(t, test.want, "the policy is")
		})
	}
}
