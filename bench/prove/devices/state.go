package devices

const (
	pods     = 2 // each with a claim of its own
	nodes    = 2
	shards   = 2
	attempts = 2 // rows of a pod
	versions = 16
)

// pod is a pod as the API server has it. Its claim has the same number.
type pod struct{ version, uid, gone, bound uint8 }

// claim is a ResourceClaim as the API server has it.
type claim struct {
	version  uint8
	taken    uint8               // the device is allocated to it,
	reserved uint8               // and it is reserved for the pod of this UID
	history  [versions / 8]uint8 // the versions at which the device was allocated
}

// row is an intent, as it is in the log and as its owner knows it.
type row struct {
	place   uint8         // in the log, 0 for none
	over    uint8         // the place at which it was given up,
	removed uint8         // or its key was removed
	at      uint8         // the version of the claim that it names,
	pod     uint8         // and of the pod,
	uid     uint8         // whose UID it names, too
	by      uint8         // the shard that wrote it,
	stage   uint8         // and how far that is; nothing: it does not know of it any more
	status  uint8         // what is on its way of the write of the allocation,
	sent    uint8         // and the version that this names
	bind    uint8         // the Binding is on its way
	sure    [shards]uint8 // shards that make sure what became of it, and of what they are
	freed   uint8         // shards that saw the claim freed since they saw the row, a bit for each
}

// Stages of a row.
const (
	nothing uint8 = iota
	written
	judged
	allocates
	binds
	undone
)

// What is on its way of a status.
const (
	none uint8 = iota
	onItsWay
	refused // the answer is
)

// What a shard is sure of.
const (
	ofNothing uint8 = 1 << iota // it makes sure
	ofPod
	ofClaim
)

// shard is a shard's memory.
type shard struct {
	began          uint8       // the place at which it read the log: of what was removed before, it knows nothing
	log            uint8       // the place up to which it has seen the log,
	claims         [pods]uint8 // and the versions of claims
	read           uint8       // nodes for which it has read the log,
	listed, served uint8       // then the claims; and those whose devices it gives away
}

// state is all there is. Every field is a byte, so its memory is its canonical encoding.
type state struct {
	log    uint8
	owner  [nodes]uint8
	pods   [pods]pod
	claims [pods]claim
	rows   [pods][attempts]row
	shards [shards]shard

	left Faults // of the world's
}

// Faults and changes that may happen, and how often.
type Faults struct {
	Deaths, Agains uint8 // pods end, and others come with their claims
	Moves, Crashes uint8 // of nodes, of shards
	Undos          uint8 // gangs are undone
	Losses         uint8 // of what is on its way
}

// live reports whether a row is in the store.
func (r *row) live() bool { return r.place != 0 && r.over == 0 && r.removed == 0 }

// allocate gives a claim its next version, in which the device is allocated to it for a pod. free gives it another, in
// which it is not.
func (c *claim) allocate(uid uint8) {
	c.free()
	c.taken, c.reserved = 1, uid
	c.history[c.version/8] |= 1 << (c.version % 8)
}

func (c *claim) free() {
	c.version++
	c.taken, c.reserved = 0, 0
}

// belongs reports whether the device is allocated to a claim for a pod.
func (c *claim) belongs(uid uint8) bool { return c.taken != 0 && c.reserved == uid }

// runs reports whether a pod is bound, and has not ended.
func (p *pod) runs() bool { return p.bound != 0 && p.gone == 0 }

// had reports whether the device was allocated to a claim at a version.
func (c *claim) had(version uint8) bool { return c.history[version/8]>>(version%8)&1 != 0 }

// used reports whether a shard takes the device to be used, by others than a pod that is placed (p), or by rows with
// earlier places than the row that is judged and by claims of others.
func (m *machine) used(s *state, k, p int, before uint8) bool {
	h := &s.shards[k]
	for x := range s.rows {
		for i := range s.rows[x] {
			r := &s.rows[x][i]
			switch seen := h.claims[x]; {
			case r.place == 0 || m.weak.Has(RowWithoutDevices):
			case before != 0 && r.place >= before:
			case r.place > h.log && (int(r.by) != k || r.stage == nothing): // it has not seen it
			case r.over != 0 && r.over <= h.log || r.removed != 0 && r.removed <= h.began:
			case r.removed != 0 && r.removed <= h.log && m.weak.Has(EndsWithKey):
			case seen > r.at || seen == r.at && m.weak.Has(SameVersionEnds): // the claim counts
			case r.freed>>k&1 != 0 && m.weak.Has(EarlierAllocationEnds):
			default:
				return true
			}
		}
		if x != p && s.claims[x].had(h.claims[x]) && !m.weak.Has(ClaimsUncounted) {
			return true
		}
	}
	return false
}
