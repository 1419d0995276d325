package topology

import (
	"cmp"
	"slices"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/shard/event"
)

// place is where a row is in the log: when its key was created, and which row of the key it is.
type place struct {
	revision int64
	index    int
}

func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(p.revision, o.revision), cmp.Compare(p.index, o.index))
}

// keyID names an intent key.
type keyID struct {
	inc api.Incarnation
	n   uint64
}

// logged is a key of the log.
type logged struct {
	rows []*row
}

// row is a pod that may be bound to a node.
type row struct {
	uid, namespace, version, node string
	nodeVersion                   string // that its shard knew; "" if it did not say
	place                         place
	repels                        string      // the anti-affinity terms that the pod carries,
	terms                         []*api.Term // and those of them with larger domains than a node
	bound                         bool        // somebody of this process was told so
	givenUp                       bool        // it was not sent, and will not be
	missing                       bool        // the log was read again and did not have it: a list of pods will tell
}

// live reports whether a row may still bind its pod, or has bound it and the pod's present state does not show it yet. One that bound
// its pod to a node that was not seen as its shard knew it stays: in which domain the pod is will be known then.
func (v *View) live(r *row, p *pod) bool {
	return !r.givenUp && (!api.NewerVersion(p.object.ResourceVersion, r.version) || p.object.Node == r.node && !v.knowsNode(r))
}

// knowsNode reports whether the node of a row was seen as the row's shard knew it, or later: an older one may have been in other domains.
func (v *View) knowsNode(r *row) bool {
	n := &v.nodes[v.nodeOf(r.node)]
	return n.seen && (!api.NewerVersion(r.nodeVersion, n.version) || fault.On(fault.NodesUnsaid))
}

// Position is up to which revision the log was seen; 0 before it was read.
func (v *View) Position() int64 { return v.position }

// Awaits reports whether a row of a key may still bind its pod, as far as the log and the pod tell.
func (v *View) Awaits(inc api.Incarnation, n uint64, uid string) bool {
	k := v.keys[keyID{inc, n}]
	return k != nil && slices.ContainsFunc(k.rows, func(r *row) bool { return r.uid == uid && !r.givenUp })
}

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

// isBlind reports whether too little is known of a row: the pod watch has not shown the pod as the row found it, so that its labels are
// not known for sure, or its node not as the row's shard knew it.
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

// endRows ends the rows of a pod that its present state shows to be over.
func (v *View) endRows(p *pod) {
	uid := p.object.UID
	rows := v.rows[uid]
	kept := rows[:0:0]
	for _, r := range rows {
		if v.live(r, p) {
			kept = append(kept, r)
			continue
		}
		if !r.givenUp {
			r.givenUp = true
			v.over++
		}
		delete(v.blind, r)
	}
	if len(kept) == len(rows) {
		return
	}
	if len(kept) > 0 {
		v.rows[uid] = kept
	} else {
		delete(v.rows, uid)
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
