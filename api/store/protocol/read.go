package protocol

import (
	"slices"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// Takeover is what an heir needs, at one revision: the reservations of its buckets, and all intents. Records that
// cannot be read are there without a Record, and Corrupt says why; a key that cannot be read is only there.
type Takeover struct {
	Revision     int64
	Reservations []StoredReservation
	Intents      []StoredIntents
	Corrupt      []Corrupt
}

// ReadTakeover reads the reservations of some buckets and all intents at one revision, which is the store's newest when
// it begins. When that is compacted meanwhile, it begins anew at a newer one.
type ReadTakeover struct {
	keys    Keys
	buckets []api.BucketID
	scan    *scan

	Takeover Takeover
}

// NewReadTakeover begins a ReadTakeover of buckets, which are sorted.
func NewReadTakeover(k Keys, buckets []api.BucketID) *ReadTakeover {
	m := &ReadTakeover{keys: k, buckets: buckets}
	m.begin()
	return m
}

func (m *ReadTakeover) begin() {
	k, out := m.keys, &m.Takeover
	*out = Takeover{}
	m.scan = &scan{corrupt: &out.Corrupt, kinds: []kind{
		readIntents(k, &out.Intents),
	}}
	if len(m.buckets) > 0 {
		m.scan.kinds = append(m.scan.kinds, readReservations(k, m.buckets, &out.Reservations))
	}
}

// Next implements Machine.
func (m *ReadTakeover) Next() (Txn, bool) { return m.scan.next() }

// Answered implements Machine.
func (m *ReadTakeover) Answered(r Result) {
	if compacted := m.scan.answered(r); compacted {
		m.begin()
		return
	}
	m.Takeover.Revision = m.scan.revision
}

// Lost implements Machine.
func (m *ReadTakeover) Lost() {}

// ReadLog reads all intents at one revision, which is the store's newest when it begins. When that is compacted meanwhile, it begins
// anew at a newer one.
type ReadLog struct {
	keys Keys
	scan *scan

	Revision int64
	Intents  []StoredIntents // without a Record if it cannot be read
	Corrupt  []Corrupt
}

// NewReadLog begins a ReadLog.
func NewReadLog(k Keys) *ReadLog {
	m := &ReadLog{keys: k}
	m.begin()
	return m
}

func (m *ReadLog) begin() {
	m.Intents, m.Corrupt = nil, nil
	m.scan = &scan{corrupt: &m.Corrupt, kinds: []kind{readIntents(m.keys, &m.Intents)}}
}

// Next implements Machine.
func (m *ReadLog) Next() (Txn, bool) { return m.scan.next() }

// Answered implements Machine.
func (m *ReadLog) Answered(r Result) {
	if compacted := m.scan.answered(r); compacted {
		m.begin()
		return
	}
	m.Revision = m.scan.revision
}

// Lost implements Machine.
func (m *ReadLog) Lost() {}

// readIntents reads all intents.
func readIntents(k Keys, into *[]StoredIntents) kind {
	return kind{prefix: k.AllIntents(), buckets: everything, most: 100, each: func(kv KV) error {
		r, err := k.DecodeIntents(kv)
		if r.Incarnation != "" {
			*into = append(*into, r)
		}
		return err
	}}
}

// readReservations reads the reservations of buckets, which are sorted.
func readReservations(k Keys, buckets []api.BucketID, into *[]StoredReservation) kind {
	return kind{prefix: k.Reservations(), buckets: buckets, most: 4000, each: readReservation(k, into)}
}

// ReadReservation reads the reservation of one gang. It is not older than the moment at which the read is sent.
type ReadReservation struct {
	scan *scan

	Found   []StoredReservation // none or one; without a Record if it cannot be read
	Corrupt []Corrupt
}

// NewReadReservation begins a ReadReservation.
func NewReadReservation(k Keys, b api.BucketID, gangUID string) *ReadReservation {
	m := &ReadReservation{}
	m.scan = &scan{corrupt: &m.Corrupt, kinds: []kind{{key: k.Reservation(b, gangUID), each: readReservation(k, &m.Found)}}}
	return m
}

// Next implements Machine.
func (m *ReadReservation) Next() (Txn, bool) { return m.scan.next() }

// Answered implements Machine.
func (m *ReadReservation) Answered(r Result) { m.scan.answered(r) }

// Lost implements Machine.
func (m *ReadReservation) Lost() {}

// Evicts reports whether the reservation is there, under no later attempt than the given one, and is closed or condemns a pod.
func (m *ReadReservation) Evicts(attempt uint64, pod string) bool {
	for _, r := range m.Found {
		if r.Record.GetAttempt() > attempt {
			continue
		}
		if r.Record.GetState() == wire.ReservationState_RESERVATION_CLOSING ||
			slices.ContainsFunc(r.Record.GetCondemned(), func(p *wire.SurplusPod) bool { return p.GetUid() == pod }) {
			return true
		}
	}
	return false
}

func readReservation(k Keys, into *[]StoredReservation) func(KV) error {
	return func(kv KV) error {
		r, err := k.DecodeReservation(kv)
		if r.GangUID != "" {
			*into = append(*into, r)
		}
		return err
	}
}
