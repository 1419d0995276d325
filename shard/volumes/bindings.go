package volumes

import (
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/volume"
	"basalt.dev/basalt/shard/event"
)

// bindings carries out BindVolumes: it asks for the writes that volume.Steps names, and answers when each claim of
// the pod is bound, or one cannot be. What was done is read from the objects, whoever did it, so nothing is kept but
// what this process wrote and has not seen yet.
//
// A row is looked at when an object of it changes, when a pause after a write is over, and once a second for what no
// event tells.
type bindings struct {
	rows    map[event.RowID]*binding
	byClaim map[types.NamespacedName]map[event.RowID]*binding
	taken   map[string]*work // volumes in which a claim is being named
	writes  map[uint64]write // that are not answered
	last    uint64           // ID of the last write
	looks   looks
	tick    time.Time // when all rows are looked at, zero for never
}

// write is a write that is not answered.
type write struct {
	*binding
	*work
	undo bool
}

// binding is one row.
type binding struct {
	row      event.RowID
	pod      *corev1.Pod // nil until it is seen
	node     string
	began    time.Time
	works    map[string]*work // by claim, of those that something was done for
	claims   []types.NamespacedName
	answered bool
	ended    bool // the row is not needed any more: what was asked for is taken back
}

// work is what this process does for a claim.
type work struct {
	claim  types.NamespacedName
	uid    types.UID
	volume string // that is to name the claim; "" where the claim is annotated
	done   bool   // the write was accepted,
	at     string // and made this version
	busy   bool   // it is not answered
	tries  int
	next   time.Time // not before
}

// How often a write is tried that is refused, and the pauses between tries: the first, and the longest.
const (
	volumeTries    = 6
	volumePause    = 200 * time.Millisecond
	maxVolumePause = 5 * time.Second
	volumeTick     = time.Second // between two looks at all rows
)

// unseenFor is how long a row waits for its pod, or a claim, to be seen: its home, which has seen them, may be ahead
// of the watches here.
const unseenFor = 10 * time.Second

func newBindings() bindings {
	return bindings{rows: map[event.RowID]*binding{}, byClaim: map[types.NamespacedName]map[event.RowID]*binding{},
		taken: map[string]*work{}, writes: map[uint64]write{}}
}

// bindVolumes begins.
func (c *Core) bindVolumes(o event.BindVolumes) {
	if used := c.uses[types.UID(o.Row.PodUID)]; c.rows[o.Row] != nil || used != nil && used.node != "" {
		c.tell(event.VolumesBound{Row: o.Row, Failed: podGone})
		return
	}
	b := &binding{row: o.Row, node: o.Node, began: c.now, works: map[string]*work{}}
	c.rows[o.Row] = b
	if c.bindings.tick.IsZero() {
		c.bindings.tick = c.now.Add(volumeTick)
	}
	c.proceed(b)
}

const podGone = "the pod is gone, or has a node"

// sees reports whether the pod of a row was seen.
func (c *Core) sees(b *binding) bool {
	if b.pod != nil {
		return true
	}
	w := c.waits[types.UID(b.row.PodUID)]
	if w == nil {
		return false
	}
	b.pod = w.pod
	for i := range b.pod.Spec.Volumes {
		if name := api.ClaimOf(b.pod, &b.pod.Spec.Volumes[i]); name != "" {
			claim := types.NamespacedName{Namespace: b.pod.Namespace, Name: name}
			b.claims = append(b.claims, claim)
			put(c.byClaim, claim, b.row, b)
		}
	}
	return true
}

// endVolumes ends a row, answered or not.
func (c *Core) endVolumes(o event.EndVolumes) {
	b := c.rows[o.Row]
	if b == nil {
		return
	}
	b.answered = true
	if o.Undo {
		b.ended = true
		c.undo(b)
		return
	}
	c.drop(b)
}

func (a *bindings) drop(b *binding) {
	delete(a.rows, b.row)
	for _, claim := range b.claims {
		remove(a.byClaim, claim, b.row)
	}
	for _, w := range b.works {
		a.release(w)
	}
}

func (a *bindings) release(w *work) {
	if a.taken[w.volume] == w {
		delete(a.taken, w.volume)
	}
}

// lookAt looks at the rows of a claim.
func (c *Core) lookAt(claim types.NamespacedName) {
	if rows := c.byClaim[claim]; len(rows) > 0 {
		c.lookAll(rows)
	}
}

func (c *Core) lookAll(rows map[event.RowID]*binding) {
	for _, row := range slices.SortedFunc(maps.Keys(rows), event.RowID.Compare) {
		if b := rows[row]; b != nil { // it may have ended because of one before
			c.look(b)
		}
	}
}

func (c *Core) look(b *binding) {
	if b.ended {
		c.undo(b)
	} else if !b.answered {
		c.proceed(b)
	}
}

// look is when a row is to be looked at.
type look struct {
	at  time.Time
	row event.RowID
}

// looks are a heap by time.
type looks []look

func (h looks) Len() int { return len(h) }
func (h looks) Less(i, k int) bool {
	return cmp.Or(h[i].at.Compare(h[k].at), h[i].row.Compare(h[k].row)) < 0
}
func (h looks) Swap(i, k int) { h[i], h[k] = h[k], h[i] }
func (h *looks) Push(l any)   { *h = append(*h, l.(look)) }
func (h *looks) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// next returns when rows are to be looked at, zero for never.
func (b *bindings) next() time.Time {
	if len(b.looks) > 0 && (b.tick.IsZero() || b.looks[0].at.Before(b.tick)) {
		return b.looks[0].at
	}
	return b.tick
}

// lookAtDue looks at the rows whose time has come.
func (c *Core) lookAtDue() {
	for len(c.looks) > 0 && !c.looks[0].at.After(c.now) {
		if b := c.rows[heap.Pop(&c.looks).(look).row]; b != nil {
			c.look(b)
		}
	}
	if tick := c.bindings.tick; tick.IsZero() || tick.After(c.now) {
		return
	}
	c.lookAll(c.rows)
	if c.bindings.tick = c.now.Add(volumeTick); len(c.rows) == 0 {
		c.bindings.tick = time.Time{}
	}
}

// seenAt returns the object that a work is about, as it was seen last, and whether that is later than what the work
// has made of it.
func (c *Core) seenAt(w *work) (v version, current bool) {
	v, known := c.claimAt[w.claim]
	if w.volume != "" {
		v, known = c.volumeAt[w.volume]
	}
	return v, !known || w.at == "" || v.version == w.at || api.NewerVersion(v.version, w.at)
}

// proceed makes the next writes of a row, or answers.
func (c *Core) proceed(b *binding) {
	unseen := c.now.Sub(b.began) < unseenFor
	if !c.sees(b) {
		if !unseen {
			c.fail(b, podGone)
		}
		return
	}
	own := func(name string) volume.Own {
		w := b.works[name]
		if w == nil {
			return volume.Own{Unseen: unseen}
		}
		_, current := c.seenAt(w)
		claim := c.claim[w.claim]
		did := volume.Own{Pending: w.busy || w.done && !current || c.now.Before(w.next),
			Replaced: claim.UID != "" && claim.UID != w.uid}
		if w.done {
			did.Selected, did.Volume = w.volume == "", w.volume
		}
		return did
	}
	shared := func(name string) bool {
		return len(c.users[subject{aClaim, b.pod.Namespace, name}]) > 1
	}
	taken := func(name string) bool { return c.taken[name] != nil }
	done := true
	steps := volume.Steps(b.pod, b.node, api.WithMarks(c.labels[b.node], c.marksOf(b.node)), own, shared, taken, c)
	if i := slices.IndexFunc(steps, func(s volume.Step) bool { return s.Action == volume.Fail }); i >= 0 {
		// What is on its way for its other claims may tie the pod to this node; it is better known before the pod is placed
		// again.
		if !slices.ContainsFunc(steps, func(s volume.Step) bool {
			return s.Action == volume.Wait &&
				b.works[s.Claim] != nil
		}) {
			c.fail(b, steps[i].Why)
		}
		return
	}
	for _, s := range steps {
		w := b.works[s.Claim]
		switch s.Action {
		case volume.Done:
			continue
		case volume.Select, volume.Keep:
			claim := types.NamespacedName{Namespace: b.pod.Namespace, Name: s.Claim}
			if w == nil {
				w = &work{claim: claim, uid: c.claim[claim].UID}
				b.works[s.Claim] = w
			}
			c.release(w)
			if w.volume = s.Volume; w.volume != "" {
				c.taken[w.volume] = w
			}
			c.write(b, w)
		}
		done = false
	}
	if done {
		b.answered = true
		c.tell(event.VolumesBound{Row: b.row})
	}
}

func (c *Core) fail(b *binding, why string) {
	b.answered = true
	c.tell(event.VolumesBound{Row: b.row, Failed: why})
}

func (c *Core) write(b *binding, w *work) {
	at := c.claimAt[w.claim]
	claim := api.ObjectVersion{Namespace: w.claim.Namespace, Name: w.claim.Name, UID: string(at.uid), Version: at.version}
	id := c.ask(write{b, w, false})
	if w.volume == "" {
		c.out = append(c.out, event.SelectNode{ID: id, Claim: claim, Node: b.node})
		return
	}
	v := c.volumeAt[w.volume]
	c.out = append(c.out, event.KeepVolume{ID: id, Volume: api.ObjectVersion{Name: w.volume, UID: string(v.uid),
		Version: v.version}, Claim: claim})
}

// ask numbers a write.
func (a *bindings) ask(x write) (id uint64) {
	x.busy = true
	a.last++
	a.writes[a.last] = x
	return a.last
}

// written takes the answer to a write. After a conflict the object is looked at again, as the watch shows it then.
func (c *Core) written(o event.VolumeWritten) {
	x, asked := c.writes[o.ID]
	if !asked {
		return
	}
	delete(c.writes, o.ID)
	b, w := x.binding, x.work
	w.busy = false
	switch ok := o.Outcome == event.StatusOK; {
	case x.undo && (ok || o.Outcome == event.StatusGone):
		w.done = false
		c.undo(b)
		return
	case !x.undo && ok:
		w.done, w.at, w.tries, w.next = true, o.Version, 0, time.Time{}
		c.look(b)
		return
	case !x.undo:
		c.release(w)
	}
	w.tries++
	w.next = c.now.Add(min(volumePause<<min(w.tries-1, 8), maxVolumePause))
	if !x.undo && w.tries >= volumeTries && !b.answered && o.Outcome != event.StatusConflict {
		c.fail(b, fmt.Sprintf("claim %s: %s", w.claim.Name, o.Error))
		return
	}
	heap.Push(&c.looks, look{w.next, b.row})
}

// undo takes back what was asked for: a claim that is not bound is not to be provisioned for this node any more.
// Nothing else is: what has a volume keeps it.
func (c *Core) undo(b *binding) {
	open := false
	for _, name := range api.SortedKeys(b.works) {
		w := b.works[name]
		claim := c.claim[w.claim]
		seen, current := c.seenAt(w)
		switch {
		case w.busy || c.now.Before(w.next):
			open = true
		case w.volume != "" || !w.done || w.tries >= volumeTries:
		case !current: // the watch will show it
			open = true
		case claim.UID != w.uid || claim.Selected != b.node: // bound, replaced, or decided by somebody else
		default:
			open = true
			of := api.ObjectVersion{Namespace: w.claim.Namespace, Name: w.claim.Name, UID: string(seen.uid),
				Version: seen.version}
			c.out = append(c.out, event.SelectNode{ID: c.ask(write{b, w, true}), Claim: of})
		}
	}
	if !open {
		c.drop(b)
	}
}
