package ledger

import "unsafe"

const (
	shards = 3
	pods   = 3
	units  = 2 // gangs
	epochs = 3 // tables: the first one and two changes
)

// pod is known by the versions of the API server at its changes; each change of any pod has the next one, and 0 is "not yet".
type pod struct{ made, bound, gone uint8 }

// Row of a pod in the control store.
const (
	noRow    = iota
	prepared // of a gang of which not every pod has a row yet
	binding  // its Binding may be sent
)

// Commit of a pod, on its way to the node shard and back.
const (
	noCommit = iota
	inFlight
	landed
	refused
)

// Phases of a unit at a home.
const (
	idle = iota
	asked
	ticketed
	sent
	placed // the home knows of its row: it was told so or read it
	over   // the home's own watch has shown that it is bound or gone
)

// Phases of a home that gains queues.
const (
	ready = iota
	mustRead
	mustList
)

// Phases of a ledger that gains its bucket.
const (
	notOwner = iota
	listing
	listed
)

// Entry of a unit at a ledger.
const (
	free    = iota
	counted // from a row or an answer
	granted // by ticket
)

// commit is the one commit of a pod that can still take effect: one of an older table is refused whenever it arrives.
type commit struct{ phase, by, epoch, serial uint8 }

// record is what a home knows of a unit. A serial counts the attempts within an epoch.
type record struct {
	phase, epoch, serial uint8
	last                 uint8 // serial used last in the epoch of the home
	told                 uint8 // a message said that it is bound
}

// answer is Registered.
type answer struct {
	given, open, watch uint8
	serials            [units]uint8
}

// book is a ledger at a shard.
type book struct {
	phase  uint8
	full   uint8 // the group has to be read in (a takeover), rather than taken in by the shortcut
	known  uint8 // it knows the group, and has sent Register
	acks   uint8
	read   uint8
	target uint8 // its watch has to reach this version
	entry  [units]uint8
	serial [units]uint8 // highest of the unit
	sure   uint8        // units whose pods may be counted as support
}

// shard is a process.
type shard struct {
	epoch  uint8 // table that it has seen; 0 if it is not a member yet
	watch  uint8 // version that its pod watch has reached
	gain   uint8
	gained uint8 // units
	group  uint8 // as a home it takes tickets for pods that match the group
	rec    [units]record
	book   book
}

// state is all there is. Every field is a byte, so its memory is its canonical encoding.
type state struct {
	version  uint8
	pod      [pods]pod
	row      [pods]uint8
	rowBy    [pods]commit // epoch and serial only
	commit   [pods]commit
	bind     [pods]uint8 // Bind of a gang is on its way
	bad      [pods]uint8 // its row was given up, and its home has not heard so
	epoch    uint8
	table    [epochs]uint8 // of each epoch: index into the pattern's tables
	shard    [shards]shard
	ticket   [units]uint8 // messages sent, one bit for each epoch and serial: they may arrive any number of times, at any later point
	answer   [units]uint8
	done     [units]uint8
	sure     [units]uint8
	register uint8 // one bit for each epoch
	acks     [epochs][shards]answer
	edits    uint8 // faults left
	deletes  uint8
	lost     uint8
	abandons uint8
}

func (s *state) bytes() []byte { return (*[unsafe.Sizeof(state{})]byte)(unsafe.Pointer(s))[:] }

// bit of an epoch and a serial.
func bit(epoch, serial uint8) uint8 { return 1 << ((epoch-1)*2 + serial - 1) }
