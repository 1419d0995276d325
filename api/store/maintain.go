package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"basalt.dev/basalt/api/store/protocol"
)

// Maintenance is an operator's connection to a control store, also to one that Open refuses: without space, restored from a snapshot,
// or written by a newer version.
//
// There is no restore. A snapshot lacks the reservations and the bindings that came after it, and has those that ended since: whatever
// it says has to be compared with the bound pods, which is all that an empty store needs. So a lost store is replaced by an empty one,
// and one that was restored all the same is emptied by Forget. Save is for diagnosis.
type Maintenance struct {
	client *clientv3.Client
	opts   Options
	keys   protocol.Keys
}

// Maintain connects to a control store. It writes nothing.
func Maintain(o Options) (*Maintenance, error) {
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, 10*time.Second)
	o.RequestTimeout = cmp.Or(o.RequestTimeout, 5*time.Second)
	client, err := clientv3.New(o.config(o.Endpoints))
	if err != nil {
		return nil, fmt.Errorf("open control store at %s: %w", strings.Join(o.Endpoints, ","), err)
	}
	return &Maintenance{client: client, opts: o, keys: protocol.Keys(o.Prefix)}, nil
}

// Close ends the connection.
func (m *Maintenance) Close() error { return m.client.Close() }

// StoreMember is a member of the control store. Err says why it did not answer; then only its ID, Name and Endpoint are known.
type StoreMember struct {
	ID                  uint64
	Name, Endpoint      string
	Version             string // of etcd
	Leads               bool
	Bytes, InUse, Quota int64
	Alarms              []string // NOSPACE, CORRUPT
	Err                 error
}

// Members asks every member at the endpoint given for it. A member without one has an error, too.
func (m *Maintenance) Members(ctx context.Context) ([]StoreMember, error) {
	list, err := within(ctx, m.opts.RequestTimeout, func(ctx context.Context) (*clientv3.MemberListResponse, error) { return m.client.MemberList(ctx) })
	if err != nil {
		return nil, fmt.Errorf("list the members of the control store: %w", err)
	}
	alarms, err := within(ctx, m.opts.RequestTimeout, m.client.AlarmList)
	if err != nil {
		return nil, fmt.Errorf("list the alarms of the control store: %w", err)
	}
	members := map[uint64]*StoreMember{}
	for _, e := range list.Members {
		members[e.ID] = &StoreMember{ID: e.ID, Name: e.Name, Err: errors.New("none of the endpoints in --etcd is its")}
	}
	var failed []error
	for _, endpoint := range m.opts.Endpoints {
		r, err := within(ctx, m.opts.RequestTimeout, func(ctx context.Context) (*clientv3.StatusResponse, error) { return m.client.Status(ctx, endpoint) })
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", endpoint, err))
			continue
		}
		member := members[r.Header.MemberId]
		if member == nil || r.Header.ClusterId != list.Header.ClusterId {
			return nil, fmt.Errorf("%s belongs to another etcd cluster than the other endpoints in --etcd", endpoint)
		}
		*member = StoreMember{ID: member.ID, Name: member.Name, Endpoint: endpoint, Version: r.Version, Leads: r.Leader == member.ID, Bytes: r.DbSize, InUse: r.DbSizeInUse, Quota: r.DbSizeQuota}
	}
	for _, a := range alarms.Alarms {
		if member := members[a.MemberID]; member != nil {
			member.Alarms = append(member.Alarms, pb.AlarmType(a.Alarm).String())
		}
	}
	var out []StoreMember
	for _, member := range members {
		if member.Err != nil && len(failed) > 0 {
			member.Err = errors.Join(failed...)
		}
		out = append(out, *member)
	}
	slices.SortFunc(out, func(a, b StoreMember) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return out, nil
}

// Kinds of Basalt's keys, in the order in which Keys counts them.
var Kinds = []string{"store", "leader", "seq", "table", "shards", "queues", "reservations", "intents"}

// Keys counts Basalt's keys by kind. A key of nobody's is an error that names it: this etcd is not Basalt's alone.
func (m *Maintenance) Keys(ctx context.Context) (counts map[string]int64, err error) {
	counts = map[string]int64{}
	sum := int64(0)
	for kind, r := range m.ranges() {
		resp, err := within(ctx, m.opts.RequestTimeout, func(ctx context.Context) (*clientv3.GetResponse, error) {
			return m.client.Get(ctx, r.key, append(r.opts, clientv3.WithCountOnly())...)
		})
		if err != nil {
			return nil, fmt.Errorf("count keys: %w", err)
		}
		counts[kind] = resp.Count
		sum += resp.Count
	}
	all := []clientv3.OpOption{clientv3.WithPrefix()}
	if m.opts.Prefix == "" {
		all = []clientv3.OpOption{clientv3.WithFromKey()}
	}
	from := cmp.Or(m.opts.Prefix, "\x00")
	for more := true; more; {
		resp, err := within(ctx, m.opts.RequestTimeout, func(ctx context.Context) (*clientv3.GetResponse, error) {
			return m.client.Get(ctx, from, append(all, clientv3.WithKeysOnly(), clientv3.WithLimit(10_000))...)
		})
		if err != nil {
			return nil, fmt.Errorf("list keys: %w", err)
		}
		for _, kv := range resp.Kvs {
			if !m.ours(string(kv.Key)) {
				return counts, fmt.Errorf("%w: key %q", ErrNotOurs, kv.Key)
			}
			from = string(kv.Key) + "\x00"
		}
		if more = resp.More; m.opts.Prefix != "" {
			all = []clientv3.OpOption{clientv3.WithRange(clientv3.GetPrefixRangeEnd(m.opts.Prefix))}
		}
	}
	return counts, nil
}

// ErrNotOurs says that an etcd has keys that are not Basalt's.
var ErrNotOurs = errors.New("this etcd is not Basalt's control store alone")

type keyRange struct {
	key  string
	opts []clientv3.OpOption
}

func (m *Maintenance) ranges() map[string]keyRange {
	out := map[string]keyRange{}
	for _, kind := range Kinds {
		switch kind {
		case "store", "seq", "table":
			out[kind] = keyRange{key: m.opts.Prefix + kind}
		default:
			out[kind] = keyRange{m.opts.Prefix + kind + "/", []clientv3.OpOption{clientv3.WithPrefix()}}
		}
	}
	return out
}

func (m *Maintenance) ours(key string) bool {
	kind, _, _ := strings.Cut(strings.TrimPrefix(key, m.opts.Prefix), "/")
	return slices.Contains(Kinds, kind)
}

// Snapshot says what Save wrote.
type Snapshot struct {
	Revision int64  `json:"revision"` // or a later one
	Cluster  string `json:"etcdCluster"`
	Etcd     string `json:"etcd"` // version that can read it
	Bytes    int64  `json:"bytes"`
	SHA256   string `json:"sha256"`
}

// Save writes a snapshot of one member, as etcdutl reads it, and checks the digest that etcd appends to it.
func (m *Maintenance) Save(ctx context.Context, w io.Writer) (Snapshot, error) {
	now, err := within(ctx, m.opts.RequestTimeout, func(ctx context.Context) (*clientv3.GetResponse, error) { return m.client.Get(ctx, m.keys.Identity()) })
	if err != nil {
		return Snapshot{}, fmt.Errorf("save the control store: %w", err)
	}
	r, err := m.client.SnapshotWithVersion(ctx) // etcd leaves its header empty
	if err != nil {
		return Snapshot{}, fmt.Errorf("save the control store: %w", err)
	}
	defer r.Snapshot.Close()
	whole, inner := sha256.New(), sha256.New()
	out := Snapshot{Revision: now.Header.Revision, Cluster: fmt.Sprintf("%x", now.Header.ClusterId), Etcd: r.Version}
	var tail []byte
	buffer := make([]byte, 1<<20)
	for {
		n, err := r.Snapshot.Read(buffer)
		if _, err := w.Write(buffer[:n]); err != nil {
			return out, fmt.Errorf("save the control store: %w", err)
		}
		whole.Write(buffer[:n])
		out.Bytes += int64(n)
		tail = append(tail, buffer[:n]...)
		if over := len(tail) - sha256.Size; over > 0 {
			inner.Write(tail[:over])
			tail = append(tail[:0], tail[over:]...)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return out, fmt.Errorf("save the control store: %w", err)
		}
	}
	if string(inner.Sum(nil)) != string(tail) {
		return out, errors.New("save the control store: what arrived does not have the digest that etcd gave it")
	}
	out.SHA256 = hex.EncodeToString(whole.Sum(nil))
	return out, nil
}

// Forget deletes, in one transaction, all that Basalt rebuilds from the cluster: identity, table, limits and reservations. Processes
// start over when they see that, and nothing is admitted until what is bound is charged again. Intents stay: nothing else knows of
// a Binding that may still be on its way, and whoever owns its node resolves each. It refuses an etcd with keys of others.
func (m *Maintenance) Forget(ctx context.Context) (counts map[string]int64, err error) {
	if counts, err = m.Keys(ctx); err != nil {
		return nil, err
	}
	var ops []clientv3.Op
	for kind, r := range m.ranges() {
		switch kind {
		case "store", "seq", "table", "queues", "reservations":
			ops = append(ops, clientv3.OpDelete(r.key, r.opts...))
		}
	}
	_, err = within(ctx, m.opts.RequestTimeout, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return m.client.Txn(ctx).Then(ops...).Commit()
	})
	if err != nil {
		return nil, fmt.Errorf("empty the control store: %w", err)
	}
	return counts, nil
}

// Defragment gives the file system what each member's database does not use, one member after another and the leader last. While
// one is at it, requests to it wait. Where a member is out of space, history is compacted first and the alarm is disarmed in the
// end. It begins nothing unless every member answers and none is corrupt. progress hears of each member, before and after.
func (m *Maintenance) Defragment(ctx context.Context, progress func(before, after StoreMember)) error {
	members, err := m.Members(ctx)
	if err != nil {
		return err
	}
	full := false
	for _, e := range members {
		if e.Err != nil {
			return fmt.Errorf("member %s does not answer, and another one would pause: %w", e.Name, e.Err)
		}
		if slices.Contains(e.Alarms, pb.AlarmType_CORRUPT.String()) {
			return fmt.Errorf("member %s is corrupt: replace it first", e.Name)
		}
		full = full || slices.Contains(e.Alarms, pb.AlarmType_NOSPACE.String())
	}
	if full {
		now, err := within(ctx, m.opts.RequestTimeout, func(ctx context.Context) (*clientv3.GetResponse, error) { return m.client.Get(ctx, m.keys.Identity()) })
		if err == nil {
			_, err = within(ctx, time.Minute, func(ctx context.Context) (*clientv3.CompactResponse, error) {
				return m.client.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
			})
		}
		if err != nil && !strings.Contains(err.Error(), "has been compacted") {
			return fmt.Errorf("compact the control store: %w", err)
		}
	}
	slices.SortStableFunc(members, func(a, b StoreMember) int {
		switch {
		case a.Leads == b.Leads:
			return 0
		case a.Leads:
			return 1
		}
		return -1
	})
	fits := true
	for _, before := range members {
		if _, err := m.client.Defragment(ctx, before.Endpoint); err != nil {
			return fmt.Errorf("defragment member %s: %w", before.Name, err)
		}
		r, err := within(ctx, m.opts.RequestTimeout, func(ctx context.Context) (*clientv3.StatusResponse, error) {
			return m.client.Status(ctx, before.Endpoint)
		})
		if err != nil {
			return fmt.Errorf("ask member %s: %w", before.Name, err)
		}
		after := before
		after.Bytes, after.InUse = r.DbSize, r.DbSizeInUse
		fits = fits && (before.Quota == 0 || after.Bytes < before.Quota/10*9)
		progress(before, after)
	}
	switch {
	case !full:
		return nil
	case !fits:
		return errors.New("the alarm NOSPACE stays: more than 90 % of the quota is in use; raise --quota-backend-bytes of etcd")
	}
	for _, e := range members {
		if slices.Contains(e.Alarms, pb.AlarmType_NOSPACE.String()) {
			_, err := within(ctx, m.opts.RequestTimeout, func(ctx context.Context) (*clientv3.AlarmResponse, error) {
				return m.client.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: e.ID, Alarm: pb.AlarmType_NOSPACE})
			})
			if err != nil {
				return fmt.Errorf("disarm the alarm of member %s: %w", e.Name, err)
			}
		}
	}
	return nil
}

// within calls with a limit of time.
func within[R any](ctx context.Context, limit time.Duration, call func(context.Context) (R, error)) (R, error) {
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	return call(ctx)
}
