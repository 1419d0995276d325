package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"basalt.dev/basalt/api/store/protocol"
)

// run drives a machine over etcd until it is done. It returns a definite error, after which nothing of the machine's newest
// transaction was written, or the end of ctx. A refused transaction counts as a lost one, which is always safe.
func (s *Store) run(ctx context.Context, m protocol.Machine) error {
	for {
		txn, more := m.Next()
		if !more {
			return nil
		}
		var r protocol.Result
		err := s.try(ctx, s.opts.RequestTimeout, func(ctx context.Context) (err error) {
			if r, err = s.send(ctx, txn); err != nil && !definite(err) {
				m.Lost()
				txn, _ = m.Next()
			}
			return err
		})
		if read, is := txn.PlainRead(); is && err != nil {
			return fmt.Errorf("read %q: %w", read.Key, err)
		}
		if err != nil {
			return err
		}
		m.Answered(r)
	}
}

// send sends a transaction once. A plain read is sent as one. All others compare the store's identity before anything else,
// and read it in the else-branch, where its answer comes first.
func (s *Store) send(ctx context.Context, t protocol.Txn) (protocol.Result, error) {
	if read, is := t.PlainRead(); is {
		resp, err := s.getOnce(ctx, read.Key, options(read)...)
		switch {
		case errors.Is(rpctypes.Error(err), rpctypes.ErrCompacted), errors.Is(err, rpctypes.ErrCompacted):
			return protocol.Result{Failure: protocol.Compacted}, nil
		case err != nil:
			return protocol.Result{}, err
		}
		return protocol.Result{Succeeded: true, Revision: resp.Header.Revision, Reads: []protocol.Read{{Keys: found(resp.Kvs), More: resp.More}}}, nil
	}
	identity := s.keys.Identity()
	compares := make([]clientv3.Cmp, 0, len(t.If)+1)
	compares = append(compares, clientv3.Compare(clientv3.Value(identity), "=", string(s.raw)))
	for _, c := range t.If {
		target := clientv3.CreateRevision
		if c.Target == protocol.ModRevision {
			target = clientv3.ModRevision
		}
		compares = append(compares, clientv3.Compare(target(c.Key), "=", c.Revision))
	}
	then := operations(make([]clientv3.Op, 0, len(t.Then)), t.Then)
	otherwise := operations(append(make([]clientv3.Op, 0, len(t.Else)+1), clientv3.OpGet(identity)), t.Else)
	if err := s.settled(ctx); err != nil {
		return protocol.Result{}, err
	}
	floor := s.highest.Load()
	resp, err := s.client.Txn(ctx).If(compares...).Then(then...).Else(otherwise...).Commit()
	if leaseGone(err) {
		return protocol.Result{Failure: protocol.LeaseGone}, nil
	}
	if err != nil {
		return protocol.Result{}, err
	}
	if err := s.check(ctx, resp.Header, floor); err != nil {
		return protocol.Result{}, err
	}
	answers := resp.Responses
	if !resp.Succeeded {
		if kvs := answers[0].GetResponseRange().GetKvs(); len(kvs) != 1 || !bytes.Equal(kvs[0].Value, s.raw) {
			return protocol.Result{}, s.lose("its identity changed")
		}
		answers = answers[1:]
	}
	r := protocol.Result{Succeeded: resp.Succeeded, Revision: resp.Header.Revision}
	if !resp.Succeeded { // no transaction of the protocol reads in its then-branch
		r.Reads = make([]protocol.Read, len(answers))
		for i, a := range answers {
			r.Reads[i] = protocol.Read{Keys: found(a.GetResponseRange().GetKvs()), More: a.GetResponseRange().GetMore()}
		}
	}
	return r, nil
}

func operations(out []clientv3.Op, in []protocol.Op) []clientv3.Op {
	for _, o := range in {
		switch o.Kind {
		case protocol.Put:
			if o.Lease == 0 {
				out = append(out, clientv3.OpPut(o.Key, string(o.Value.Bytes)))
			} else {
				out = append(out, clientv3.OpPut(o.Key, string(o.Value.Bytes), clientv3.WithLease(clientv3.LeaseID(o.Lease))))
			}
		case protocol.Delete:
			out = append(out, clientv3.OpDelete(o.Key))
		case protocol.Get:
			out = append(out, clientv3.OpGet(o.Key, options(o)...))
		}
	}
	return out
}

func options(get protocol.Op) []clientv3.OpOption {
	var out []clientv3.OpOption
	if get.End != "" {
		out = append(out, clientv3.WithRange(get.End))
	}
	if get.Limit > 0 {
		out = append(out, clientv3.WithLimit(get.Limit))
	}
	if get.Revision > 0 {
		out = append(out, clientv3.WithRev(get.Revision))
	}
	if get.KeysOnly {
		out = append(out, clientv3.WithKeysOnly())
	}
	return out
}

func found(in []*mvccpb.KeyValue) []protocol.KV {
	if len(in) == 0 {
		return nil
	}
	out := make([]protocol.KV, len(in))
	for i, kv := range in {
		out[i] = foundOne(kv)
	}
	return out
}

func foundOne(kv *mvccpb.KeyValue) protocol.KV {
	return protocol.KV{Key: string(kv.Key), Value: protocol.Value{Bytes: kv.Value}, Create: kv.CreateRevision, Mod: kv.ModRevision, Lease: kv.Lease}
}

func leaseGone(err error) bool {
	return errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseNotFound) || errors.Is(err, rpctypes.ErrLeaseNotFound)
}
