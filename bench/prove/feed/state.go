package feed

const (
	pods   = 2
	shards = 2
	parts  = pods // each pod is in a part of its own
	slots  = 2    // readers of a part: that of the table, and that of another

	// Buckets: that of the node, and those of two queues.
	node    = 0
	buckets = 3
)

// pod is a pod as the API server has it: versions of its events, 0 where there was none.
type pod struct{ born, touched, bound, died uint8 }

// intent is a row of the store for a pod.
type intent struct {
	open    uint8 // its Binding may land
	landed  uint8 // it has, and the row is there still
	version uint8 // of the pod, which the Binding names
}

// reader watches one part.
type reader struct {
	at    uint8 // the version that its watch has reached; 0: it does not run
	group uint8 // it has seen that the group moved
	words uint8 // its dictionary, of which a restarted reader has another
}

// link is what a shard has of a part.
type link struct {
	slot    uint8 // 1 and the reader's, 0 for none
	sub     uint8 // the last subscription that the reader has heard,
	n, h, x uint8 // and what it says
	sent    uint8 // the version at which the part's pod was sent; 0: the shard does not have it from this reader
	fresh   uint8 // what the shard knew before is not confirmed yet
	words   uint8 // the dictionary by which the shard reads
	mark    uint8 // the last MARK,
	marked  uint8 // and its subscription
}

// shard is a shard's memory.
type shard struct {
	sub     uint8          // its last subscription,
	n, h, x uint8          // and what it says: the node, queues, pods
	knows   [pods]uint8    // the version at which it knows a pod, 0 for not at all
	misread uint8          // pods that it takes to be elsewhere, a bit for each
	gone    uint8          // pods that it takes to be gone
	rows    uint8          // pods that it counts on the node because of a row
	row     [pods]uint8    // the versions that these name
	charges uint8          // pods whose charges it answers for,
	since   [pods]uint8    // and the versions at which they were there
	served  uint8          // buckets that it serves,
	read    uint8          // and those for which it has read the store
	asked   [buckets]uint8 // how far the API server was then
}

// state is all there is. Every field is a byte, so its memory is its canonical encoding.
type state struct {
	version uint8
	moved   uint8 // the version at which the group went to the second queue
	pods    [pods]pod

	owner   [buckets]uint8
	intents [pods]intent
	charges [pods]uint8 // 1 and the queue to which a pod is charged
	refused [pods]uint8 // the version under which a Binding was refused last

	readers [parts][slots]reader
	links   [shards][parts]link
	shards  [shards]shard

	left Faults // of the world's
}

// Faults and changes that may happen, and how often.
type Faults struct {
	Births, Touches, Deaths uint8
	Groups                  uint8 // the group moves
	Nodes, Queues           uint8 // buckets move
	Restarts                uint8 // of readers
	Switches                uint8 // shards ask another reader
}

// last returns the version of a pod's last event up to a version.
func (p *pod) last(at uint8) (v uint8) {
	for _, of := range [...]uint8{p.born, p.touched, p.bound, p.died} {
		if of <= at {
			v = max(v, of)
		}
	}
	return v
}

// by reports whether an event has happened by a version.
func by(event, at uint8) bool { return event != 0 && event <= at }

// queue returns the queue of a pod, to one who has seen the group move or not.
func (w *World) queue(p int, moved bool) int {
	if w.Grouped[p] && moved {
		return 1
	}
	return 0
}

// wants returns what a shard has to subscribe to.
func (s *state) wants(k int) (n, h, x uint8) {
	for b := range s.owner {
		switch {
		case s.owner[b] != uint8(k):
		case b == node:
			n = 1
		default:
			h |= 1 << b
		}
	}
	return n, h, s.shards[k].rows | s.shards[k].charges
}

// subscribed reports whether a shard has said what it wants.
func (s *state) subscribed(k int) bool {
	h := &s.shards[k]
	n, q, x := s.wants(k)
	return h.n == n && h.h == q && h.x == x
}
