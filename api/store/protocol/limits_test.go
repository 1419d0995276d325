package protocol_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/model"
)

func quiet(t *testing.T) *network {
	return &network{t: t, c: &choices{}, etcd: model.NewStore(proto.Equal)}
}

// record returns limits whose encoding has exactly so many bytes.
func record(t *testing.T, queue string, size int) *wire.LimitsRecord {
	t.Helper()
	r := &wire.LimitsRecord{Queue: queue, Capability: []*wire.Amount{{Resource: "cpu", Value: 1}}}
	for range 4 {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) == size {
			return r
		}
		name := r.Capability[0].Resource
		r.Capability[0].Resource = strings.Repeat("x", len(name)+size-len(b))
	}
	t.Fatalf("no record of %d bytes", size)
	return nil
}

// A record, and the sum of a transaction, may have as many bytes as the limit, and no more; which one is too large is told.
func TestSizesAreBounded(t *testing.T) {
	if _, err := protocol.Encode("k", record(t, "q", protocol.MaxRecord)); err != nil {
		t.Error(err)
	}
	_, err := protocol.Encode("k", record(t, "q", protocol.MaxRecord+1))
	var of *protocol.RecordError
	if !errors.As(err, &of) || of.Key != "k" || !errors.Is(err, protocol.ErrTooLarge) || !strings.Contains(err.Error(), fmt.Sprintf("%d bytes, the limit is %d", protocol.MaxRecord+1, protocol.MaxRecord)) {
		t.Errorf("a record that is too large: %v", err)
	}
	_, err = protocol.Encode("k", &wire.LimitsRecord{Queue: "\xff"})
	if !errors.As(err, &of) || errors.Is(err, protocol.ErrTooLarge) {
		t.Errorf("a record that is not UTF-8: %v", err)
	}
	if protocol.MaxRequest != 1536*1024 || protocol.MaxCommit != 1472*1024 || protocol.MaxRecord != 1024*1024 || protocol.MaxChanges != 127 {
		t.Errorf("limits of %d, %d, %d bytes, %d changes", protocol.MaxRequest, protocol.MaxCommit, protocol.MaxRecord, protocol.MaxChanges)
	}

	n := quiet(t)
	term := protocol.NewTerm(keys, n.put(keys.Leader(), &wire.LeaderRecord{Incarnation: "c1"}, 0))
	n.drive(term.Load())
	const first = 700 << 10
	others := protocol.MaxCommit - first - len(keys.Limits("a")) - len(keys.Limits("b"))
	sum := func(extra int) []protocol.Change {
		return []protocol.Change{protocol.PutLimits(record(t, "a", first)), protocol.PutLimits(record(t, "b", others+extra)), protocol.DeleteLimits("c")}
	}
	m, err := term.Commit(sum(0))
	if err != nil {
		t.Fatal(err)
	}
	if n.drive(m); m.Fenced() != nil || m.Revision == 0 {
		t.Errorf("a transaction of %d bytes: %v, revision %d", protocol.MaxCommit, m.Fenced(), m.Revision)
	}
	_, err = term.Commit(sum(1))
	if !errors.Is(err, protocol.ErrTooLarge) || !strings.Contains(err.Error(), fmt.Sprintf("3 operations of %d bytes, the limit is %d; the largest is key %q with %d", protocol.MaxCommit+1, protocol.MaxCommit, keys.Limits("b"), others+1)) {
		t.Errorf("a transaction that is too large: %v", err)
	}
	if _, err = term.Commit([]protocol.Change{protocol.DeleteLimits("a"), protocol.PutLimits(&wire.LimitsRecord{Queue: "a"})}); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("one key twice: %v", err)
	}
}

// A transaction takes as many changes as etcd does with the sequence; its description names the first few.
func TestChangesAreBounded(t *testing.T) {
	n := quiet(t)
	term := protocol.NewTerm(keys, n.put(keys.Leader(), &wire.LeaderRecord{Incarnation: "c1"}, 0))
	n.drive(term.Load())
	changes := func(count int) (out []protocol.Change) {
		for i := range count {
			out = append(out, protocol.PutLimits(&wire.LimitsRecord{Queue: fmt.Sprintf("q%03d", i)}))
		}
		return out
	}
	for _, c := range []struct {
		count int
		words string
	}{
		{1, `"queues/q000"`}, {8, `"queues/q000", "queues/q001", "queues/q002", "queues/q003", "queues/q004", "queues/q005", "queues/q006", "queues/q007"`},
		{9, `"queues/q006", "queues/q007", and 1 more`}, {protocol.MaxChanges, `"queues/q007", and 119 more`},
	} {
		m, err := term.Commit(changes(c.count))
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Describe(); !strings.HasSuffix(got, c.words) {
			t.Errorf("%d changes: %s", c.count, got)
		}
		tx, more := m.Next()
		if !more || len(tx.Then) != c.count+1 || len(tx.Then) > 128 {
			t.Errorf("%d changes: %d operations", c.count, len(tx.Then))
		}
		m.Answered(n.carry(tx))
		if _, more := m.Next(); more || m.Fenced() != nil {
			t.Errorf("%d changes: %v", c.count, m.Fenced())
		}
	}
	if _, err := term.Commit(changes(protocol.MaxChanges + 1)); err == nil {
		t.Error("too many changes are taken")
	}
}

// Values of seq grow with each transaction, also over an unreadable one, and a seq that somebody else wrote ends the term.
func TestSequenceGrows(t *testing.T) {
	n := quiet(t)
	load := func() (*protocol.Term, *protocol.Load) {
		term := protocol.NewTerm(keys, n.put(keys.Leader(), &wire.LeaderRecord{Incarnation: "c1"}, 0))
		if _, exists := n.etcd.Keys[keys.Leader()]; exists { // made anew
			n.carry(protocol.Txn{If: []protocol.Compare{}, Then: []protocol.Op{{Kind: protocol.Delete, Key: keys.Leader()}}})
			term = protocol.NewTerm(keys, n.put(keys.Leader(), &wire.LeaderRecord{Incarnation: "c1"}, 0))
		}
		l := term.Load()
		if l.Fenced() != nil || l.Open() {
			t.Fatal("a Load that has not begun is fenced or open")
		}
		n.drive(l)
		return term, l
	}
	term, l := load()
	if s := l.State; l.Fenced() != nil || s.Sequence != 1 || s.Revision != n.etcd.Revision() || len(s.Corrupt) > 0 || term.Number() != n.etcd.Keys[keys.Leader()].Create {
		t.Errorf("the first term: %v %+v", l.Fenced(), s)
	}
	commit := func(term *protocol.Term) *protocol.Commit {
		m, err := term.Commit([]protocol.Change{protocol.PutLimits(&wire.LimitsRecord{Queue: "q"})})
		if err != nil {
			t.Fatal(err)
		}
		n.drive(m)
		return m
	}
	commit(term)
	if seq := n.etcd.Keys[keys.Sequence()].Value.(*wire.Sequence); seq.Value != 2 || seq.Term != uint64(term.Number()) {
		t.Errorf("seq: %v", seq)
	}
	n.put(keys.Sequence(), &wire.Sequence{Value: 1000, Term: 1}, 0)
	if m := commit(term); !errors.Is(m.Fenced(), protocol.ErrFenced) {
		t.Error("a term goes on though somebody else wrote seq")
	}
	term, l = load()
	if l.State.Sequence != 1001 {
		t.Errorf("after 1000 comes %d", l.State.Sequence)
	}
	commit(term)
	n.put(keys.Sequence(), &wire.LimitsRecord{Queue: strings.Repeat("\x08", 3)}, 0) // no Sequence
	if m := commit(term); !errors.Is(m.Fenced(), protocol.ErrFenced) {
		t.Error("a term goes on though seq cannot be read")
	}
	// Another resumes where the term is.
	term, _ = load()
	again := protocol.ResumeTerm(keys, term.Number(), n.etcd.Keys[keys.Sequence()].Mod, 5000)
	if m := commit(again); m.Fenced() != nil || n.etcd.Keys[keys.Sequence()].Value.(*wire.Sequence).Value != 5001 {
		t.Errorf("resumed: %v", m.Fenced())
	}
}

// A key that another made under its own lease is not ours, one that is there under our lease is; and a lease may be gone.
func TestCreate(t *testing.T) {
	value, err := protocol.Encode("k", &wire.ShardRecord{Incarnation: "s"})
	if err != nil {
		t.Fatal(err)
	}
	n := quiet(t)
	run := func(lease int64) *protocol.Create {
		m := protocol.NewCreate("k", value, lease)
		n.drive(m)
		m.Lost()
		if m.Key() != "k" {
			t.Errorf("creates %q", m.Key())
		}
		return m
	}
	if m := run(7); !m.LeaseGone || m.Revision != 0 {
		t.Errorf("without a lease: %+v", m)
	}
	for _, lease := range []int64{7, 8} {
		if err := n.etcd.Grant(lease); err != nil {
			t.Fatal(err)
		}
	}
	first := run(7)
	if first.LeaseGone || first.Revision == 0 || first.Revision != n.etcd.Keys["k"].Create {
		t.Errorf("%+v", first)
	}
	if m := run(7); m.Revision != first.Revision {
		t.Errorf("again: %+v", m)
	}
	if m := run(8); m.Revision != 0 || m.LeaseGone {
		t.Errorf("another's: %+v", m)
	}
}

// A shard's own record is replaced while the session lasts, and of no other shard.
func TestUpdate(t *testing.T) {
	n := quiet(t)
	x := n.join("s1")
	if _, err := x.Update(&wire.ShardRecord{Incarnation: "s2"}); err == nil {
		t.Error("the record of another shard is taken")
	}
	m, err := x.Update(&wire.ShardRecord{Incarnation: "s1", Draining: true})
	if err != nil {
		t.Fatal(err)
	}
	n.drive(m)
	if m.Lost(); m.Outcome != protocol.Written || !n.etcd.Keys[keys.Shard("s1")].Value.(*wire.ShardRecord).Draining {
		t.Errorf("%+v", m.Outcome)
	}
	// What was written is what intents compare from now on: no round is lost.
	table := n.put(keys.Table(), tableOf(1), 0)
	w, err := x.WriteIntents(1, rows("p"), table, nil)
	if err != nil {
		t.Fatal(err)
	}
	tx, _ := w.Next()
	if w.Answered(n.carry(tx)); w.Outcome != protocol.Written {
		t.Errorf("intents after an update: %+v", w.WriteResult)
	}
	if err := n.etcd.End(7); err != nil {
		t.Fatal(err)
	}
	if m, err = x.Update(&wire.ShardRecord{Incarnation: "s1"}); err != nil {
		t.Fatal(err)
	}
	if n.drive(m); m.Outcome != protocol.SessionLost {
		t.Errorf("after the lease: %d", m.Outcome)
	}
}

// Intents name reservations at exact revisions: as many as the limit, none of revision 0, and those that moved are told, unless the
// table moved too.
func TestFences(t *testing.T) {
	n := quiet(t)
	x := n.join("s1")
	table := n.put(keys.Table(), tableOf(1), 0)
	var fences []protocol.ReservationFence
	for i := range protocol.MaxFences + 1 {
		uid := fmt.Sprintf("g%03d", i)
		b := api.BucketOf("q")
		fences = append(fences, protocol.ReservationFence{Bucket: b, GangUID: uid, Revision: n.put(keys.Reservation(b, uid), &wire.ReservationRecord{Gang: &wire.GangRef{Uid: uid, Queue: "q"}}, 0)})
	}
	write := func(number uint64, table int64, fences []protocol.ReservationFence) protocol.WriteResult {
		m, err := x.WriteIntents(number, rows("p"), table, fences)
		if err != nil {
			t.Fatal(err)
		}
		var record *protocol.RecordError
		if err := m.TooLarge(errors.New("too large")); !errors.As(err, &record) || record.Key != keys.Intents("s1", number) || errors.Is(err, protocol.ErrUnsettled) {
			t.Errorf("refused as too large: %v", err)
		}
		n.drive(m)
		return m.WriteResult
	}
	if _, err := x.WriteIntents(1, rows("p"), table, fences); err == nil {
		t.Error("too many fences are taken")
	}
	if _, err := x.WriteIntents(1, &wire.IntentsRecord{}, table, nil); err == nil {
		t.Error("no rows are taken")
	}
	if r := write(1, table, fences[:protocol.MaxFences]); r.Outcome != protocol.Written || r.ModRevision != n.etcd.Keys[keys.Intents("s1", 1)].Mod {
		t.Errorf("%+v", r)
	}
	none := func(revision int64) []protocol.ReservationFence {
		out := slices.Clone(fences[:3])
		out[1].Revision = revision
		return out
	}
	for _, revision := range []int64{0, -1} {
		if r := write(2, table, none(revision)); r.Outcome != protocol.ReservationMoved || !slices.Equal(r.Moved, []string{"g001"}) {
			t.Errorf("revision %d of a reservation: %+v", revision, r)
		}
		if r := write(2, revision, fences[:1]); r.Outcome != protocol.TableMoved {
			t.Errorf("revision %d of the table: %+v", revision, r)
		}
	}
	// Of a reservation that does not exist, 0 is what a compare would find, and what it may find again later.
	if r := write(2, table, []protocol.ReservationFence{{Bucket: api.BucketOf("q"), GangUID: "none"}}); r.Outcome != protocol.ReservationMoved || !slices.Equal(r.Moved, []string{"none"}) {
		t.Errorf("a reservation that does not exist: %+v", r)
	}
	if r := write(2, table, none(1)); r.Outcome != protocol.ReservationMoved || !slices.Equal(r.Moved, []string{"g001"}) {
		t.Errorf("a reservation moved: %+v", r)
	}
	if r := write(2, table-1, fences[:2]); r.Outcome != protocol.TableMoved || r.TableRevision != table {
		t.Errorf("the table moved: %+v", r)
	}
	if r := write(2, table-1, none(1)); r.Outcome != protocol.TableMoved || r.TableRevision != table || len(r.Moved) > 0 {
		t.Errorf("both moved: %+v", r)
	}
	n.carry(protocol.Txn{Then: []protocol.Op{{Kind: protocol.Delete, Key: keys.Table()}}})
	if r := write(2, 0, nil); r.Outcome != protocol.TableMoved || r.TableRevision != 0 {
		t.Errorf("a table that does not exist: %+v", r)
	}
	if kv := n.etcd.Keys[keys.Intents("s1", 2)]; kv != nil {
		t.Errorf("written all the same: %+v", kv)
	}
}

// Keys are deleted in batches, those that were never there aside; those that moved are told as they are now.
func TestDeletesInBatches(t *testing.T) {
	n := quiet(t)
	x := n.join("s1")
	var list []protocol.IntentKey
	add := func(count int, revision func(i int) int64) {
		for range count {
			i := len(list)
			list = append(list, protocol.IntentKey{Incarnation: "old", N: uint64(i + 1), ModRevision: revision(i)})
		}
	}
	there := func(i int) int64 { return n.put(keys.Intents("old", uint64(i+1)), rows("p"), 0) }
	add(protocol.MaxDeletes-1, there)
	add(2, func(int) int64 { return 0 })
	add(protocol.MaxDeletes, func(int) int64 { return 0 }) // a batch in which there is nothing to do, but for the first of the next
	add(protocol.MaxDeletes+3, there)
	moved := []int{0, 5, len(list) - 1}
	for _, i := range moved {
		n.put(keys.Intents("old", uint64(i+1)), rows("other"), 0)
	}
	n.put(keys.Intents("old", 3), &wire.IntentsRecord{Rows: []*wire.IntentRow{{}}}, 0) // moved, and cannot be read
	m := x.DeleteIntents(list)
	most := 0
	for steps := 0; steps < 100; steps++ {
		tx, more := m.Next()
		if !more {
			break
		}
		most = max(most, len(tx.Then))
		m.Answered(n.carry(tx))
	}
	now := m.Now()
	if m.Failed() != nil || m.Outcome != protocol.Written || len(now) != len(list) || len(m.Corrupt) != 1 || m.Corrupt[0].Key != keys.Intents("old", 3) {
		t.Fatalf("%v %d: %d of %d, corrupt %v", m.Failed(), m.Outcome, len(now), len(list), m.Corrupt)
	}
	if most > protocol.MaxDeletes || most < protocol.MaxDeletes-1 {
		t.Errorf("up to %d deletes in a transaction", most)
	}
	for i, k := range now {
		switch {
		case k.N != list[i].N || k.Incarnation != "old":
			t.Errorf("%d: %+v", i, k)
		case slices.Contains(moved, i):
			if k.ModRevision == 0 || !proto.Equal(k.Record, rows("other")) {
				t.Errorf("%d moved: %+v", i, k)
			}
		case i == 2:
			if k.ModRevision == 0 || k.Record != nil {
				t.Errorf("%d cannot be read: %+v", i, k)
			}
		case k.ModRevision != 0 || n.etcd.Keys[keys.Intents("old", list[i].N)] != nil:
			t.Errorf("%d is there: %+v", i, k)
		}
	}
	// A store that refuses without a reason.
	m = x.DeleteIntents([]protocol.IntentKey{{Incarnation: "old", N: 1, ModRevision: 5}})
	m.Next()
	own := n.etcd.Keys[keys.Shard("s1")]
	m.Answered(protocol.Result{Reads: []protocol.Read{{Keys: []protocol.KV{{Key: keys.Shard("s1"), Create: own.Create, Mod: own.Mod}}},
		{Keys: []protocol.KV{{Key: keys.Intents("old", 1), Mod: 5}}}}})
	if _, more := m.Next(); more || m.Failed() == nil || m.Failed() != m.Err {
		t.Errorf("a store that refuses without a reason: %v", m.Failed())
	}
	// A session that is over.
	if err := n.etcd.End(7); err != nil {
		t.Fatal(err)
	}
	m = x.DeleteIntents([]protocol.IntentKey{{Incarnation: "old", N: 1, ModRevision: now[0].ModRevision}})
	if n.drive(m); m.Outcome != protocol.SessionLost || m.Failed() != protocol.ErrSessionLost || len(m.Now()) != 0 {
		t.Errorf("without a session: %d, %v, %v", m.Outcome, m.Failed(), m.Now())
	}
	// Nothing at all.
	if m = x.DeleteIntents(nil); m.Outcome != protocol.Written || len(m.Now()) != 0 {
		t.Errorf("no keys: %+v", m)
	}
	if _, more := m.Next(); more {
		t.Error("no keys make a transaction")
	}
}

// A key is rewritten or deleted at the revisions named; otherwise it is told as it is.
func TestRewrites(t *testing.T) {
	n := quiet(t)
	x := n.join("s1")
	table := n.put(keys.Table(), tableOf(1), 0)
	at := n.put(keys.Intents("old", 1), rows("p"), 0)
	k := func(revision int64) protocol.IntentKey {
		return protocol.IntentKey{Incarnation: "old", N: 1, ModRevision: revision}
	}
	for _, revisions := range [][2]int64{{0, table}, {-1, table}, {at, 0}, {at, -1}} {
		if _, err := x.RewriteIntents(k(revisions[0]), nil, revisions[1]); err == nil {
			t.Errorf("fences at revisions %v are taken", revisions)
		}
	}
	run := func(k protocol.IntentKey, record *wire.IntentsRecord, table int64) *protocol.RewriteIntents {
		m, err := x.RewriteIntents(k, record, table)
		if err != nil {
			t.Fatal(err)
		}
		n.drive(m)
		m.Lost()
		return m
	}
	if m := run(k(at), rows("q"), table-1); m.Outcome != protocol.TableMoved || m.TableRevision != table || m.Now.ModRevision != at {
		t.Errorf("another table: %+v", m.RewriteResult)
	}
	if m := run(k(at-1), rows("q"), table); m.Outcome != protocol.KeyMoved || m.Now.ModRevision != at || !proto.Equal(m.Now.Record, rows("p")) {
		t.Errorf("another revision: %+v", m.RewriteResult)
	}
	if m := run(k(at-1), rows("p"), table); m.Outcome != protocol.Written || m.Now.ModRevision != at {
		t.Errorf("written before: %+v", m.RewriteResult)
	}
	if m := run(k(at), rows("p"), table-1); m.Outcome != protocol.TableMoved {
		t.Errorf("equal, and not by an earlier try: %+v", m.RewriteResult)
	}
	m := run(k(at), rows("q"), table)
	if m.Outcome != protocol.Written || m.Now.ModRevision != n.etcd.Keys[keys.Intents("old", 1)].Mod || !proto.Equal(m.Now.Record, rows("q")) || m.Now.N != 1 {
		t.Errorf("rewritten: %+v", m.RewriteResult)
	}
	at = m.Now.ModRevision
	if m = run(k(at-1), nil, table); m.Outcome != protocol.KeyMoved || m.Now.ModRevision != at {
		t.Errorf("deleted at another revision: %+v", m.RewriteResult)
	}
	for range 2 { // the second finds it gone
		if m = run(k(at), nil, table); m.Outcome != protocol.Written || m.Now.ModRevision != 0 || n.etcd.Keys[keys.Intents("old", 1)] != nil {
			t.Errorf("deleted: %+v", m.RewriteResult)
		}
	}
	if m = run(k(at), rows("q"), table); m.Outcome != protocol.KeyMoved || m.Now.ModRevision != 0 || m.TableRevision != 0 {
		t.Errorf("rewritten when it is gone: %+v", m.RewriteResult)
	}
	n.put(keys.Intents("old", 1), &wire.IntentsRecord{Rows: []*wire.IntentRow{{}}}, 0)
	if m = run(k(at), rows("q"), table); m.Outcome != protocol.KeyMoved || len(m.Corrupt) != 1 {
		t.Errorf("what cannot be read: %+v %v", m.RewriteResult, m.Corrupt)
	}
	if err := n.etcd.End(7); err != nil {
		t.Fatal(err)
	}
	if m = run(k(at), rows("q"), table); m.Outcome != protocol.SessionLost {
		t.Errorf("without a session: %+v", m.RewriteResult)
	}
}

// What is under a key is what the key says, or it is called corrupt, and named.
func TestCorruptRecords(t *testing.T) {
	b := api.BucketOf("q")
	reservation := func(change func(*wire.ReservationRecord)) *wire.ReservationRecord {
		r := &wire.ReservationRecord{Gang: &wire.GangRef{Uid: "g", Queue: "q"}, Demand: []*wire.Amount{{Resource: "cpu", Value: 1}}, State: wire.ReservationState_RESERVATION_OPEN}
		if change != nil {
			change(r)
		}
		return r
	}
	intents := func(row *wire.IntentRow) *wire.IntentsRecord {
		return &wire.IntentsRecord{Gangs: []*wire.GangRef{{Uid: "g", Queue: "q"}}, Demands: []*wire.Demand{{Amounts: []*wire.Amount{{Resource: "cpu", Value: 0}}}}, Rows: []*wire.IntentRow{row}}
	}
	good := &wire.IntentRow{PodUid: "p", Node: "n"}
	for _, c := range []struct {
		name     string
		key      string
		m        proto.Message
		readable bool
	}{
		{"limits", keys.Limits("q"), &wire.LimitsRecord{Queue: "q", Guarantee: []*wire.Amount{{Resource: "cpu", Value: 0}}}, true},
		{"limits of another queue", keys.Limits("q"), &wire.LimitsRecord{Queue: "p"}, false},
		{"negative limits", keys.Limits("q"), &wire.LimitsRecord{Queue: "q", Capability: []*wire.Amount{{Resource: "cpu", Value: -1}}}, false},
		{"limits of no resource", keys.Limits("q"), &wire.LimitsRecord{Queue: "q", Guarantee: []*wire.Amount{{Value: 1}}}, false},
		{"reservation", keys.Reservation(b, "g"), reservation(nil), true},
		{"closing reservation", keys.Reservation(b, "g"), reservation(func(r *wire.ReservationRecord) { r.State = wire.ReservationState_RESERVATION_CLOSING }), true},
		{"reservation of another gang", keys.Reservation(b, "h"), reservation(nil), false},
		{"reservation of another bucket", keys.Reservation(b+1, "g"), reservation(nil), false},
		{"reservation of no bucket", keys.Reservations() + "1024/g", reservation(nil), false},
		{"reservation of a bucket in other words", keys.Reservations() + strings.TrimLeft(b.Label(), "0") + "0/g", reservation(nil), false},
		{"reservation without a gang", keys.Reservations() + b.Label() + "/", reservation(func(r *wire.ReservationRecord) { r.Gang.Uid = "" }), false},
		{"reservation in no state", keys.Reservation(b, "g"), reservation(func(r *wire.ReservationRecord) { r.State = 0 }), false},
		{"reservation for less than nothing", keys.Reservation(b, "g"), reservation(func(r *wire.ReservationRecord) { r.Demand[0].Value = -1 }), false},
		{"intents", keys.Intents("s", 1), intents(good), true},
		{"intents under a number in other words", keys.AllIntents() + "s/1", intents(good), false},
		{"intents of nobody", keys.AllIntents() + "/0000000000000001", intents(good), false},
		{"an intent of no pod", keys.Intents("s", 1), intents(&wire.IntentRow{Node: "n"}), false},
		{"an intent for no node", keys.Intents("s", 1), intents(&wire.IntentRow{PodUid: "p"}), false},
		{"an intent of no gang", keys.Intents("s", 1), intents(&wire.IntentRow{PodUid: "p", Node: "n", Gang: 1}), false},
		{"an intent of no demand", keys.Intents("s", 1), intents(&wire.IntentRow{PodUid: "p", Node: "n", Demand: 1}), false},
		{"shard", keys.Shard("s"), &wire.ShardRecord{Incarnation: "s"}, true},
		{"another shard", keys.Shard("s"), &wire.ShardRecord{Incarnation: "r"}, false},
		{"leader", keys.Leader(), &wire.LeaderRecord{Incarnation: "c"}, true},
		{"no leader", keys.Leader(), &wire.LeaderRecord{}, false},
		{"table", keys.Table(), tableOf(1), true},
	} {
		v, err := protocol.Encode(c.key, c.m)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []protocol.Value{{Bytes: v.Bytes}, {Message: c.m}} {
			kv := protocol.KV{Key: c.key, Value: v, Mod: 9}
			var err error
			switch {
			case strings.HasPrefix(c.key, keys.Limits("")):
				var r protocol.StoredLimits
				if r, err = keys.DecodeLimits(kv); r.Queue != "q" || r.ModRevision != 9 || (r.Record != nil) != (err == nil) {
					t.Errorf("%s: %+v", c.name, r)
				}
			case strings.HasPrefix(c.key, keys.Reservations()):
				_, err = keys.DecodeReservation(kv)
			case strings.HasPrefix(c.key, keys.AllIntents()):
				_, err = keys.DecodeIntents(kv)
			case strings.HasPrefix(c.key, keys.Shards()):
				_, err = keys.DecodeShard(kv)
			case c.key == keys.Leader():
				_, err = protocol.DecodeLeader(kv)
			default:
				_, err = protocol.DecodeTable(kv)
			}
			if (err == nil) != c.readable || err != nil && !errors.Is(err, protocol.ErrUnreadable) {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
}

// A read of one key without a condition is a plain read, and nothing else is.
func TestPlainRead(t *testing.T) {
	read, write := protocol.Op{Kind: protocol.Get, Key: "k"}, protocol.Op{Kind: protocol.Put, Key: "k"}
	for _, c := range []struct {
		t    protocol.Txn
		want bool
	}{
		{protocol.Txn{Then: []protocol.Op{read}}, true},
		{protocol.Txn{}, false},
		{protocol.Txn{Then: []protocol.Op{write}}, false},
		{protocol.Txn{Then: []protocol.Op{read, read}}, false},
		{protocol.Txn{If: []protocol.Compare{{Key: "k"}}, Then: []protocol.Op{read}}, false},
	} {
		if op, is := c.t.PlainRead(); is != c.want || is && op.Key != "k" {
			t.Errorf("%+v: %t", c.t, is)
		}
	}
}

// The batch in which one key is to be deleted and one has moved is done before the next one begins.
func TestDeletesOfABatchWithOneOfEach(t *testing.T) {
	n := quiet(t)
	x := n.join("s1")
	var list []protocol.IntentKey
	for i := range protocol.MaxDeletes + 1 {
		k := protocol.IntentKey{Incarnation: "old", N: uint64(i + 1)}
		if i < 2 || i == protocol.MaxDeletes {
			k.ModRevision = n.put(keys.Intents("old", k.N), rows("p"), 0)
		}
		list = append(list, k)
	}
	moved := n.put(keys.Intents("old", 2), rows("other"), 0)
	m := x.DeleteIntents(list)
	n.drive(m)
	now := m.Now()
	if m.Err != nil || len(now) != len(list) || now[0].ModRevision != 0 || now[1].ModRevision != moved || n.etcd.Keys[keys.Intents("old", list[len(list)-1].N)] != nil {
		t.Errorf("%v: %d of %d, %+v", m.Err, len(now), len(list), now[:2])
	}
}

// A Load is open while a transaction of it may land, and not while it reads.
func TestLoadIsOpen(t *testing.T) {
	n := quiet(t)
	l := protocol.NewTerm(keys, n.put(keys.Leader(), &wire.LeaderRecord{Incarnation: "c1"}, 0)).Load()
	step := func(lost bool) {
		tx, more := l.Next()
		if !more {
			t.Fatal("it is done")
		}
		if r := n.carry(tx); !lost {
			l.Answered(r)
		} else {
			l.Lost()
		}
	}
	for i, s := range []struct{ lost, open bool }{{true, false}, {false, false}, {true, true}, {false, false}, {true, false}, {false, false}} {
		if step(s.lost); l.Open() != s.open || l.Fenced() != nil {
			t.Errorf("step %d: open %t, %v", i, l.Open(), l.Fenced())
		}
	}
}

// A store that refuses a transaction of a term whose leader and sequence are as they were is not to be relied on.
func TestRefusedWithoutAReason(t *testing.T) {
	n := quiet(t)
	term := protocol.NewTerm(keys, n.put(keys.Leader(), &wire.LeaderRecord{Incarnation: "c1"}, 0))
	n.drive(term.Load())
	m, err := term.Commit([]protocol.Change{protocol.DeleteLimits("q")})
	if err != nil {
		t.Fatal(err)
	}
	tx, _ := m.Next()
	m.Answered(n.carry(protocol.Txn{If: []protocol.Compare{{Key: "k", Target: protocol.ModRevision, Revision: 1}}, Else: tx.Else}))
	if !errors.Is(m.Fenced(), protocol.ErrFenced) {
		t.Errorf("the term goes on: %v", m.Fenced())
	}
}

// What the store holds of the shard's own key is known after each WriteIntents, however it ended: the next one needs one
// transaction.
func TestOwnKeyIsKnown(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(n *network, m *protocol.WriteIntents)
	}{
		{"answered", func(n *network, m *protocol.WriteIntents) {
			tx, _ := m.Next()
			m.Answered(n.carry(tx))
		}},
		{"lost, and nothing landed", func(n *network, m *protocol.WriteIntents) {
			m.Next()
			m.Lost()
			tx, _ := m.Next()
			m.Answered(n.carry(tx))
		}},
		{"lost and landed", func(n *network, m *protocol.WriteIntents) {
			for range 2 {
				tx, _ := m.Next()
				r := n.carry(tx)
				if m.Open() {
					m.Answered(r)
				} else {
					m.Lost()
				}
			}
			if tx, more := m.Next(); !more {
				n.t.Error("a lost try is not ended")
			} else {
				m.Answered(n.carry(tx))
			}
		}},
		{"lost and landed, and the record was written since", func(n *network, m *protocol.WriteIntents) {
			tx, _ := m.Next()
			n.carry(tx)
			m.Lost()
			tx, _ = m.Next()
			m.Answered(n.carry(tx))
			tx, more := m.Next()
			if !more {
				n.t.Error("a lost try is not ended")
			}
			n.put(keys.Shard("s1"), &wire.ShardRecord{Incarnation: "s1", Draining: true}, 7)
			m.Answered(n.carry(tx))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := quiet(t)
			x := n.join("s1")
			table := n.put(keys.Table(), tableOf(1), 0)
			for number := uint64(1); number <= 3; number++ {
				m, err := x.WriteIntents(number, rows("p"), table, nil)
				if err != nil {
					t.Fatal(err)
				}
				if number == 2 {
					c.do(n, m)
				} else {
					tx, _ := m.Next()
					m.Answered(n.carry(tx))
				}
				if _, more := m.Next(); more || m.Outcome != protocol.Written || m.ModRevision != n.etcd.Keys[keys.Intents("s1", number)].Mod {
					t.Errorf("%d: %+v, more %t", number, m.WriteResult, more)
				}
			}
		})
	}
}
