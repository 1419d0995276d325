package protocol

import (
	"slices"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// Takeover is what an heir needs, at one revision. Records that cannot be read are there without a Record, and Corrupt
// says why; a key that cannot be read is only there.
type Takeover struct {
	Revision     int64
	Reservations []StoredReservation
	Intents      []StoredIntents
	Corrupt      []Corrupt
}

// ReadTakeover reads all reservations and all intents at one revision, which is the store's newest when it begins. When that
// is compacted meanwhile, it begins anew at a newer one.
type ReadTakeover struct {
	keys Keys
	scan *scan

	Takeover Takeover
}

// NewReadTakeover begins a ReadTakeover.
func NewReadTakeover(k Keys) *ReadTakeover {
	m := &ReadTakeover{keys: k}
	m.begin()
	return m
}

func (m *ReadTakeover) begin() {
	k, out := m.keys, &m.Takeover
	*out = Takeover{}
	m.scan = &scan{corrupt: &out.Corrupt, kinds: []kind{
		readIntents(k, &out.Intents),
		{prefix: k.Reservations(), most: 1000, each: readReservation(k, &out.Reservations)},
	}}
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
	return kind{prefix: k.AllIntents(), most: 100, each: func(kv KV) error {
		r, err := k.DecodeIntents(kv)
		if r.Incarnation != "" {
			*into = append(*into, r)
		}
		return err
	}}
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

// scan reads all keys of some kinds at one revision, page by page.
type scan struct {
	kinds    []kind
	revision int64  // 0: the store's newest, until the first answer
	from     string // where the next page begins; "" is the beginning
	limit    int64  // of the next page
	corrupt  *[]Corrupt
}

// kind is either all keys with a prefix, or one key.
type kind struct {
	prefix, key string
	most        int64 // keys in a page, of a prefix
	each        func(KV) error
}

func (s *scan) next() (Txn, bool) {
	if len(s.kinds) == 0 {
		return Txn{}, false
	}
	k := s.kinds[0]
	if k.key != "" {
		return plainRead(Op{Kind: Get, Key: k.key, Revision: s.revision}), true
	}
	if s.from == "" {
		s.from, s.limit = k.prefix, min(k.most, firstPage)
	}
	return plainRead(Op{Kind: Get, Key: s.from, End: prefixEnd(k.prefix), Revision: s.revision, Limit: s.limit}), true
}

// answered takes a page. It reports whether the revision was compacted: what was read so far is of no use then.
func (s *scan) answered(r Result) (compacted bool) {
	if r.Failure == Compacted {
		return true
	}
	if s.revision == 0 {
		s.revision = r.Revision
	}
	k, page := s.kinds[0], r.Reads[0]
	bytes := 0
	for _, kv := range page.Keys {
		bytes += len(kv.Key) + len(kv.Value.Bytes)
		if err := k.each(kv); err != nil {
			*s.corrupt = append(*s.corrupt, Corrupt{kv.Key, err})
		}
	}
	if page.More {
		s.limit = nextPage(s.limit, k.most, bytes)
		s.from = page.Keys[len(page.Keys)-1].Key + "\x00"
		return false
	}
	s.kinds, s.from = s.kinds[1:], ""
	return false
}

// Pages of a read begin with firstPage keys, and have about pageBytes where records are large: an answer has to arrive within
// the timeout of one request.
const (
	firstPage = 32
	pageBytes = 8 << 20
)

// nextPage returns how many keys the page after one of limit keys and so many bytes has: up to four times as many, so that
// it is expected to have pageBytes.
func nextPage(limit, most int64, bytes int) int64 {
	return max(1, min(most, 4*limit, limit*pageBytes/int64(max(1, bytes))))
}
