package bookings

const (
	gangs  = 4
	nodes  = 2
	leaves = 2
	root   = leaves // the index of root among the limits of queues

	grace  = 1 // ticks that evicted pods take to leave
	search = 1 // ticks that a gang may look for nodes

	far  = 255 // never
	none = 0   // no booking: nothing is booked for the first tick
)

// Phases of a gang.
const (
	unborn = iota
	waiting
	granted // charged, and looks for nodes
	running
	closing // evicted: its pods leave
	gone
)

type gang struct {
	phase   uint8
	granted uint8        // the tick of it
	started uint8        // likewise
	heard   uint8        // the coordinator knows when it started
	closed  uint8        // the tick of its eviction
	raised  uint8        // its limit was raised by a tick while it ran
	on      [nodes]uint8 // pods

	start uint8        // S, in the record
	known uint8        // the coordinator counts the booking
	room  [nodes]uint8 // pods that have booked rooms

	promised uint8 // judged: the least S that was ever written, far for none
}

// node is the memory of its shard.
type node struct {
	fresh uint8 // it was restarted, and homes have not repeated what they booked
	knows uint8 // bookings, a bit for each gang
}

// state is all there is. Every field is a byte, so its memory is its canonical encoding.
type state struct {
	now      uint8
	crashes  uint8 // faults that are left
	restarts uint8
	raises   uint8
	gangs    [gangs]gang
	nodes    [nodes]node
}

// Shape is what a gang asks for.
type Shape struct {
	Leaf, Pods, Size uint8
	Limit            uint8 // ticks; 0 for none
}

func (x *Shape) demand() int { return int(x.Pods) * int(x.Size) }

// World is what there is.
type World struct {
	Name    string
	Gangs   []Shape
	Nodes   [nodes]int      // cores
	Queues  [leaves + 1]int // capabilities, root's last
	Horizon uint8           // the last tick
	Born    uint8           // gangs come until then
}

// present reports whether a gang is charged.
func (g *gang) present() bool { return g.phase == granted || g.phase == running || g.phase == closing }

// below reports whether a leaf is a queue, or below it.
func below(leaf uint8, queue int) bool { return queue == root || int(leaf) == queue }
