package topology

import (
	"cmp"
	"slices"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/shard/event"
)

func (v *View) logRead(ev event.LogRead) {
	there := map[keyID]bool{}
	for i := range ev.Intents {
		there[keyID{ev.Intents[i].Incarnation, ev.Intents[i].N}] = true
	}
	for id, k := range v.keys {
		if !there[id] {
			for _, r := range k.rows {
				if r.missing = true; fault.On(fault.LogAnewComplete) && !r.givenUp {
					v.rowEnded(r)
				}
			}
			delete(v.keys, id)
		}
	}
	all := slices.Clone(ev.Intents)
	slices.SortFunc(all, func(a, b event.LoggedIntents) int { return cmp.Compare(a.Place, b.Place) })
	for i := range all {
		v.logKey(&all[i])
	}
	v.gap = v.position > 0 && !fault.On(fault.LogAnewComplete)
	v.position = max(v.position, ev.Revision)
}

func (v *View) logSeen(ev event.LogSeen) {
	for i := range ev.Intents {
		v.logKey(&ev.Intents[i])
	}
	v.position = max(v.position, ev.Revision)
}

// logKey takes a key of the log as it is now.
func (v *View) logKey(in *event.LoggedIntents) {
	id := keyID{in.Incarnation, in.N}
	k := v.keys[id]
	if in.Record == nil { // deleted, or it cannot be read
		if k != nil && fault.On(fault.DeletedIsOver) {
			for _, r := range k.rows {
				v.rowEnded(r)
			}
		}
		delete(v.keys, id)
		return
	}
	fresh := k == nil
	if fresh {
		k = &logged{}
		v.keys[id] = k
	}
	for _, uid := range in.Record.GetGivenUp() {
		for _, r := range k.rows {
			if r.uid == uid && !r.givenUp && !fault.On(fault.GivenUpUntold) {
				r.givenUp = true
				v.rowEnded(r)
			}
		}
	}
	if !fresh {
		return
	}
	for i, stored := range in.Record.GetRows() {
		r := &row{uid: stored.GetPodUid(), namespace: stored.GetNamespace(), version: stored.GetPodResourceVersion(), node: stored.GetNode(), nodeVersion: stored.GetNodeResourceVersion(), place: place{in.Place, i}}
		if demands := in.Record.GetDemands(); int(stored.GetDemand()) < len(demands) {
			r.repels = string(demands[stored.GetDemand()].GetRepels())
			r.terms = v.wide(r.namespace, r.repels)
		}
		k.rows = append(k.rows, r)
		v.rows[r.uid] = append(v.rows[r.uid], r)
		if n := len(v.order); n > 0 && v.order[n-1].place.compare(r.place) > 0 {
			v.disordered = true
		}
		v.order = append(v.order, r)
		if p := v.podOf(r.namespace, r.uid); p != nil {
			v.recount(v.spaces[r.namespace], p)
		} else {
			v.judgeBlind(r.uid)
		}
		if len(v.rows[r.uid]) > 0 && v.isBlind(r) {
			v.blind[r] = true
		}
	}
}

// isBlind reports whether too little is known of a row: the pod watch has not shown the pod as the row found it, so
// that its labels are not known for sure, or its node not as the row's shard knew it.
func (v *View) isBlind(r *row) bool {
	if !v.knowsNode(r) && !v.isOver(r) {
		return true
	}
	if p := v.podOf(r.namespace, r.uid); p != nil {
		return api.NewerVersion(r.version, p.object.ResourceVersion)
	}
	return api.NewerVersion(r.version, v.version)
}

// isOver reports whether the pod of a row is gone.
func (v *View) isOver(r *row) bool {
	return !v.Knows(r.namespace, r.uid) && !api.NewerVersion(r.version, v.version)
}

// rowEnded takes a row out of what may still be.
func (v *View) rowEnded(r *row) {
	r.givenUp = true
	delete(v.blind, r)
	if rows := slices.DeleteFunc(slices.Clone(v.rows[r.uid]), func(o *row) bool { return o == r }); len(rows) > 0 {
		v.rows[r.uid] = rows
	} else {
		delete(v.rows, r.uid)
	}
	v.over++
	if p := v.podOf(r.namespace, r.uid); p != nil {
		v.recount(v.spaces[r.namespace], p)
	}
	if v.over > 64 && v.over > len(v.order)/2 {
		v.order = slices.DeleteFunc(v.order, func(o *row) bool { return o.givenUp })
		v.over = 0
	}
}

// judgeBlind ends the rows of a pod that is not there, if the watch has gone past what they name.
func (v *View) judgeBlind(uid string) {
	for _, r := range slices.Clone(v.rows[uid]) {
		if !v.isBlind(r) {
			v.rowEnded(r)
		}
	}
}

// settleBlind looks again at the rows whose pods were not known for sure.
func (v *View) settleBlind() {
	for r := range v.blind {
		if v.isBlind(r) {
			continue
		}
		delete(v.blind, r)
		if p := v.podOf(r.namespace, r.uid); p == nil {
			v.rowEnded(r)
		} else {
			v.recount(v.spaces[r.namespace], p)
		}
	}
}

// listed ends the rows that the log lacked when it was read again: the pods were listed after that.
func (v *View) listed() {
	v.gap = false
	for _, r := range slices.Clone(v.order) {
		if r.missing && !r.givenUp {
			v.rowEnded(r)
		}
	}
}
