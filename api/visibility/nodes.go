package visibility

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	authorization "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// NodeShares says how full the nodes are, as the shards count it that place pods there. It is the answer in JSON;
// fields may be added.
type NodeShares struct {
	Resources []string   `json:"resources"`           // cpu and memory first
	Nodes     []NodeFree `json:"nodes"`               // by name
	MoreNodes int        `json:"moreNodes,omitempty"` // that there was no room for
	Silent    []string   `json:"silent,omitempty"`    // shards that do not answer: their nodes are not in it
}

// NodeFree is how much of a node is free.
type NodeFree struct {
	Name      string `json:"name"`
	OutOfSync bool   `json:"outOfSync,omitempty"` // what is free there is not known
	Free      []int8 `json:"free,omitempty"`      // percent of each of the resources, rounded down; -1: it has none
}

// Bounds of nodes.
const (
	maxNodeBytes     = 16 << 20
	maxNodeResources = 8
)

// nodes says how full the nodes are, to whoever may list them and see the status.
func (s *server) nodes(ctx context.Context, r *http.Request) (any, error) {
	who, err := s.overseer(ctx, r, "nodes")
	if err != nil {
		return nil, err
	}
	if err := s.Reviews.authorise(ctx, who, authorization.ResourceAttributes{Verb: "list", Resource: "nodes"}, false,
		fmt.Sprintf("user %q may not list nodes", who.Username)); err != nil {
		return nil, err
	}
	leave, err := s.everybody()
	if err != nil {
		return nil, err
	}
	defer leave()
	said, err := s.Nodes(ctx)
	return said, cannot("read the control store", err)
}

// CollectNodes asks all shards that the control store names. One that does not answer is named in the answer.
func CollectNodes(ctx context.Context, s Store,
	ask func(ctx context.Context, who api.Incarnation, address string) (*wire.NodesReply, error)) (*NodeShares, error) {
	shards, err := s.Shards(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(shards, func(a, b *wire.ShardRecord) int { return cmp.Compare(a.Name, b.Name) })
	shards = shards[:min(len(shards), maxShards)]
	replies, out := make([]*wire.NodesReply, len(shards)), &NodeShares{Nodes: []NodeFree{}}
	c := calls{turn: make(chan struct{}, askedAtOnce)}
	for i, record := range shards {
		c.call(ctx, func(ctx context.Context) {
			if reply, err := ask(ctx, api.Incarnation(record.Incarnation), record.Address); err == nil {
				replies[i] = reply
			}
		})
	}
	c.all.Wait()
	names := map[string]bool{}
	for i, reply := range replies {
		if reply == nil {
			out.Silent = append(out.Silent, shards[i].Name)
		}
		for _, name := range reply.GetResources() {
			names[name] = true
		}
	}
	out.Resources = foremost(names)
	size := 0
	for _, reply := range replies {
		out.MoreNodes += int(reply.GetMore())
		for i, name := range reply.GetNodes() {
			if size += len(name) + 40 + 5*len(out.Resources); size > maxNodeBytes {
				out.MoreNodes++
				continue
			}
			out.Nodes = append(out.Nodes, nodeFree(name, reply, i, out.Resources))
		}
	}
	slices.SortFunc(out.Nodes, func(a, b NodeFree) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// foremost orders names of resources, and keeps the first.
func foremost(names map[string]bool) []string {
	first := []string{string(corev1.ResourceCPU), string(corev1.ResourceMemory)}
	out := api.SortedKeys(names)
	slices.SortStableFunc(out, func(a, b string) int {
		of := func(name string) int { return (slices.Index(first, name) + len(first) + 1) % (len(first) + 1) }
		return cmp.Compare(of(a), of(b))
	})
	return out[:min(len(out), maxNodeResources)]
}

// nodeFree reads what a shard says of its node i. A reply that is too short says that nothing is known.
func nodeFree(name string, r *wire.NodesReply, i int, resources []string) NodeFree {
	width := len(r.GetResources())
	if len(r.GetFree()) < (i+1)*width || width == 0 {
		return NodeFree{Name: name, OutOfSync: true}
	}
	said, out := r.GetFree()[i*width:(i+1)*width], NodeFree{Name: name, Free: make([]int8, len(resources))}
	for j, what := range resources {
		at, is := slices.BinarySearch(r.GetResources(), what)
		switch {
		case !is:
			out.Free[j] = -1
		case said[at] <= 100:
			out.Free[j] = int8(said[at])
		case said[at] == api.ShareOfNone:
			out.Free[j] = -1
		default:
			return NodeFree{Name: name, OutOfSync: true}
		}
	}
	return out
}
