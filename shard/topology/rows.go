package topology

import (
	"cmp"
	"slices"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
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

// intentLog is the log of intents.
type intentLog struct {
	position   int64 // up to which it was seen; 0: not read yet
	gap        bool  // it was read again, and pods were not listed since: what came and went in between is not known
	keys       map[keyID]*logged
	rows       map[string][]*row // by pod UID: those that may not be over
	order      []*row            // in order of their places, those that are over among them
	over       int               // how many
	disordered bool
	blind      map[*row]bool // those whose pod is not known yet as they name it
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

// live reports whether a row may still bind its pod, or has bound it and the pod's present state does not show it
// yet. One that bound its pod to a node that was not seen as its shard knew it stays: in which domain the pod is will
// be known then.
func (v *View) live(r *row, p *pod) bool {
	if r.givenUp {
		return false
	}
	return !api.NewerVersion(p.object.ResourceVersion, r.version) || p.object.Node == r.node && !v.knowsNode(r)
}

// knowsNode reports whether the node of a row was seen as the row's shard knew it, or later: an older one may have
// been in other domains.
func (v *View) knowsNode(r *row) bool {
	n := &v.nodes[v.nodeOf(r.node)]
	return n.seen && (!api.NewerVersion(r.nodeVersion, n.version) || fault.On(fault.NodesUnsaid))
}

// Position is up to which revision the log was seen; 0 before it was read.
func (l *intentLog) Position() int64 { return l.position }

// Awaits reports whether a row of a key may still bind its pod, as far as the log and the pod tell.
func (l *intentLog) Awaits(inc api.Incarnation, n uint64, uid string) bool {
	k := l.keys[keyID{inc, n}]
	return k != nil && slices.ContainsFunc(k.rows, func(r *row) bool { return r.uid == uid && !r.givenUp })
}

// sortOrder sorts the rows by their places.
func (l *intentLog) sortOrder() {
	if l.disordered {
		slices.SortStableFunc(l.order, func(a, b *row) int { return a.place.compare(b.place) })
		l.disordered = false
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
