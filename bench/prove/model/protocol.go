package model

import (
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api/store/protocol"
)

// Carry carries a transaction of Basalt's protocol out, on a store of messages.
func Carry(s *Store[proto.Message], t protocol.Txn) (protocol.Result, error) {
	done, err := s.Txn(Compares(t.If), operations(t.Then), operations(t.Else))
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return protocol.Result{Failure: protocol.LeaseGone}, nil
	case errors.Is(err, rpctypes.ErrCompacted):
		return protocol.Result{Failure: protocol.Compacted}, nil
	case err != nil:
		return protocol.Result{}, err
	}
	branch := t.Then
	if !done.Succeeded {
		branch = t.Else
	}
	out := protocol.Result{Succeeded: done.Succeeded, Revision: done.Revision, Reads: make([]protocol.Read, len(branch))}
	for i, a := range done.Answers {
		out.Reads[i].More = a.More
		for _, kv := range a.Keys {
			found := protocol.KV{Key: kv.Key, Create: kv.Create, Mod: kv.Mod, Lease: kv.Lease}
			if !branch[i].KeysOnly {
				found.Value.Message = kv.Value
			}
			out.Reads[i].Keys = append(out.Reads[i].Keys, found)
		}
	}
	return out, nil
}

// Compares are the compares of a transaction of Basalt's protocol.
func Compares(in []protocol.Compare) []Compare[proto.Message] {
	out := make([]Compare[proto.Message], len(in))
	for i, c := range in {
		out[i] = Compare[proto.Message]{Key: c.Key, Target: CreateRevision, Operand: c.Revision}
		if c.Target == protocol.ModRevision {
			out[i].Target = ModRevision
		}
	}
	return out
}

func operations(in []protocol.Op) []Op[proto.Message] {
	kinds := map[protocol.OpKind]OpKind{protocol.Put: Put, protocol.Delete: Delete, protocol.Get: Get}
	out := make([]Op[proto.Message], len(in))
	for i, o := range in {
		out[i] = Op[proto.Message]{Kind: kinds[o.Kind], Key: o.Key, End: o.End, Value: o.Value.Message, Lease: o.Lease, Revision: o.Revision, Limit: o.Limit}
	}
	return out
}
