package promised

const (
	gangs = 3
	nodes = 2

	grace  = 1 // ticks that evicted pods take to leave
	search = 1 // ticks that a gang may look for nodes
	change = 1 // ticks until a home has an heir
	lives  = 2 // ticks for which a node shard keeps a room that nobody requests again
	offers = 1 // ticks for which a mandate may be used

	far = 255 // never
)

// Phases of a gang.
const (
	unborn = iota
	waiting
	granted // charged, and looks for nodes, or for its rooms to become free
	running
	closing // evicted: its pods leave
	gone
)

// Steps of a home's work on a mandate.
const (
	idle     = iota
	asking   // HoldRequests are on their way
	claiming // its Claim is
)

// rooms are where pods are to go, and from when on. The number is that of the mandate: no two bookings share one.
type rooms struct {
	number uint8 // 0: none
	start  uint8
	pods   [nodes]uint8
}

// claim is a message that arrives whenever it likes, and again.
type claim struct {
	of    rooms
	term  uint8
	table uint8
}

type gang struct {
	phase   uint8
	granted uint8        // the tick of it
	started uint8        // likewise
	closed  uint8        // the tick of its eviction
	on      [nodes]uint8 // pods

	record  rooms // in the store, until it runs
	mandate uint8 // the coordinator's, in memory: the number that may be used, 0 for none
	until   uint8 // and the last tick of it
	given   uint8
	awaits  uint8 // gangs that have its rooms, as its home said

	dead     uint8 // its home died in this tick, +1; an heir comes in the next one
	step     uint8
	plan     rooms
	table    uint8 // under which it was made
	answered uint8 // nodes that have booked its rooms
	knows    rooms // the booking that its home requests each tick
	claim    claim // the last one that was sent
	late     rooms // a request of a former booking, which arrives whenever it likes

	promised uint8 // judged: the least S that was ever in the record, far for none
}

// booked is what a node shard has of a gang.
type booked struct {
	number, start, pods uint8
	until               uint8 // the last tick
}

// node is the memory of its shard.
type node struct {
	down  uint8
	said  [gangs]booked // that are recorded
	asked [gangs]booked // that are not, as far as it knows
}

// faults that are left.
type faults struct{ crash, home, restart, process, late uint8 }

// state is all there is. Every field is a byte, so its memory is its canonical encoding.
type state struct {
	now   uint8
	term  uint8 // of the coordinator
	table uint8 // its epoch: it grows when the shard of a node is another
	left  faults
	gangs [gangs]gang
	nodes [nodes]node
}

// Shape is what a gang asks for.
type Shape struct {
	Pods  uint8
	Limit uint8 // ticks; 0 for none
	Books bool  // it may be booked
}

// World is what there is. The first gang runs from the start.
type World struct {
	Name    string
	Gangs   []Shape
	Room    [nodes]int // pods
	Quota   int
	Horizon uint8 // the last tick
	Born    uint8 // gangs come until then
	Offers  uint8 // mandates of a gang
}

// present reports whether a gang is charged.
func (g *gang) present() bool { return g.phase == granted || g.phase == running || g.phase == closing }

// isBooked reports whether the record has a booking.
func (g *gang) isBooked() bool { return g.record.number != 0 }
