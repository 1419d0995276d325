package pool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"

	"basalt.dev/basalt/bench/stage/local"
)

// Socket is the environment variable with the socket at which the process that runs tests lends control planes.
const Socket = "BASALT_CONTROL_PLANES"

// What is said on a connection, which stands for one control plane: what is wanted, what there is, and at the end
// whether it comes back clean. A connection that ends without that had an owner that died.
type (
	wanted struct{ Options local.Options }
	lent   struct {
		Handle local.Handle
		Error  string
	}
	back struct{ Clean bool }
)

// Lend lends the pool's control planes to other processes of this user, at a socket, until it is stopped.
func (p *Pool) Lend() (socket string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "basalt-pool-")
	if err != nil {
		return "", nil, err
	}
	socket = filepath.Join(dir, "socket")
	l, err := net.Listen("unix", socket)
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
				defer conn.Close()
				p.serve(ctx, conn)
			})
		}
	})
	return socket, func() {
		cancel()
		_ = l.Close()
		all.Wait()
		_ = os.RemoveAll(dir)
	}, nil
}

func (p *Pool) serve(ctx context.Context, conn net.Conn) {
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	var want wanted
	if err := in.Decode(&want); err != nil {
		return
	}
	c, err := p.Take(ctx, want.Options)
	if err != nil {
		_ = out.Encode(lent{Error: err.Error()})
		return
	}
	p.mu.Lock()
	p.taken[c].lent = true
	p.mu.Unlock()
	var end back
	if out.Encode(lent{Handle: c.Handle()}) == nil {
		_ = in.Decode(&end)
	}
	p.Give(c, end.Clean)
}

// Borrow takes a control plane from the pool of another process. Whoever borrowed it calls giveBack, once; that reports
// servers of one that is not handed on which had died.
func Borrow(
	ctx context.Context, socket string, o local.Options,
) (_ *local.Cluster, giveBack func(clean bool) error, err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, nil, fmt.Errorf("borrow a control plane: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var got lent
	err = cmp.Or(json.NewEncoder(conn).Encode(wanted{o}), json.NewDecoder(conn).Decode(&got))
	if err == nil && got.Error != "" {
		err = errors.New(got.Error)
	}
	var c *local.Cluster
	if err == nil {
		c, err = local.Adopt(got.Handle)
	}
	if err != nil {
		_ = conn.Close()
		return nil, nil, fmt.Errorf("borrow a control plane: %w", err)
	}
	return c, func(clean bool) (died error) {
		if clean = clean && c.Untouched(); !clean {
			died = c.Stop()
		}
		_ = json.NewEncoder(conn).Encode(back{clean})
		_, _ = io.Copy(io.Discard, conn) // until it was taken back, so that the next one who asks can have it
		_ = conn.Close()
		return died
	}, nil
}
