package protocol_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/model"
)

const keys = protocol.Keys("")

// choices enumerates every way through a test: pick returns one of n, and next moves on to a way that was not taken yet.
type choices struct {
	taken, of []int
	at        int
}

func (c *choices) pick(n int) int {
	if c.at == len(c.taken) {
		c.taken, c.of = append(c.taken, 0), append(c.of, n)
	}
	c.at++
	return c.taken[c.at-1]
}

func (c *choices) next() bool {
	c.at = 0
	for len(c.taken) > 0 {
		last := len(c.taken) - 1
		if c.taken[last]++; c.taken[last] < c.of[last] {
			return true
		}
		c.taken, c.of = c.taken[:last], c.of[:last]
	}
	return false
}

// network is between a machine and the model of etcd. As the choices have it, a transaction is answered, or lands and its
// answer is lost, or is late: it lands at any later time, or when flush is called, or never.
type network struct {
	t      *testing.T
	c      *choices
	etcd   *model.Store[proto.Message]
	late   []protocol.Txn
	losses int      // how many may still be lost
	others []func() // what others do, each once, between any two transactions
}

func (n *network) carry(t protocol.Txn) protocol.Result {
	r, err := model.Carry(n.etcd, t)
	if err != nil {
		n.t.Fatal(err)
	}
	return r
}

func (n *network) flush() {
	for _, t := range n.late {
		n.carry(t)
	}
	n.late = nil
}

func (n *network) drive(m protocol.Machine) {
	for steps := 0; ; steps++ {
		if steps == 100 {
			n.t.Fatalf("%T does not end: choices %v", m, n.c.taken)
		}
		t, more := m.Next()
		if !more {
			return
		}
		if len(n.others) > 0 && n.c.pick(2) == 1 {
			n.others[0]()
			n.others = n.others[1:]
		}
		if len(n.late) > 0 && n.c.pick(2) == 1 {
			n.flush()
		}
		fate := 0
		if n.losses > 0 {
			fate = n.c.pick(3)
		}
		switch fate {
		case 0:
			m.Answered(n.carry(t))
			continue
		case 1:
			n.carry(t)
		case 2:
			n.late = append(n.late, t)
		}
		n.losses--
		m.Lost()
	}
}

// everyWay runs a test with every choice.
func everyWay(t *testing.T, atLeast int, test func(n *network)) {
	t.Helper()
	c, ways := &choices{}, 0
	for more := true; more; more = c.next() {
		ways++
		n := &network{t: t, c: c, etcd: model.NewStore(proto.Equal), losses: 2}
		test(n)
		if t.Failed() {
			t.Fatalf("choices %v", c.taken)
		}
	}
	if ways < atLeast {
		t.Errorf("%d ways, want at least %d", ways, atLeast)
	}
}

// put writes a key without a fence.
func (n *network) put(key string, m proto.Message, lease int64) int64 {
	v, err := protocol.Encode(key, m)
	if err != nil {
		n.t.Fatal(err)
	}
	return n.carry(protocol.Txn{If: []protocol.Compare{}, Then: []protocol.Op{{Kind: protocol.Put, Key: key, Value: v, Lease: lease}}}).Revision
}

func (n *network) join(who api.Incarnation) *protocol.Session {
	const lease = 7
	if err := n.etcd.Grant(lease); err != nil {
		n.t.Fatal(err)
	}
	value, err := protocol.Encode(keys.Shard(who), &wire.ShardRecord{Incarnation: string(who)})
	if err != nil {
		n.t.Fatal(err)
	}
	m := protocol.NewCreate(keys.Shard(who), value, lease)
	n.drive(m)
	if m.Revision == 0 || n.etcd.Keys[keys.Shard(who)].Create != m.Revision {
		n.t.Fatalf("created at %d: %+v", m.Revision, n.etcd.Keys[keys.Shard(who)])
	}
	return protocol.NewSession(keys, who, lease, m.Revision, value)
}

func rows(pod string) *wire.IntentsRecord {
	return &wire.IntentsRecord{Gangs: []*wire.GangRef{{Uid: "g", Queue: "q"}}, Demands: []*wire.Demand{{}}, Rows: []*wire.IntentRow{{PodUid: pod, Node: "n"}}}
}

func tableOf(epoch api.Epoch) *wire.TableRecord {
	t := &api.Table{Epoch: epoch, Members: []api.Member{{Incarnation: "s1", Name: "s1"}}}
	for b := range t.Changed {
		t.Changed[b] = epoch
	}
	return wire.FromTable(t)
}

// Whatever is lost and whoever writes meanwhile, the outcome of WriteIntents is what happened, and stays it: what was on its
// way lands neither after a failure nor after the key was deleted. A key that an heir has rewritten is told as it was made, for its rows are
// not known.
func TestIntentsAreWrittenOnceOrNever(t *testing.T) {
	for _, others := range []string{"", "table", "record", "record table", "session", "record record", "heir"} {
		t.Run(others, func(t *testing.T) {
			outcomes := map[protocol.Outcome]bool{}
			everyWay(t, 10, func(n *network) {
				losses := n.losses
				n.losses = 0
				x := n.join("s1")
				table := n.put(keys.Table(), tableOf(1), 0)
				for _, who := range strings.Fields(others) {
					n.others = append(n.others, func() {
						switch who {
						case "table":
							n.put(keys.Table(), tableOf(2), 0)
						case "record":
							n.put(keys.Shard("s1"), &wire.ShardRecord{Incarnation: "s1", Draining: true}, 7)
						case "session":
							_ = n.etcd.End(7)
						case "heir":
							if key := keys.Intents("s1", 1); n.etcd.Keys[key] != nil {
								n.put(key, rows("q"), 0)
							}
						}
					})
				}
				made := 0
				n.etcd.Changed = func(events []model.Event[proto.Message]) {
					for _, e := range events {
						if e.Key == keys.Intents("s1", 1) && !e.Deleted {
							made++
						}
					}
				}
				m, err := x.WriteIntents(1, rows("p"), table, nil)
				if err != nil {
					t.Fatal(err)
				}
				n.losses = losses
				n.drive(m)
				outcomes[m.Outcome] = true
				if m.Outcome == protocol.SessionLost {
					return // what is there is an heir's
				}
				kv := n.etcd.Keys[keys.Intents("s1", 1)]
				if (m.Outcome == protocol.Written) != (kv != nil && kv.Create == m.ModRevision) {
					t.Errorf("outcome %d at revision %d, and there is %+v", m.Outcome, m.ModRevision, kv)
				}
				if m.Outcome == protocol.Written {
					n.losses, n.others = 0, nil
					n.drive(x.DeleteIntents([]protocol.IntentKey{{Incarnation: "s1", N: 1, ModRevision: kv.Mod}}))
				}
				n.flush()
				if kv := n.etcd.Keys[keys.Intents("s1", 1)]; made > 1 && others != "heir" || kv != nil {
					t.Errorf("made %d times, and there is %+v", made, kv)
				}
			})
			if !outcomes[protocol.Written] || strings.Contains(others, "table") != outcomes[protocol.TableMoved] || strings.Contains(others, "session") != outcomes[protocol.SessionLost] {
				t.Errorf("outcomes %v", outcomes)
			}
		})
	}
}

// A key is rewritten or deleted at the revision named, or it is told as it is.
func TestRewritesAndDeletesOfIntents(t *testing.T) {
	for _, c := range []struct {
		name  string
		other func(n *network)
	}{
		{"alone", nil},
		{"another rewrites it", func(n *network) { n.put(keys.Intents("old", 1), rows("other"), 0) }},
		{"the table moves", func(n *network) { n.put(keys.Table(), tableOf(2), 0) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			everyWay(t, 10, func(n *network) {
				losses := n.losses
				n.losses = 0
				x := n.join("s1")
				table := n.put(keys.Table(), tableOf(1), 0)
				k := protocol.IntentKey{Incarnation: "old", N: 1, ModRevision: n.put(keys.Intents("old", 1), rows("p"), 0)}
				if c.other != nil {
					n.others = []func(){func() { c.other(n) }}
				}
				n.losses = losses
				m, err := x.RewriteIntents(k, rows("new"), table)
				if err != nil {
					t.Fatal(err)
				}
				n.drive(m)
				now := n.etcd.Keys[keys.Intents("old", 1)]
				if m.Now.ModRevision != now.Mod || (m.Outcome == protocol.Written) != proto.Equal(now.Value, rows("new")) {
					if m.Outcome != protocol.Written || m.Now.ModRevision > now.Mod || c.other == nil { // somebody wrote it since
						t.Errorf("%+v, and there is %+v", m.RewriteResult, now)
					}
				}
				n.flush()
				k.ModRevision = n.etcd.Keys[keys.Intents("old", 1)].Mod
				d := x.DeleteIntents([]protocol.IntentKey{{Incarnation: "s1", N: 9}, k})
				n.drive(d)
				n.flush()
				kv := n.etcd.Keys[keys.Intents("old", 1)]
				if out := d.Now(); len(out) != 2 || out[0].ModRevision != 0 || (out[1].ModRevision == 0) != (kv == nil) || kv != nil && !proto.Equal(out[1].Record, kv.Value) {
					t.Errorf("deleted: %+v %v, and there is %+v", out, d.Err, kv)
				}
			})
		})
	}
}

// Whatever is lost, a Commit returns the revision at which its changes were made, once; and a late try changes nothing.
func TestCommitsHappenOnce(t *testing.T) {
	record := func(n int64) *wire.ReservationRecord {
		return &wire.ReservationRecord{Gang: &wire.GangRef{Uid: "g", Queue: "q"}, Attempt: uint64(n), State: wire.ReservationState_RESERVATION_OPEN}
	}
	key := keys.Reservation(api.BucketOf("q"), "g")
	for _, deposed := range []bool{false, true} {
		t.Run(fmt.Sprint("deposed ", deposed), func(t *testing.T) {
			fenced := 0
			everyWay(t, 50, func(n *network) {
				n.losses = 1
				term := protocol.NewTerm(keys, n.put(keys.Leader(), &wire.LeaderRecord{Incarnation: "c1"}, 0))
				load := term.Load()
				n.drive(load)
				if load.Fenced() != nil || load.State.Sequence == 0 {
					t.Fatalf("load: %v %+v", load.Fenced(), load.State)
				}
				n.losses = 2
				if deposed {
					n.others = []func(){func() {
						n.carry(protocol.Txn{If: []protocol.Compare{}, Then: []protocol.Op{{Kind: protocol.Delete, Key: keys.Leader()}}})
						n.put(keys.Leader(), &wire.LeaderRecord{Incarnation: "c2"}, 0)
						late := n.late
						next := &network{t: t, c: n.c, etcd: n.etcd}
						next.drive(protocol.NewTerm(keys, n.etcd.Keys[keys.Leader()].Create).Load())
						n.late = late
					}}
				}
				var made []int64
				n.etcd.Changed = func(events []model.Event[proto.Message]) {
					for _, e := range events {
						if e.Key == key {
							made = append(made, e.Mod)
						}
					}
				}
				m, err := term.Commit([]protocol.Change{protocol.PutReservation(record(1))})
				if err != nil {
					t.Fatal(err)
				}
				n.drive(m)
				if err := m.Fenced(); err != nil {
					fenced++
					before := len(made)
					if n.flush(); !deposed || !errors.Is(err, protocol.ErrFenced) || len(made) != before || before > 1 {
						t.Errorf("fenced: %v, written at %v", err, made)
					}
					return
				}
				if len(made) != 1 || made[0] != m.Revision {
					t.Errorf("committed at %d, written at %v", m.Revision, made)
				}
				n.flush()
				if len(made) != 1 {
					t.Errorf("committed at %d, written at %v", m.Revision, made)
				}
			})
			if (fenced > 0) != deposed {
				t.Errorf("fenced in %d ways", fenced)
			}
		})
	}
}

// The state of a term and a takeover are read at one revision, in pages, and anew when that is compacted.
func TestReadsAreOfOneRevision(t *testing.T) {
	n := &network{t: t, c: &choices{}, etcd: model.NewStore(proto.Equal)}
	const many = 100 // more than a page
	for i := range many {
		uid := fmt.Sprintf("g%03d", i)
		n.put(keys.Reservation(api.BucketOf("q"), uid), &wire.ReservationRecord{Gang: &wire.GangRef{Uid: uid, Queue: "q"}, State: wire.ReservationState_RESERVATION_OPEN}, 0)
		n.put(keys.Intents("old", uint64(i+1)), rows(uid), 0)
	}
	n.put(keys.Limits("q"), &wire.LimitsRecord{Queue: "q"}, 0)
	n.put(keys.Table(), tableOf(1), 0)
	term := protocol.NewTerm(keys, n.put(keys.Leader(), &wire.LeaderRecord{Incarnation: "c1"}, 0))
	// After each page somebody writes, and after the second the revision that is read is compacted.
	drive := func(m protocol.Machine) (pages int) {
		for {
			tx, more := m.Next()
			if !more {
				return pages
			}
			m.Answered(n.carry(tx))
			read, is := tx.PlainRead()
			if !is || read.End == "" {
				continue
			}
			n.put(keys.Reservation(api.BucketOf("q"), "g000"), &wire.ReservationRecord{Gang: &wire.GangRef{Uid: "g000", Queue: "q"}, Attempt: uint64(pages), State: wire.ReservationState_RESERVATION_CLOSING}, 0)
			if pages++; pages == 2 {
				if err := n.etcd.Compact(n.etcd.Revision()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	load := term.Load()
	pages := drive(load)
	if s := load.State; pages < 6 || len(s.Reservations) != many || len(s.Limits) != 1 || s.Table == nil || len(s.Corrupt) > 0 || s.Reservations[0].ModRevision > s.Revision {
		t.Errorf("%d pages: %d reservations, corrupt %v, revision %d", pages, len(s.Reservations), s.Corrupt, s.Revision)
	}
	takeover := protocol.NewReadTakeover(keys, []api.BucketID{api.BucketOf("q")})
	pages = drive(takeover)
	if s := takeover.Takeover; pages < 6 || len(s.Reservations) != many || len(s.Intents) != many || len(s.Corrupt) > 0 || s.Reservations[0].ModRevision > s.Revision {
		t.Errorf("%d pages: %d reservations, corrupt %v, revision %d", pages, len(s.Reservations), s.Corrupt, s.Revision)
	}
}
