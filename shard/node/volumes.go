package node

import (
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// Volumes that are bound once the node of their pod is decided (WaitForFirstConsumer). A Binding can be refused as long as it is not
// sent, a volume that was made cannot be taken back; so the volumes of a row are bound when its whole gang is prepared, and before any
// pod of the gang is bound. The home shard says when (Prepare), and this shard tells it when all of a commit's rows are ready, and which
// of them have failed (Ready). Invariants:
//   - No Binding is sent for a row whose volumes are not bound.
//   - The shell is asked once for a row (BindVolumes), and told once that it ends (EndVolumes), so that it forgets the row, and
//     undoes what it can where the volume did not come.
//   - A row that has failed keeps its room until Withdraw, Bind or PreparedLimit gives it up. So the home shard hears why before it hears
//     that the pod is free.

// binding is how far the volumes of a row are.
type binding uint8

const (
	noVolumes    binding = iota // none to be bound
	volumesWait                 // for Prepare
	volumesAsked                // the shell binds them
	volumesReady                // all of them are bound
	volumesFailed
)

// open reports whether Bind would come too early.
func (b binding) open() bool { return b == volumesWait || b == volumesAsked }

// prepareRequest has the volumes of a commit's pods bound, and prolongs the time for which it stays prepared.
func (c *Core) prepareRequest(from api.Incarnation, m *wire.Prepare) {
	if !c.ready || m.GetGangUid() == "" {
		return
	}
	mm := c.commitFor(from, m.GetGangUid(), m.GetSerial())
	if mm == nil || mm.reply == nil { // not durable: it is asked again
		return
	}
	if !mm.prepared() || mm.serial <= mm.gang.withdrawn || mm.bind {
		c.resendResults(mm.gang, func(r result) bool { return r.serial == mm.serial })
		return
	}
	mm.deadline = c.now.Add(c.cfg.PreparedLimit)
	c.dropUnbindable(mm)
	for _, r := range mm.rows {
		if r.phase == prepared && r.volumes == volumesWait {
			r.volumes, r.asked = volumesAsked, c.now
			c.emit(event.BindVolumes{Row: r.id(), Namespace: r.ns, Name: r.name, Node: r.node})
		}
	}
	c.sayReady(mm)
	c.resendResults(mm.gang, func(r result) bool { return r.serial == mm.serial })
}

// volumesBound takes what the shell says of a row.
func (c *Core) volumesBound(ev event.VolumesBound) {
	k := c.intents.keys[keyID{ev.Row.Incarnation, ev.Row.N}]
	if k == nil {
		return
	}
	r := k.rows[ev.Row.PodUID]
	if r == nil || r.phase != prepared || r.volumes != volumesAsked || r.commit == nil {
		return
	}
	r.volumes = volumesReady
	if ev.Failed != "" {
		r.volumes, r.commit.failed = volumesFailed, append(r.commit.failed, &wire.VolumeFailure{PodUid: r.uid, Why: api.Shorten(ev.Failed, maxWhy)})
	}
	c.sayReady(r.commit)
}

// maxWhy is how long the words about a row may be.
const maxWhy = 300

// sayReady tells the home shard once the volumes of each row are bound or have failed, or the row is not prepared any more.
func (c *Core) sayReady(m *commit) {
	failed := slices.Clone(m.failed)
	for _, r := range m.rows {
		switch {
		case r.volumes == volumesFailed: // is among them
		case r.phase != prepared:
			failed = append(failed, &wire.VolumeFailure{PodUid: r.uid, Why: "its node or the pod is gone, or nobody asked for so long"})
		case r.volumes.open():
			return
		}
	}
	c.send(m.gang, &wire.Envelope{Body: &wire.Envelope_Ready{Ready: &wire.Ready{GangUid: m.gang.ref.GetUid(), Serial: m.serial, Failed: failed}}})
}

// dropUnready gives up the rows of a commit whose volumes are not bound when its other rows are bound.
func (c *Core) dropUnready(m *commit) {
	c.dropWhere(m, func(r *row) bool { return r.volumes.open() || r.volumes == volumesFailed })
}

// endVolumes ends what the shell does for a row that leaves the phase prepared. What asks for a volume is taken back where a volume has
// failed or is long in coming, or the pod is gone. Otherwise the claim keeps its node: a provisioner that has begun does not stop, and if
// the volume came after the pod was placed elsewhere, two pods of a gang could be tied to a node that has room for one of them.
func (c *Core) endVolumes(r *row, to phase) {
	if r.phase == prepared && r.volumes > volumesWait {
		late := r.volumes == volumesAsked && !c.now.Before(r.asked.Add(volumesLate))
		c.emit(event.EndVolumes{Row: r.id(), Undo: to == done || to != sent && (late || r.volumes == volumesFailed)})
	}
}

// volumesLate is how long a volume may take before a claim that is given up loses its node.
const volumesLate = 5 * time.Minute
