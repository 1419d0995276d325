package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"basalt.dev/basalt/bench/prove/model"
)

// patience is for a server that hangs, not a measure.
const patience = time.Minute

type (
	kv      = model.KV[string]
	result  = model.Result[string]
	compare = model.Compare[string]
	op      = model.Op[string]
	event   = model.Event[string]
)

// etcd is what both sides can do; revisions are the model's, which begin at 1.
type etcd interface {
	Txn([]compare, []op, []op) (result, error)
	Grant(id int64, short bool) error
	Leased(id int64) (bool, error)
	End(id int64) error
	Expire(id int64) error // waits until a short lease has run out
	Compact(revision int64) error
	Watch(key, end string, from int64) ([]event, error)
	Revision() int64
}

func newStorePair(t testing.TB, client *clientv3.Client) player {
	server := &realStore{client: client, ctx: t.Context()}
	resp, err := client.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	server.base, server.revision = resp.Header.Revision-1, 1
	server.prefix, server.leases = fmt.Sprintf("%s/%d/", t.Name(), resp.Header.Revision), resp.Header.Revision*1000
	m := modelStore{model.NewStore(func(a, b string) bool { return a == b })}
	say := func(e etcd) func(string) []string {
		return func(command string) []string {
			out, err := storeCommand(e, command)
			if err != nil {
				return []string{"refused: " + err.Error()}
			}
			return out
		}
	}
	return both(t, say(m), say(server))
}

// storeCommand carries out one line:
//
//	txn create(a)=0 mod(b)>3 then put(a,v,lease) delete(b*) get(a..c)@5#2 else get(a)
//	grant 1 | grant 1 short | alive 1 | revoke 1 | expire 1 | compact 5 | watch a* from 3
func storeCommand(e etcd, command string) ([]string, error) {
	f := strings.Fields(command)
	number := func(i int) int64 {
		n, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil {
			panic(fmt.Sprintf("%s: %v", command, err))
		}
		return n
	}
	switch f[0] {
	case "txn":
		var compares []compare
		branches := map[string][]op{}
		branch := ""
		for _, word := range f[1:] {
			switch {
			case word == "then" || word == "else":
				branch = word
			case branch == "":
				compares = append(compares, parseCompare(word))
			default:
				branches[branch] = append(branches[branch], parseOp(word))
			}
		}
		r, err := e.Txn(compares, branches["then"], branches["else"])
		if err != nil {
			return nil, err
		}
		out := []string{fmt.Sprintf("revision %d, %s", r.Revision, map[bool]string{true: "then", false: "else"}[r.Succeeded])}
		done := branches["then"]
		if !r.Succeeded {
			done = branches["else"]
		}
		for i, a := range r.Answers {
			switch done[i].Kind {
			case model.Get:
				line := "got"
				for _, kv := range a.Keys {
					line += " " + describeKV(kv)
				}
				if a.More {
					line += " and more"
				}
				out = append(out, line)
			case model.Delete:
				out = append(out, fmt.Sprintf("deleted %d", a.Deleted))
			}
		}
		return out, nil
	case "grant":
		return nil, e.Grant(number(1), len(f) > 2)
	case "alive":
		is, err := e.Leased(number(1))
		return []string{fmt.Sprint(is)}, err
	case "revoke":
		err := e.End(number(1))
		return []string{fmt.Sprintf("revision %d", e.Revision())}, err
	case "expire":
		err := e.Expire(number(1))
		return []string{fmt.Sprintf("revision %d", e.Revision())}, err
	case "compact":
		return nil, e.Compact(number(1))
	case "watch":
		key, end := parseRange(f[1])
		events, err := e.Watch(key, end, number(3))
		if err != nil {
			return nil, err
		}
		var out []string
		for _, v := range events {
			line := "put " + describeKV(&v.KV)
			if v.Deleted {
				line = fmt.Sprintf("deleted %s at %d", v.Key, v.Mod)
			}
			if v.Prev != nil {
				line += " was " + describeKV(v.Prev)
			}
			out = append(out, line)
		}
		return out, nil
	}
	panic("unknown command: " + command)
}

func describeKV(kv *kv) string {
	s := fmt.Sprintf("%s=%s(%d..%d #%d", kv.Key, kv.Value, kv.Create, kv.Mod, kv.Version)
	if kv.Lease != 0 {
		s += fmt.Sprintf(" lease %d", kv.Lease)
	}
	return s + ")"
}

var targets = map[string]model.Target{"create": model.CreateRevision, "mod": model.ModRevision, "version": model.Version, "value": model.Value, "lease": model.Lease}

func parseCompare(word string) compare {
	name, rest, _ := strings.Cut(word, "(")
	key, operand, _ := strings.Cut(rest, ")")
	c := compare{Key: key, Target: targets[name]}
	switch {
	case strings.HasPrefix(operand, "!="):
		c.Not, operand = true, operand[2:]
	case operand[0] == '<':
		c.Result, operand = -1, operand[1:]
	case operand[0] == '>':
		c.Result, operand = 1, operand[1:]
	default:
		operand = operand[1:]
	}
	if c.Target == model.Value {
		c.Value = operand
		return c
	}
	n, err := strconv.ParseInt(operand, 10, 64)
	if err != nil || c.Target == 0 {
		panic("no compare: " + word)
	}
	c.Operand = n
	return c
}

// parseRange reads a, a* (a prefix, * alone is everything), or a..c (without c).
func parseRange(s string) (key, end string) {
	if prefix, is := strings.CutSuffix(s, "*"); is {
		if prefix == "" {
			return "\x00", "\x00"
		}
		return prefix, model.PrefixEnd(prefix)
	}
	if from, to, is := strings.Cut(s, ".."); is {
		return from, to
	}
	return s, ""
}

func parseOp(word string) op {
	name, rest, _ := strings.Cut(word, "(")
	args, options, _ := strings.Cut(rest, ")")
	list := strings.Split(args, ",")
	var o op
	o.Key, o.End = parseRange(list[0])
	switch name {
	case "put":
		o.Kind, o.Value = model.Put, list[1]
		if len(list) > 2 {
			o.Lease, _ = strconv.ParseInt(list[2], 10, 64)
		}
	case "delete":
		o.Kind = model.Delete
	case "get":
		o.Kind = model.Get
		options, limit, _ := strings.Cut(options, "#")
		o.Limit, _ = strconv.ParseInt(limit, 10, 64)
		o.Revision, _ = strconv.ParseInt(strings.TrimPrefix(options, "@"), 10, 64)
	default:
		panic("no operation: " + word)
	}
	return o
}

// ---- the model

type modelStore struct{ *model.Store[string] }

func (m modelStore) Grant(id int64, _ bool) error  { return m.Store.Grant(id) }
func (m modelStore) Leased(id int64) (bool, error) { return m.Store.Leased(id), nil }
func (m modelStore) Expire(id int64) error         { return m.End(id) }

// ---- a real one

// realStore shifts revisions, keys and leases to where its run began.
type realStore struct {
	client   *clientv3.Client
	ctx      context.Context
	prefix   string
	base     int64
	revision int64 // the newest that was seen
	leases   int64
}

func (s *realStore) within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.ctx, patience)
}

func (s *realStore) Revision() int64 { return s.revision }

func (s *realStore) see(h *etcdserverpb.ResponseHeader) {
	s.revision = max(s.revision, h.Revision-s.base)
}

func (s *realStore) bounds(key, end string) (string, []clientv3.OpOption) {
	switch end {
	case "":
		return s.prefix + key, nil
	case "\x00":
		return s.prefix, []clientv3.OpOption{clientv3.WithPrefix()}
	}
	return s.prefix + key, []clientv3.OpOption{clientv3.WithRange(s.prefix + end)}
}

func (s *realStore) lease(id int64) int64 {
	if id == 0 {
		return 0
	}
	return s.leases + id
}

func (s *realStore) kv(p *mvccpb.KeyValue) *kv {
	out := &kv{Key: strings.TrimPrefix(string(p.Key), s.prefix), Value: string(p.Value), Create: p.CreateRevision - s.base, Mod: p.ModRevision - s.base, Version: p.Version}
	if p.Lease != 0 {
		out.Lease = p.Lease - s.leases
	}
	return out
}

func (s *realStore) Txn(compares []compare, then, otherwise []op) (result, error) {
	var cmps []clientv3.Cmp
	for _, c := range compares {
		how := map[int]string{-1: "<", 0: "=", 1: ">"}[c.Result]
		if c.Not {
			how = "!="
		}
		revision := c.Operand
		if revision != 0 {
			revision += s.base
		}
		key := s.prefix + c.Key
		switch c.Target {
		case model.CreateRevision:
			cmps = append(cmps, clientv3.Compare(clientv3.CreateRevision(key), how, revision))
		case model.ModRevision:
			cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(key), how, revision))
		case model.Version:
			cmps = append(cmps, clientv3.Compare(clientv3.Version(key), how, c.Operand))
		case model.Value:
			cmps = append(cmps, clientv3.Compare(clientv3.Value(key), how, c.Value))
		case model.Lease:
			cmps = append(cmps, clientv3.Compare(clientv3.LeaseValue(key), how, s.lease(c.Operand)))
		}
	}
	ops := func(in []op) (out []clientv3.Op) {
		for _, o := range in {
			key, opts := s.bounds(o.Key, o.End)
			switch o.Kind {
			case model.Put:
				out = append(out, clientv3.OpPut(key, o.Value, clientv3.WithLease(clientv3.LeaseID(s.lease(o.Lease)))))
			case model.Delete:
				out = append(out, clientv3.OpDelete(key, opts...))
			case model.Get:
				if o.Revision != 0 {
					opts = append(opts, clientv3.WithRev(o.Revision+s.base))
				}
				out = append(out, clientv3.OpGet(key, append(opts, clientv3.WithLimit(o.Limit))...))
			}
		}
		return out
	}
	ctx, cancel := s.within()
	defer cancel()
	resp, err := s.client.Txn(ctx).If(cmps...).Then(ops(then)...).Else(ops(otherwise)...).Commit()
	if err != nil {
		return result{}, rpctypes.Error(err)
	}
	s.see(resp.Header)
	out := result{Succeeded: resp.Succeeded, Revision: resp.Header.Revision - s.base}
	for _, r := range resp.Responses {
		var a model.Answer[string]
		if g := r.GetResponseRange(); g != nil {
			for _, p := range g.Kvs {
				a.Keys = append(a.Keys, s.kv(p))
			}
			a.More = g.More
		}
		if d := r.GetResponseDeleteRange(); d != nil {
			a.Deleted = d.Deleted
		}
		out.Answers = append(out.Answers, a)
	}
	return out, nil
}

func (s *realStore) Grant(id int64, short bool) error {
	ctx, cancel := s.within()
	defer cancel()
	seconds := int64(3600)
	if short {
		seconds = 2
	}
	_, err := etcdserverpb.NewLeaseClient(s.client.ActiveConnection()).LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{ID: s.lease(id), TTL: seconds})
	return rpctypes.Error(err)
}

func (s *realStore) Leased(id int64) (bool, error) {
	ctx, cancel := s.within()
	defer cancel()
	resp, err := s.client.KeepAliveOnce(ctx, clientv3.LeaseID(s.lease(id)))
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return false, nil
	}
	return err == nil && resp.TTL > 0, err
}

func (s *realStore) End(id int64) error {
	ctx, cancel := s.within()
	defer cancel()
	resp, err := s.client.Revoke(ctx, clientv3.LeaseID(s.lease(id)))
	if err != nil {
		return rpctypes.Error(err)
	}
	return s.look(resp.Header)
}

// look reads the newest revision: a revocation's answer is older than what it did.
func (s *realStore) look(*etcdserverpb.ResponseHeader) error {
	ctx, cancel := s.within()
	defer cancel()
	resp, err := s.client.Get(ctx, "x")
	if err == nil {
		s.see(resp.Header)
	}
	return err
}

func (s *realStore) Expire(id int64) error {
	ctx, cancel := s.within()
	defer cancel()
	known := false
	for { // that it is gone is the condition; how long that takes is etcd's affair
		resp, err := s.client.TimeToLive(ctx, clientv3.LeaseID(s.lease(id)))
		if err != nil {
			return rpctypes.Error(err)
		}
		if resp.TTL < 0 {
			if !known {
				return rpctypes.ErrLeaseNotFound
			}
			return s.look(resp.ResponseHeader)
		}
		known = true
		time.Sleep(50 * time.Millisecond)
	}
}

func (s *realStore) Compact(revision int64) error {
	ctx, cancel := s.within()
	defer cancel()
	_, err := s.client.Compact(ctx, s.base+revision)
	return rpctypes.Error(err)
}

// Watch reads until the server says that the watch has seen everything. An etcd notes that a watch wants previous
// values after the watch has begun (3.7.3, v3rpc/watch.go), and on a busy machine the first events go without. Those
// that have none for another reason, a compaction, have none again.
func (s *realStore) Watch(key, end string, from int64) (events []event, err error) {
	lacks := func(e event) bool { return e.Prev == nil && (e.Deleted || e.KV.Version > 1) }
	for range 5 {
		if events, err = s.watch(key, end, from); err != nil || !slices.ContainsFunc(events, lacks) {
			break
		}
	}
	return events, err
}

func (s *realStore) watch(key, end string, from int64) ([]event, error) {
	ctx, cancel := s.within()
	defer cancel()
	name, opts := s.bounds(key, end)
	w := clientv3.NewWatcher(s.client)
	defer w.Close()
	answers := w.Watch(ctx, name, append(opts, clientv3.WithRev(s.base+from), clientv3.WithPrevKV(), clientv3.WithCreatedNotify())...)
	var out []event
	ask := time.NewTicker(20 * time.Millisecond)
	defer ask.Stop()
	for {
		select {
		case <-ask.C: // is answered only once all is told
			if err := w.RequestProgress(ctx); err != nil {
				return nil, err
			}
		case resp, open := <-answers:
			if !open {
				return nil, fmt.Errorf("the watch ended: %w", ctx.Err())
			}
			if err := resp.Err(); err != nil {
				return nil, rpctypes.Error(err)
			}
			for _, e := range resp.Events {
				v := event{KV: *s.kv(e.Kv), Deleted: e.Type == mvccpb.DELETE}
				if e.PrevKv != nil {
					v.Prev = s.kv(e.PrevKv)
				}
				out = append(out, v)
			}
			if resp.Created && from > s.revision { // of the future it says no progress
				return nil, nil
			}
			if resp.IsProgressNotify() && resp.Header.Revision-s.base >= s.revision {
				return out, nil
			}
		}
	}
}

// drawStore draws operations on a few keys, leases and revisions, so that they meet.
func drawStore(rng *rand.Rand) func() string {
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	revision := int64(1) // about where the store is
	key := func() string { return pick("a", "b", "c", "ca", "d") }
	span := func() string { return pick(key(), key(), key(), "c*", "*", "a..c") }
	near := func() int64 { return max(1, revision-rng.Int64N(8)+1) }
	cmp := func() string {
		switch rng.IntN(6) {
		case 0, 1:
			return fmt.Sprintf("create(%s)%s0", key(), pick("=", "!=", ">"))
		case 2, 3:
			return fmt.Sprintf("mod(%s)%s%d", key(), pick("=", "!=", "<", ">"), near())
		case 4:
			return fmt.Sprintf("version(%s)%s%d", key(), pick("=", "!=", "<", ">"), rng.IntN(4))
		}
		return fmt.Sprintf("value(%s)%s%s", key(), pick("=", "!="), pick("x", "y"))
	}
	operation := func() string {
		switch rng.IntN(8) {
		case 0, 1, 2:
			return fmt.Sprintf("put(%s,%s)", key(), pick("x", "y", "z"))
		case 3:
			return fmt.Sprintf("put(%s,%s,%d)", key(), pick("x", "y"), 1+rng.IntN(2))
		case 4:
			return fmt.Sprintf("delete(%s)", span())
		case 5:
			return fmt.Sprintf("get(%s)@%d", span(), near())
		}
		return fmt.Sprintf("get(%s)%s", span(), pick("", "#1", "#2"))
	}
	return func() string {
		switch n := rng.IntN(40); {
		case n < 2:
			return fmt.Sprintf("grant %d", 1+rng.IntN(2))
		case n < 3:
			return fmt.Sprintf("revoke %d", 1+rng.IntN(2))
		case n < 4:
			return fmt.Sprintf("compact %d", max(1, near()-5))
		case n < 6:
			return fmt.Sprintf("watch %s from %d", span(), max(1, near()-3))
		}
		var words []string
		for range rng.IntN(3) {
			words = append(words, cmp())
		}
		words = append(words, "then")
		for range 1 + rng.IntN(2) {
			words = append(words, operation())
		}
		if len(words) > 2 {
			words = append(words, "else", operation())
		}
		if rng.IntN(3) > 0 {
			revision++
		}
		return "txn " + strings.Join(words, " ")
	}
}
