package audit_test

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
)

func surplus(uids ...string) (out []*wire.SurplusPod) {
	for _, uid := range uids {
		out = append(out, &wire.SurplusPod{Uid: uid, Amounts: cpu(1000)})
	}
	return out
}

// running is a gang that keeps so many of its pods.
func running(least uint32, pods ...string) change {
	return func(r *wire.ReservationRecord) {
		r.Least, r.Pods = least, nil
		for _, uid := range pods {
			r.Pods = append(r.Pods, api.PodID(uid))
		}
		slices.Sort(r.Pods)
	}
}

func condemned(uids ...string) change {
	return func(r *wire.ReservationRecord) {
		r.Condemned, r.Shrinks = surplus(uids...), &wire.Yielding{To: &wire.GangRef{Uid: "c"}, Rule: wire.Rule_RULE_RECLAIM}
	}
}

// takes is a claim on pods of y1.
func takes(uids ...string) change {
	return func(r *wire.ReservationRecord) { r.Claim.Victims[0].Pods, r.Awaits = surplus(uids...), uids }
}

// Single pods of a gang that runs on go for a claim: I14 and I15.
func TestAuditorJudgesSurplus(t *testing.T) {
	y1 := func(w *world, cores int64, least uint32, pods []string, changes ...change) {
		w.admit("y1", "lab.y", cores, append(changes, running(least, pods...))...)
	}
	all := gangs("p1", "p2", "p3")
	evict := func(w *world, uid string) {
		w.pod(uid, "1", on("n1"))
		w.pod(uid, "1", on("n1"), condition(v1.DisruptionTarget, v1.ConditionTrue, v1beta1.ReasonRolledBack, "for gang c"))
	}
	second := func(w *world, within time.Duration) { // p3 is condemned for c, and c claims y2 instead
		w.claims(1, gangs("y1"), takes("p3"))
		y1(w, 3, 1, all, condemned("p3"), func(r *wire.ReservationRecord) { r.Shrinks.UntilUnixMs = w.now.Add(within).UnixMilli() })
		w.drop("c", "lab.x")
		w.claims(1, gangs("y2"), alone)
	}
	for _, test := range []struct {
		name string
		want audit.Kind // "" for a clean report
		in   string     // of the message
		run  func(w *world)
	}{
		{"from its beginning to its end", "", "", func(w *world) {
			w.claims(2, gangs("y1"), takes("p2", "p3"))
			y1(w, 3, 1, all, condemned("p2", "p3"))
			y1(w, 2, 1, gangs("p1", "p2"), condemned("p2"))
			y1(w, 1, 1, gangs("p1"))
			w.reserve("c", 2000, in("lab.x"), func(r *wire.ReservationRecord) { r.Awaits = gangs("p2", "p3") })
		}},
		{"more than it may lose", audit.Victim, "and keeps 2", func(w *world) {
			y1(w, 3, 2, all)
			w.claims(2, gangs("y1"), takes("p2", "p3"))
		}},
		{"of one that goes as a whole or not at all", audit.Victim, "and keeps 0", func(w *world) {
			y1(w, 3, 0, all)
			w.claims(1, gangs("y1"), takes("p3"))
		}},
		{"a pod of another gang", audit.Claim, "not charged for it", func(w *world) { w.claims(1, gangs("y1"), takes("p4")) }},
		{"too little", audit.Claim, "frees 1 of cpu", func(w *world) { w.claims(2, gangs("y1"), takes("p3")) }},
		{"a pod that is not needed", audit.Claim, "names gang p3, without which", func(w *world) {
			w.claims(1, gangs("y1"), takes("p2", "p3"), func(r *wire.ReservationRecord) { r.Awaits = gangs("p2") })
		}},
		{"admitted before they are condemned", audit.Claim, "neither closed nor gone", func(w *world) {
			w.claims(1, gangs("y1"), takes("p3"))
			w.drop("x1", "lab.x")
			w.reserve("c", 1000, in("lab.x"))
		}},
		{"condemned for nobody", audit.Victim, "no claim names", func(w *world) { y1(w, 3, 1, all, condemned("p3")) }},
		{"condemned, another than was claimed", audit.Victim, "condemns pod p2, which no claim names", func(w *world) {
			w.claims(1, gangs("y1"), takes("p3"))
			y1(w, 3, 1, all, condemned("p2"))
		}},
		{"condemned although its minimum was raised", audit.Victim, "keeps no less than 3", func(w *world) {
			w.claims(1, gangs("y1"), takes("p3"))
			y1(w, 3, 3, all, condemned("p3"))
		}},
		{"condemned while others have no node", audit.Victim, "keeps 1 with a node, and its minimum is 2", func(w *world) {
			y1(w, 3, 2, all)
			w.pod("p1", "1")
			w.claims(1, gangs("y1"), takes("p3"))
			y1(w, 3, 2, all, condemned("p3"))
			w.pass(10 * time.Second)
		}},
		{"not condemned any more", audit.Victim, "does not any more", func(w *world) {
			w.claims(1, gangs("y1"), takes("p3"))
			y1(w, 3, 1, all, condemned("p3"))
			y1(w, 3, 1, all)
		}},
		{"the whole gang is closed for it", audit.Victim, "had no claim at an earlier revision", func(w *world) {
			w.claims(1, gangs("y1"), takes("p3"))
			y1(w, 3, 1, all, closed("c"))
		}},
		{"another gang gets what its place was charged", audit.Quota, "with what is promised to claims", func(w *world) {
			w.claims(1, gangs("y1"), takes("p3"))
			y1(w, 3, 1, all, condemned("p3"))
			for _, uid := range gangs("p1", "p2", "p4") {
				w.pod(uid, "1")
			}
			y1(w, 3, 1, gangs("p1", "p2", "p4"))
			w.pass(10 * time.Second)
		}},
		{"another pod is charged, and is gone: it may have had a node", "", "", func(w *world) {
			w.claims(1, gangs("y1"), takes("p3"))
			y1(w, 3, 1, all, condemned("p3"))
			y1(w, 3, 1, gangs("p1", "p2", "p4"))
			w.pass(10 * time.Second)
		}},
		{"a gang is taken while a pod is on its way out", audit.Claim, "as much quota would be free as it needs", func(w *world) { second(w, time.Minute) }},
		{"a gang is taken once a pod is overdue", "", "", func(w *world) { second(w, -10*time.Second) }},
		{"evicted when it is condemned", "", "", func(w *world) {
			w.claims(1, gangs("y1"), takes("p3"))
			y1(w, 3, 1, all, condemned("p3"))
			evict(w, "p3")
			w.pass(10 * time.Second)
		}},
		{"evicted before that", audit.Eviction, "never condemned it", func(w *world) {
			w.claims(1, gangs("y1"), takes("p3"))
			evict(w, "p3")
			w.pass(10 * time.Second)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, audit.Config{Grace: time.Hour, Unresolved: time.Hour})
			lab(w)
			y1(w, 3, 1, all)
			test.run(w)
			w.check(t, test.want, test.in)
		})
	}
}
