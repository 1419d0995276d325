package claims

const (
	gangs   = 4
	nodes   = 2
	terms   = 2 // of the coordinator
	serials = 3 // mandates that a gang is given in a term
	homes   = 2 // a home and its heir
)

// States of a reservation record.
const (
	absent = iota
	open
	closing // reason Yield
)

// Phases of a gang at its home.
const (
	asking     = iota
	planning   // has a mandate, and asks node shards for rooms and promises
	claiming   // all were answered, and the Claim is on its way
	claimed    // knows that its claim is durable
	granted    // knows its reservation, and asks for rooms
	committing // rows are asked for
	done       // bound
	leaving    // deleted: everything is withdrawn, and Unreserve is on its way
	changing   // likewise, and asks again under a new attempt
	gone
	fresh // an heir that has not taken over
)

// Rows of a pod at the shard of its node.
const (
	none     = iota
	asked    // the Commit is on its way, and names the record's present revision
	stale    // and names an earlier one
	prepared // durable
	sent     // its Binding arrives at any later point
)

// Pods at the API server.
const (
	nowhere = iota // the gang has none on this node
	pending
	bound
	ended // deleted or finished
)

// Answers to HoldRequests, as the home knows them.
const (
	unknown = iota
	promised
	held
)

type pod struct {
	kube, life uint8 // life: pods that are made again have another UID
	attempt    uint8 // of the reservation that it was bound under
	row        uint8
}

// gang is all that is about one of them.
type gang struct {
	record, attempt, demand uint8 // in the store
	claim, victims, second  uint8 // claim stands; whom it names, and which of them under attempt 2
	awaits                  uint8 // gangs whose pods leave rooms to it; it stays when the claim is granted

	mandate, last uint8 // the coordinator's, in memory: the serial that may be used, and the last that was given

	phase, try uint8 // the home's: its attempt
	current    uint8 // it knows the revision of its record
	term, serial,
	may, mayTwo uint8 // its mandate: the candidates, and which of them under attempt 2
	plan    uint8                 // victims
	rooms   uint8                 // gangs whose pods have the rooms that were promised
	room    [nodes]uint8          // answers
	claims  [terms][serials]uint8 // Claims that were ever sent: victims
	waitsOn [terms][serials]uint8 // and the rest of them
	renewed uint8                 // the home was replaced
	closed  [homes]uint8          // the attempt that each home knows to be closed
	read    [homes]uint8          // pods of which each has read the record, and whose deletion is on its way
	pods    [nodes]pod

	yieldsTo uint8 // judged: for whom it was closed, +1
	ended    uint8 // judged: attempts that were given back, one bit each
	cut      uint8 // judged: something happened for which a claimant may have closed others in vain
}

// node is the memory of its shard.
type node struct {
	occupant uint8 // gang of the row or bound pod that it counts, +1
	hold     uint8 // gang, +1
	promise  uint8 // gang, +1
	told     uint8 // judged: gangs that were answered "promised" by this incarnation
}

// faults that are left.
type faults struct{ crash, heirC, heirV, restart, timeout, cancel, change, edit, cut, finish, lapse, late uint8 }

// state is all there is. Every field is a byte, so its memory is its canonical encoding.
type state struct {
	term   uint8
	blind  uint8 // claims that this coordinator does not know (ClaimForgotten)
	doomed uint8 // gangs that it closes without a claim (DroppedIsClosed)
	limit  uint8
	unfair uint8 // limits were edited: no claim is legal any more
	left   faults
	gangs  [gangs]gang
	nodes  [nodes]node
}

// put is a write of a gang's record: what named its former revision is refused from now on.
func (s *state) put(g uint8) {
	s.gangs[g].current = 0
	for n := range s.gangs[g].pods {
		if p := &s.gangs[g].pods[n]; p.row == asked {
			p.row = stale
		}
	}
}

// names reports whether a claim names the attempt of a gang.
func (c *gang) names(v, attempt uint8) bool {
	return c.claim != 0 && c.victims>>v&1 != 0 && c.second>>v&1+1 == attempt
}

// claimedBy returns a gang whose claim names the present attempt of a gang, +1; those in except are left out.
func (s *state) claimedBy(v, except uint8) uint8 {
	for c := range uint8(gangs) {
		if except>>c&1 == 0 && s.gangs[v].record != absent && s.gangs[c].names(v, s.gangs[v].attempt) {
			return c + 1
		}
	}
	return 0
}

// charged is what all reservations are charged.
func (s *state) charged() (sum int) {
	for g := range s.gangs {
		sum += int(s.gangs[g].demand)
	}
	return sum
}

// virtual is the state that all decided moves lead to: charges, minus what is yielding, plus what is promised.
func (m *machine) virtual(s *state, blind uint8) (sum int) {
	for g := range uint8(gangs) {
		is := &s.gangs[g]
		yields := s.claimedBy(g, blind) != 0 || is.record == closing && !m.weak.Has(SparedIsForgotten)
		if !yields {
			sum += int(is.demand)
		}
		if is.claim != 0 && blind>>g&1 == 0 {
			sum += int(m.demand[g] - is.demand)
		}
	}
	return sum
}

// wants reports whether the home of a gang renews its holds and promises.
func (g *gang) wants() bool {
	return g.phase >= planning && g.phase <= committing || g.phase == fresh
}

func (g *gang) boundPods() (n uint8) {
	for _, p := range g.pods {
		if p.kube == bound {
			n++
		}
	}
	return n
}

// idle reports whether nothing of the gang may be bound any more.
func (g *gang) idle() bool {
	for _, p := range g.pods {
		if p.row != none && p.row != stale {
			return false
		}
	}
	return true
}
