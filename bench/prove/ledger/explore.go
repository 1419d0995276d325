package ledger

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Table says who owns what. Shards are 0 (A), 1 (B) and 2 (C).
type Table struct {
	Home    [units]uint8 // of each unit's queue
	Ledger  uint8
	Members uint8 // one bit for each shard
	Fresh   uint8 // members that are another incarnation than in the table before: their memory is lost
}

func (t Table) String() string {
	var members, fresh string
	for i := range uint8(shards) {
		if t.Members&(1<<i) != 0 {
			members += letter(i)
		}
		if t.Fresh&(1<<i) != 0 {
			fresh += letter(i)
		}
	}
	out := fmt.Sprintf("members %s, homes %s and %s, ledger %s", members, letter(t.Home[0]), letter(t.Home[1]), letter(t.Ledger))
	if fresh != "" {
		out += ", restarted " + fresh
	}
	return out
}

// nobody owns a queue whose home is dead and has no heir yet.
const nobody = 0xff

func letter(i uint8) string {
	if i == nobody {
		return "nobody"
	}
	return string(rune('A' + i))
}

func (t *Table) orphans() bool { return slices.Contains(t.Home[:], nobody) }

// Pattern is who owns what before and after a change of the table, and which pods there are.
type Pattern struct {
	Name    string
	First   Table
	Next    []Table
	Late    bool // the pod with the term is created at any point, rather than before all else
	Both    bool // both pods carry the term: an exclusive key, or two gangs that both want to be the first of an affinity
	Support bool // a gang l1, l2 over two node shards, and f, which needs one of its pods beside it; else p, which carries a term that matches q
}

// Config is what is explored; a result is complete for it.
type Config struct {
	Pattern  Pattern
	Weak     []Rule // rules that are not kept
	Changes  uint8  // of the table, each to any of Pattern.Next; at most 2
	Attempts uint8  // of a home in each epoch; 1 or 2
	Edits    uint8  // Bindings that are refused because somebody edited the pod
	Deletes  uint8  // of pods
	Lost     uint8  // answers of members that are lost, and given again
	Abandons uint8  // tickets that a home returns unused
	Kept     bool   // a ledger that keeps its bucket keeps its counts, and takes the shortcut: a question to the model
	OnlyC2   bool   // judge nothing else, to find the harm rather than its cause
	Exact    bool   // compare states, not their hashes
	Limit    int    // give up after so many states; 0 for never
	Stop     func() bool
}

func (cfg Config) String() string {
	out := fmt.Sprintf("%s, changes %d", cfg.Pattern.Name, cfg.Changes)
	if cfg.Changes > 0 && len(cfg.Pattern.Next) == 1 {
		out += fmt.Sprintf(" (%s)", cfg.Pattern.Next[0])
	}
	for _, o := range []struct {
		on   bool
		name string
	}{{cfg.Pattern.Late, "the term comes late"}, {cfg.Pattern.Both, "both carry it"}, {cfg.Kept, "counts are kept"}} {
		if o.on {
			out += ", " + o.name
		}
	}
	return out + fmt.Sprintf(", attempts %d, edits %d, deletes %d, lost %d, abandons %d", cfg.Attempts, cfg.Edits, cfg.Deletes, cfg.Lost, cfg.Abandons)
}

// Result of an exploration.
type Result struct {
	States, Transitions, Depth, Ends int
	Complete                         bool
	Violation                        string
	Trace                            []string // steps that lead to it, the shortest
	Took                             time.Duration
}

func (r Result) String() string {
	out := fmt.Sprintf("%d states, %d transitions, depth %d, %d ends, %s", r.States, r.Transitions, r.Depth, r.Ends, r.Took.Round(time.Millisecond))
	switch {
	case r.Violation != "":
		out += ": " + r.Violation
	case r.Complete:
		out += ": exhausted"
	default:
		out += ": not exhausted"
	}
	return out
}

// Run explores breadth first, until a violation, the limit, or the end. It stores a hash of 64 bits of each state: with ten million
// states, that any two share one has a probability of 3 in a million. Each state's first step is kept for the trace.
func Run(cfg Config, now func() time.Time) Result {
	type link struct {
		parent uint32
		step   step
	}
	began := now()
	m := &machine{Config: cfg, weak: weak(cfg.Weak), tables: append([]Table{cfg.Pattern.First}, cfg.Pattern.Next...)}
	first := m.begin()
	var (
		r     Result
		links = []link{{}}
		known = map[uint64]struct{}{xxhash.Sum64(first.bytes()): {}}
		exact = map[state]struct{}{first: {}}
		layer = []state{first}
		base  = uint32(0) // of the layer in links
		at    uint32
		any   bool
		next  []state
	)
	visit := func(st step, n *state, violation string) {
		any = true
		if r.Violation != "" {
			return
		}
		r.Transitions++
		if cfg.Exact {
			if _, is := exact[*n]; is && violation == "" {
				return
			}
			exact[*n] = struct{}{}
		} else {
			h := xxhash.Sum64(n.bytes())
			if _, is := known[h]; is && violation == "" {
				return
			}
			known[h] = struct{}{}
		}
		links = append(links, link{at, st})
		next = append(next, *n)
		r.Violation = violation
	}
	for len(layer) > 0 && r.Violation == "" && (cfg.Limit == 0 || len(links) < cfg.Limit) && (cfg.Stop == nil || !cfg.Stop()) {
		start := uint32(len(links))
		for k := range layer {
			at, any = base+uint32(k), false
			m.next(&layer[k], visit)
			if !any {
				r.Ends++
				if v := m.judgeEnd(&layer[k]); v != "" && !cfg.OnlyC2 && r.Violation == "" {
					r.Violation = v
					links = append(links, links[at])
				}
			}
			if r.Violation != "" {
				break
			}
		}
		if r.Violation == "" {
			layer, next, base = next, nil, start
			r.Depth++
		}
	}
	r.States, r.Complete = len(links), len(layer) == 0
	if r.Violation != "" {
		var path []step
		for k := uint32(len(links) - 1); k != 0; k = links[k].parent {
			path = append(path, links[k].step)
		}
		slices.Reverse(path)
		r.Trace, r.Complete = m.trace(path), false
	}
	r.Took = now().Sub(began)
	return r
}

// begin returns the first state: every shard has seen the first table and all pods that exist.
func (m *machine) begin() state {
	s := state{epoch: 1, edits: m.Edits, deletes: m.Deletes, lost: m.Lost, abandons: m.Abandons}
	for x := range m.podCount() {
		if !m.Pattern.Late || !m.carries(m.unitOf(x)) {
			s.pod[x].made = 1
			s.version = 1
		}
	}
	for i := range uint8(shards) {
		if m.tables[0].Members&(1<<i) != 0 {
			s.shard[i] = shard{epoch: 1, watch: s.version}
			if m.tables[0].Ledger == i {
				s.shard[i].book.phase = listing
			}
		}
	}
	return s
}

// trace says a path in words.
func (m *machine) trace(path []step) []string {
	s := m.begin()
	var out []string
	for k, st := range path {
		var to state
		m.next(&s, func(is step, n *state, _ string) {
			if is == st {
				to = *n
			}
		})
		out = append(out, fmt.Sprintf("%2d  %s", k+1, m.say(st, &s, &to)))
		s = to
	}
	return out
}

func (m *machine) name(x uint8) string {
	if m.Pattern.Support {
		return [...]string{"l1", "l2", "f"}[x]
	}
	return [...]string{"p", "q"}[x]
}

func (m *machine) unit(u uint8) string {
	var names []string
	for _, x := range m.podsOf(u) {
		names = append(names, m.name(x))
	}
	return strings.Join(names, "+")
}

// unitsIn says which units are in a set.
func (m *machine) unitsIn(set uint8) string {
	var names []string
	for u := range uint8(units) {
		if set&(1<<u) != 0 {
			names = append(names, m.unit(u))
		}
	}
	if names == nil {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

// say describes a step.
func (m *machine) say(st step, s, n *state) string {
	i, x := letter(st.i), st.x
	who := ""
	switch st.kind {
	case make_, delete_, carryOut, refuse, bindArrives, giveUp, bindPod, settle, edit:
		who = m.name(x)
	case ask, commitPlain, hearTicket, commitTicketed, abandon, hearReply, hearBad, hearBound, hearBinding, withdraw, freeEarly, timeOut:
		who = m.unit(x)
	case grant, takeTicket, takeDone, takeSure:
		who = fmt.Sprintf("%s (serial %d)", m.unit(x&1), x>>1)
	}
	switch st.kind {
	case make_:
		return fmt.Sprintf("API server: %s is created", who)
	case delete_:
		return fmt.Sprintf("API server: %s is deleted", who)
	case change:
		return fmt.Sprintf("control store: table %d: %s", n.epoch, m.tables[x])
	case carryOut:
		return fmt.Sprintf("control store: row of %s under table %d", who, s.commit[x].epoch)
	case refuse:
		return fmt.Sprintf("node shard: Commit of %s is refused", who)
	case bindArrives:
		return fmt.Sprintf("node shard: Bind of %s arrives", who)
	case giveUp:
		return fmt.Sprintf("node shard: %s is prepared for too long, and given up", who)
	case bindPod:
		return fmt.Sprintf("API server: %s is bound (version %d)", who, n.version)
	case settle:
		return fmt.Sprintf("node shard: row of %s is settled", who)
	case edit:
		return fmt.Sprintf("API server: %s was edited, its Binding is refused, and its row settled", who)
	case see:
		return fmt.Sprintf("%s: sees table %d", i, x)
	case readRows:
		return fmt.Sprintf("%s: as the heir of a queue reads the rows", i)
	case list:
		return fmt.Sprintf("%s: as the heir of a queue lists the pods (version %d)", i, n.version)
	case watchStep:
		return fmt.Sprintf("%s: its watch shows version %d", i, n.shard[st.i].watch)
	case ask:
		return fmt.Sprintf("%s: Ticket{%s, serial %d, table %d}", i, who, n.shard[st.i].rec[x].serial, n.shard[st.i].epoch)
	case commitPlain:
		return fmt.Sprintf("%s: Commit{%s, table %d} without a ticket: knows no group", i, who, n.shard[st.i].epoch)
	case hearTicket:
		return fmt.Sprintf("%s: hears Ticketed{%s}", i, who)
	case commitTicketed:
		return fmt.Sprintf("%s: Commit{%s, table %d} with the ticket of table %d", i, who, n.shard[st.i].epoch, s.shard[st.i].rec[x].epoch)
	case abandon:
		return fmt.Sprintf("%s: TicketDone{freed %s}: gives up", i, who)
	case hearReply:
		if n.shard[st.i].rec[x].phase == placed {
			return fmt.Sprintf("%s: hears that the row of %s is written", i, who)
		}
		return fmt.Sprintf("%s: hears that the Commit of %s is refused: TicketDone{freed}", i, who)
	case hearBad:
		return fmt.Sprintf("%s: hears that the row of %s was given up: TicketDone{freed}", i, who)
	case hearBound:
		return fmt.Sprintf("%s: a message says that %s is bound", i, who)
	case hearBinding:
		return fmt.Sprintf("%s: hears that Bind of %s has arrived: TicketDone{decided}", i, who)
	case withdraw:
		return fmt.Sprintf("%s: as the heir withdraws %s", i, who)
	case freeEarly:
		return fmt.Sprintf("%s: TicketDone{freed %s} while its Commit is on the way", i, who)
	case answerRegister:
		a := n.acks[n.shard[st.i].epoch-1][st.i]
		return fmt.Sprintf("%s: Registered{table %d, open %s, watch %d}", i, n.shard[st.i].epoch, m.unitsIn(a.open), a.watch)
	case loseAnswer:
		return fmt.Sprintf("network: Registered of %s is lost", i)
	case ledgerList:
		return fmt.Sprintf("%s: as the ledger of table %d lists the pods (version %d)", i, n.shard[st.i].epoch, n.version)
	case learn:
		return fmt.Sprintf("%s: as the ledger learns the group, under a standing table", i)
	case takeAnswer:
		return fmt.Sprintf("%s: the ledger takes the answer of %s", i, letter(x))
	case ledgerRead:
		return fmt.Sprintf("%s: the ledger reads the rows, its watch has to reach version %d", i, n.shard[st.i].book.target)
	case grant:
		return fmt.Sprintf("%s: the ledger grants %s under table %d", i, who, n.shard[st.i].epoch)
	case takeTicket:
		return fmt.Sprintf("%s: the ledger hears Ticket{%s}: what it had before is over", i, who)
	case takeDone:
		return fmt.Sprintf("%s: the ledger hears TicketDone{freed %s}", i, who)
	case takeSure:
		return fmt.Sprintf("%s: the ledger hears TicketDone{decided %s}", i, who)
	case timeOut:
		return fmt.Sprintf("%s: the ledger lets the ticket of %s time out", i, who)
	}
	return "?"
}
