package order

const (
	shards = 4 // A to D
	pods   = 4
	units  = 3 // gangs
	tries  = 2 // Commits of a gang
	moves  = 2 // versions of a pod that has no node, after the one it was created at
)

// pod is known by the versions of the API server at its changes, 0 for "not yet"; each change of any pod has the next version. Pod
// x is created at version x+1.
type pod struct {
	moved       [moves]uint8
	bound, gone uint8
}

// Phases of a row at the process that writes it. What becomes of the key after that process was fenced does not change them: it
// does not know.
const (
	none     = iota
	asked    // its Commit is on its way
	refused  // and was never written
	prepared // durable, and its Binding may not be sent
	givenUp  // will not be sent
	sent     // its Binding arrives at any later point
	answered // created
	failed   // and was resolved: the pod is not at the row's version any more
)

// row of a pod, of one Commit. Its place, and the points at which it was given up and removed, are revisions of the log.
type row struct{ phase, by, version, place, given, removed uint8 }

// Verdicts on a Commit.
const (
	open = iota
	yes
	no
)

// commit is one try of a home to place a gang.
type commit struct {
	pods    uint8 // the set of those in it
	by      uint8 // home
	many    uint8 // its rows are at several node shards, so that the home judges
	begun   uint8 // the home's position in the log before it was sent
	verdict uint8
}

// Phases of a view.
const (
	ready   = iota
	fresh   // its log has to be read
	halfway // and then the pods have to be listed
	off     // the process is not started yet
)

// shard is a process and its view. Everything else in the view follows from the positions of its watches.
type shard struct {
	phase uint8
	log   uint8 // position of its watch of the log
	read  uint8 // revision at which the log was read; rows removed before are not known
	watch uint8 // version that its watch of pods has reached
	node  uint8 // it knows the node that was created or moved last (Config.NewNode, Config.MovedNode)
}

// state is all there is. Every field is a byte, so its memory is its canonical encoding.
type state struct {
	version uint8 // of the API server
	rev     uint8 // of the log
	fenced  uint8 // Config.Victim has lost its buckets to its heir
	pod     [pods]pod
	row     [pods][tries]row
	tried   [units]uint8
	commit  [units][tries]commit
	shard   [shards]shard
	edits   uint8 // faults left
	deletes uint8
	deaths  uint8
	breaks  uint8
}

// seen returns the last version of a pod that is not above w, 0 if it was created later.
func (s *state) seen(x, w uint8) uint8 {
	last := uint8(0)
	for _, v := range [...]uint8{x + 1, s.pod[x].moved[0], s.pod[x].moved[1], s.pod[x].bound, s.pod[x].gone} {
		if v <= w {
			last = max(last, v)
		}
	}
	return last
}

func reached(at, w uint8) bool { return at != 0 && at <= w }

// free reports whether a pod exists and has no node.
func (s *state) free(x uint8) bool { return s.pod[x].bound == 0 && s.pod[x].gone == 0 }

// accepts reports whether the API server would accept the Binding of a row.
func (s *state) accepts(x uint8, r *row) bool { return s.free(x) && s.seen(x, s.version) == r.version }

// move gives a pod without a node another version.
func (s *state) move(x uint8) {
	s.version++
	if s.pod[x].moved[0] == 0 {
		s.pod[x].moved[0] = s.version
	} else {
		s.pod[x].moved[1] = s.version
	}
}

// standing returns the pods that have a node, and those that ever had one.
func (s *state) standing() (now, ever uint8) {
	for x := range uint8(pods) {
		if s.pod[x].bound != 0 {
			ever |= 1 << x
			if s.pod[x].gone == 0 {
				now |= 1 << x
			}
		}
	}
	return now, ever
}
