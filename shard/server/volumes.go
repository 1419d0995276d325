package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/volume"
	"basalt.dev/basalt/shard/event"
)

// bindings carries out BindVolumes: it makes the writes that volume.Steps asks for, and answers when each claim of the pod is bound, or one
// cannot be. What was done is read from the objects, whoever did it, so nothing is kept but what this process wrote and has not seen yet.
// A write names the UID and the version of what it was decided by; the API server decides between shards.
//
// A row is looked at when an object of it changes, and once a second. The lock is that of claims.
type bindings struct {
	rows    map[event.RowID]*binding
	byClaim map[types.NamespacedName]map[*binding]bool
	taken   map[string]*work // volumes in which a claim is being named
	writer  volumeWriter
	ticking bool
}

// volumeWriter makes the writes, and takes the answers.
type volumeWriter interface {
	selectNode(claim kube.Object, node string, done func(version string, err error))
	keepVolume(name kube.Object, claim kube.Object, done func(version string, err error))
	answer(event.VolumesBound)
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

// unseenFor is how long a row waits for its pod, or a claim, to be seen: its home, which has seen them, may be ahead of the watches here.
const unseenFor = 10 * time.Second

func newBindings() bindings {
	return bindings{rows: map[event.RowID]*binding{}, byClaim: map[types.NamespacedName]map[*binding]bool{}, taken: map[string]*work{}}
}

// bindVolumes begins.
func (c *claims) bindVolumes(o event.BindVolumes) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if used := c.uses[types.UID(o.Row.PodUID)]; c.rows[o.Row] != nil || used != nil && used.node != "" {
		c.writer.answer(event.VolumesBound{Row: o.Row, Failed: podGone})
		return
	}
	b := &binding{row: o.Row, node: o.Node, began: time.Now(), works: map[string]*work{}}
	c.rows[o.Row] = b
	c.proceed(b)
	c.tick()
}

const podGone = "the pod is gone, or has a node"

// sees reports whether the pod of a row was seen.
func (c *claims) sees(b *binding) bool {
	if b.pod != nil {
		return true
	}
	w := c.waiting[types.UID(b.row.PodUID)]
	if w == nil {
		return false
	}
	b.pod = w.pod
	for i := range b.pod.Spec.Volumes {
		if name := api.ClaimOf(b.pod, &b.pod.Spec.Volumes[i]); name != "" {
			claim := types.NamespacedName{Namespace: b.pod.Namespace, Name: name}
			b.claims = append(b.claims, claim)
			put(c.byClaim, claim, b, true)
		}
	}
	return true
}

// endVolumes ends a row, answered or not.
func (c *claims) endVolumes(o event.EndVolumes) {
	c.mu.Lock()
	defer c.mu.Unlock()
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

func (c *claims) drop(b *binding) {
	delete(c.rows, b.row)
	for _, claim := range b.claims {
		remove(c.byClaim, claim, b)
	}
	for _, w := range b.works {
		c.release(w)
	}
}

func (c *claims) release(w *work) {
	if c.taken[w.volume] == w {
		delete(c.taken, w.volume)
	}
}

// lookAt looks at the rows of a claim; the lock is held.
func (c *claims) lookAt(claim types.NamespacedName) {
	for b := range c.byClaim[claim] {
		c.look(b)
	}
}

func (c *claims) look(b *binding) {
	if b.ended {
		c.undo(b)
	} else if !b.answered {
		c.proceed(b)
	}
}

// tick looks at all rows once a second, for what no event of their claims tells.
func (c *claims) tick() {
	if c.ticking || len(c.rows) == 0 {
		return
	}
	c.ticking = true
	time.AfterFunc(volumeTick, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ticking = false
		for _, b := range c.rows {
			c.look(b)
		}
		c.tick()
	})
}

// lookLater looks at a row after a pause.
func (c *claims) lookLater(b *binding, pause time.Duration) {
	time.AfterFunc(pause, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.rows[b.row] == b {
			c.look(b)
		}
	})
}

// seenAt returns the object that a work is about, as it was seen last, and whether that is later than what the work has made of it.
func (c *claims) seenAt(w *work) (v version, current bool) {
	v, known := c.claimAt[w.claim]
	if w.volume != "" {
		v, known = c.volumeAt[w.volume]
	}
	return v, !known || w.at == "" || v.version == w.at || api.NewerVersion(v.version, w.at)
}

// proceed makes the next writes of a row, or answers.
func (c *claims) proceed(b *binding) {
	unseen := time.Since(b.began) < unseenFor
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
		return volume.Own{Pending: w.busy || w.done && !current || time.Now().Before(w.next), Selected: w.done && w.volume == "", Volume: map[bool]string{true: w.volume}[w.done],
			Replaced: claim.UID != "" && claim.UID != w.uid}
	}
	shared := func(name string) bool {
		return len(c.users[subject{aClaim, b.pod.Namespace, name}]) > 1
	}
	taken := func(name string) bool { return c.taken[name] != nil }
	done := true
	steps := volume.Steps(b.pod, b.node, api.WithMarks(c.labels[b.node], c.unmigrated(b.node)), own, shared, taken, c)
	if i := slices.IndexFunc(steps, func(s volume.Step) bool { return s.Action == volume.Fail }); i >= 0 {
		// What is on its way for its other claims may tie the pod to this node; it is better known before the pod is placed again.
		if !slices.ContainsFunc(steps, func(s volume.Step) bool { return s.Action == volume.Wait && b.works[s.Claim] != nil }) {
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
		c.writer.answer(event.VolumesBound{Row: b.row})
	}
}

func (c *claims) fail(b *binding, why string) {
	b.answered = true
	c.writer.answer(event.VolumesBound{Row: b.row, Failed: why})
}

func (c *claims) write(b *binding, w *work) {
	w.busy = true
	at := c.claimAt[w.claim]
	claim := kube.Object{Namespace: w.claim.Namespace, Name: w.claim.Name, UID: string(at.uid), Version: at.version}
	if w.volume == "" {
		c.writer.selectNode(claim, b.node, func(version string, err error) { c.written(b, w, version, err) })
		return
	}
	v := c.volumeAt[w.volume]
	c.writer.keepVolume(kube.Object{Name: w.volume, UID: string(v.uid), Version: v.version}, claim, func(version string, err error) { c.written(b, w, version, err) })
}

// written takes the answer to a write. After a conflict the object is looked at again, as the watch shows it then.
func (c *claims) written(b *binding, w *work, version string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.busy = false
	if err == nil {
		w.done, w.at, w.tries, w.next = true, version, 0, time.Time{}
		c.look(b)
		return
	}
	c.release(w)
	w.tries++
	pause := min(volumePause<<min(w.tries-1, 8), maxVolumePause)
	w.next = time.Now().Add(pause)
	if w.tries >= volumeTries && !b.answered && !apierrors.IsConflict(err) {
		c.fail(b, fmt.Sprintf("claim %s: %s", w.claim.Name, err))
		return
	}
	c.lookLater(b, pause+time.Millisecond)
}

// undo takes back what was asked for: a claim that is not bound is not to be provisioned for this node any more. Nothing else is: what has
// a volume keeps it.
func (c *claims) undo(b *binding) {
	open := false
	for _, name := range api.SortedKeys(b.works) {
		w := b.works[name]
		claim := c.claim[w.claim]
		seen, current := c.seenAt(w)
		switch {
		case w.busy || time.Now().Before(w.next):
			open = true
		case w.volume != "" || !w.done || w.tries >= volumeTries:
		case !current: // the watch will show it
			open = true
		case claim.UID != w.uid || claim.Selected != b.node: // bound, replaced, or decided by somebody else
		default:
			open, w.busy = true, true
			c.writer.selectNode(kube.Object{Namespace: w.claim.Namespace, Name: w.claim.Name, UID: string(seen.uid), Version: seen.version}, "", func(version string, err error) {
				c.undone(b, w, err)
			})
		}
	}
	if !open {
		c.drop(b)
	}
}

func (c *claims) undone(b *binding, w *work, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.busy = false
	switch {
	case err == nil || apierrors.IsNotFound(err):
		w.done = false
		c.undo(b)
	default:
		w.tries++
		pause := min(volumePause<<min(w.tries-1, 8), maxVolumePause)
		w.next = time.Now().Add(pause)
		c.lookLater(b, pause+time.Millisecond)
	}
}

// volumeCalls makes the writes of bindings on workers.
type volumeCalls struct{ loop *loop }

func (v volumeCalls) selectNode(claim kube.Object, node string, done func(string, error)) {
	v.loop.volumes.do(claim.Namespace, func(ctx context.Context) {
		version, err := v.loop.clients.SelectNode(ctx, claim, node)
		v.log("claim", claim, err)
		done(version, err)
	})
}

func (v volumeCalls) keepVolume(o, claim kube.Object, done func(string, error)) {
	v.loop.volumes.do(claim.Namespace, func(ctx context.Context) {
		version, err := v.loop.clients.KeepVolume(ctx, o, claim)
		v.log("volume", o, err)
		done(version, err)
	})
}

func (v volumeCalls) log(kind string, o kube.Object, err error) {
	if err != nil {
		v.loop.log.Debug("write not accepted", "what", kind, "object", strings.TrimPrefix(o.Namespace+"/"+o.Name, "/"), "error", err)
	}
}

func (v volumeCalls) answer(ev event.VolumesBound) {
	v.loop.volumes.do("", func(ctx context.Context) { v.loop.post(ctx, ev) })
}
