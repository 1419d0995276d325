package audit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// announced is the intents of all shards.
type announced struct {
	intents map[string]*intents
	last    map[string]uint64 // incarnation -> the largest n that was written
}

type intents struct {
	key         string
	incarnation string
	rows        []*row
}

type row struct {
	pod    string // UID
	node   string
	gang   string
	demand api.Resources
}

func (a *Auditor) intentsPut(e StoreRevision, c StoreChange, rest string) {
	incarnation, hex, _ := strings.Cut(rest, "/")
	n, err := strconv.ParseUint(hex, 16, 64)
	if err != nil {
		a.unreadable(e, c, err)
		return
	}
	var rec wire.IntentsRecord
	if err := proto.Unmarshal(c.Value, &rec); err != nil {
		a.unreadable(e, c, err)
		return
	}
	demands := make([]api.Resources, len(rec.GetDemands()))
	for i, d := range rec.GetDemands() {
		if demands[i], err = wire.ToResources(d.GetAmounts()); err != nil {
			a.unreadable(e, c, err)
			return
		}
	}
	in := &intents{key: c.Key, incarnation: incarnation}
	for _, r := range rec.GetRows() {
		if int(r.GetGang()) >= len(rec.GetGangs()) || int(r.GetDemand()) >= len(demands) {
			a.unreadable(e, c, fmt.Errorf("the row of pod %s names gang %d of %d and demand %d of %d", r.GetPodUid(),
				r.GetGang(), len(rec.GetGangs()), r.GetDemand(), len(demands)))
			return
		}
		in.rows = append(in.rows, &row{pod: r.GetPodUid(), node: r.GetNode(), gang: rec.GetGangs()[r.GetGang()].GetUid(),
			demand: a.cfg.strip(demands[r.GetDemand()])})
	}
	s := &a.store
	old := s.intents[c.Key]
	switch {
	case e.Snapshot:
	case old != nil: // an heir may leave rows out, nothing else
		had := map[[3]string]bool{}
		for _, r := range old.rows {
			had[[3]string{r.pod, r.node, r.gang}] = true
		}
		for _, r := range in.rows {
			if !had[[3]string{r.pod, r.node, r.gang}] {
				a.storeViolation(Intent, c.Key, []int64{c.CreateRevision, e.Revision},
					"was written again with a row for pod %s on node %s that it did not have", r.pod, r.node)
			}
		}
	default:
		if last, had := s.last[incarnation]; had && n <= last {
			a.storeViolation(Intent, c.Key, []int64{e.Revision}, "was written after %s wrote number %d", incarnation, last)
		}
		a.judgeIntents(e, in, rec.GetTableEpoch())
	}
	s.last[incarnation] = max(s.last[incarnation], n)
	a.dropIntents(c.Key)
	s.intents[c.Key] = in
	for i, r := range in.rows {
		p := a.pod(r.pod)
		p.rows = append(p.rows, r)
		p.announced[r.node], p.intended = true, e.Revision
		if old == nil && !e.Snapshot {
			p.decided, p.place = a.now, place{c.CreateRevision, i}
		}
		a.recount(p)
	}
	unresolved := lastingKey{Leak, c.Key, "intents unresolved"}
	violate := func(since time.Time) {
		a.storeViolation(Leak, c.Key, []int64{c.CreateRevision, e.Revision}, "has %d intents unresolved since %s",
			len(in.rows), since.Format(clock))
	}
	a.lasts(unresolved, len(in.rows) > 0, a.cfg.Unresolved, func(since time.Time) {
		if !a.awaitsVolumes(in) {
			violate(since)
			return
		}
		delete(a.lasting, unresolved)
		a.lasts(unresolved, true, volumesTake, violate)
	})
}

// volumesTake is how much longer intents may stand where volumes are being bound: a gang is given 10 minutes for its
// volumes.
const volumesTake = 12 * time.Minute

// awaitsVolumes reports whether intents are of a gang of which some pod has a claim that is not bound: no pod of it is
// bound before.
func (a *Auditor) awaitsVolumes(in *intents) bool {
	gangs := map[string]bool{}
	for _, r := range in.rows {
		gangs[r.gang] = true
	}
	for _, other := range a.store.intents {
		for _, r := range other.rows {
			p := a.cluster.pods[r.pod]
			if !gangs[r.gang] || p == nil || p.worn == nil {
				continue
			}
			for _, claim := range slices.Concat(p.worn.named, p.worn.made) {
				if c, known := a.volumes.claims[claim]; known && c.volume == "" {
					return true
				}
			}
		}
	}
	return false
}

// judgeIntents judges intents that are new.
func (a *Auditor) judgeIntents(e StoreRevision, in *intents, epoch uint64) {
	if len(in.rows) == 0 {
		return
	}
	t := a.store.table
	if t == nil {
		if !a.store.snapshot {
			a.storeViolation(Intent, in.key, []int64{e.Revision}, "was written when there was no table")
		}
		return
	}
	if api.Epoch(epoch) != t.Epoch {
		a.storeViolation(Intent, in.key, []int64{t.Revision, e.Revision},
			"was decided under table epoch %d, the table has epoch %d", epoch, t.Epoch)
	}
	for _, r := range in.rows {
		if owner := t.OwnerOf(r.node); string(owner) != in.incarnation {
			a.storeViolation(Intent, in.key, []int64{t.Revision, e.Revision}, "has a row for node %s, which belongs to %q",
				r.node, owner)
		}
		res := a.gang(r.gang).reservation
		if res == nil {
			a.storeViolation(Intent, in.key, []int64{e.Revision}, "has a row for pod %s of gang %s, which has no reservation",
				r.pod, r.gang)
		} else if !res.isCharged() {
			a.storeViolation(Intent, in.key, []int64{res.revision, e.Revision},
				"has a row for pod %s of gang %s, which has a claim and no quota yet", r.pod, r.gang)
		} else if res.closing {
			a.storeViolation(Intent, in.key, []int64{res.revision, e.Revision},
				"has a row for pod %s of gang %s, which is closing", r.pod, r.gang)
		}
	}
}

func (a *Auditor) dropIntents(key string) {
	in := a.store.intents[key]
	if in == nil {
		return
	}
	delete(a.store.intents, key)
	delete(a.lasting, lastingKey{Leak, key, "intents unresolved"})
	for _, r := range in.rows {
		if p := a.cluster.pods[r.pod]; p != nil {
			p.rows = slices.DeleteFunc(p.rows, func(o *row) bool { return o == r })
			a.recount(p)
			a.dropPod(p)
		}
	}
}
