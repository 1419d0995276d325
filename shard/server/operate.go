package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/link"
	"basalt.dev/basalt/api/visibility"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/node"
)

// drainWithin is how long another shard may take to write into its record that it drains.
const drainWithin = 3 * time.Second

// statusOfAll answers a user who may see everything: it reads the control store and asks all processes.
func (l *loop) statusOfAll(ctx context.Context, scope visibility.Scope) (*visibility.Status, error) {
	return visibility.Collect(ctx, l.process.Store, func(ctx context.Context, who api.Incarnation, address string) (*wire.StatusReply, error) {
		if who == l.self {
			return l.status(ctx)
		}
		return inspect(l, who, address, func(c wire.InspectClient) (*wire.StatusReply, error) {
			return c.Status(ctx, &wire.StatusRequest{})
		})
	}, scope)
}

// nodesOfAll answers such a user, if he may list nodes as well.
func (l *loop) nodesOfAll(ctx context.Context) (*visibility.NodeShares, error) {
	return visibility.CollectNodes(ctx, l.process.Store, func(ctx context.Context, who api.Incarnation,
		address string) (*wire.NodesReply, error) {
		if who == l.self {
			return l.nodes(ctx)
		}
		return inspect(l, who, address, func(c wire.InspectClient) (*wire.NodesReply, error) {
			return c.Nodes(ctx, &wire.NodesRequest{})
		})
	})
}

// maxNames bounds the names of nodes in an answer, in bytes.
const maxNames = 8 << 20

// nodes says how full the nodes of this shard are.
func (l *loop) nodes(ctx context.Context) (*wire.NodesReply, error) {
	if !l.hasStarted() {
		return nil, errNotStarted
	}
	var reply *wire.NodesReply
	if err := l.ask(ctx, func() { reply = node.Shares(l.cores.Node) }); err != nil {
		return nil, err
	}
	if reply == nil {
		return nil, status.Error(codes.Unavailable, "it is taking nodes over")
	}
	size := 0
	for i, name := range reply.Nodes {
		if size += len(name); size > maxNames {
			reply.More = uint32(len(reply.Nodes) - i)
			reply.Nodes, reply.Free = reply.Nodes[:i], reply.Free[:i*len(reply.Resources)]
			break
		}
	}
	return reply, nil
}

// draining answers a user how far a shard is.
func (l *loop) draining(ctx context.Context, shard string) (visibility.Drain, error) {
	return visibility.Draining(ctx, l.process.Store, shard)
}

// drainAnywhere has a shard drained on behalf of a user. Another shard is handed the user's token: it does not believe
// this one. Of a user without one, whom the API server has named, it is told the name.
func (l *loop) drainAnywhere(ctx context.Context, shard string, cancel bool, by visibility.Caller) (visibility.Drain, error) {
	return visibility.Order(ctx, l.process.Store, shard, cancel, func(ctx context.Context, record *wire.ShardRecord) error {
		if api.Incarnation(record.Incarnation) == l.self {
			return l.drain(ctx, cancel, by.Username)
		}
		named, err := json.Marshal(by.UserInfo)
		if err != nil {
			return err
		}
		if l.process.TLS == nil && !onThisMachine(record.Address) {
			return fmt.Errorf("without TLS a user's token is not sent to %s", record.Address)
		}
		conn, err := l.process.Link.Dial(api.Incarnation(record.Incarnation), record.Address)
		if err != nil {
			return err
		}
		defer conn.Close()
		ctx, stop := context.WithTimeout(link.WithUser(ctx, link.User{Token: by.Token, Named: named}), drainWithin)
		defer stop()
		_, err = wire.NewInspectClient(conn).Drain(ctx, &wire.DrainRequest{Cancel: cancel})
		if status.Code(err) == codes.PermissionDenied {
			return fmt.Errorf("shard %s refuses: %s", record.Name, status.Convert(err).Message())
		}
		return err
	})
}

// mayDrain says on whose behalf another process may drain this one, and an error for who may not.
func (l *loop) mayDrain(ctx context.Context, from api.Incarnation, by link.User) (string, error) {
	if !l.hasStarted() {
		return "", errNotStarted
	}
	caller := visibility.Caller{Token: by.Token}
	if by.Token == "" {
		if err := json.Unmarshal(by.Named, &caller.UserInfo); err != nil {
			return "", fmt.Errorf("read who asks: %w", err)
		}
	}
	return l.reviews.MayDrain(ctx, string(from), caller, l.process.Name)
}

func onThisMachine(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && ip != nil && ip.IsLoopback()
}
