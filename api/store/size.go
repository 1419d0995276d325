package store

import (
	"context"
	"path"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// Size is the size of the control store's database at one endpoint, in bytes. Quota is 0 where the endpoint does not say it.
type Size struct {
	Endpoint            string
	Bytes, InUse, Quota int64
}

// Sizes asks each endpoint for its size. Endpoints that do not respond in time are left out.
func (s *Store) Sizes(ctx context.Context) []Size {
	ctx, cancel := context.WithTimeout(ctx, s.opts.RequestTimeout)
	defer cancel()
	found := make([]Size, len(s.opts.Endpoints))
	var wg sync.WaitGroup
	for i, endpoint := range s.opts.Endpoints {
		wg.Go(func() {
			if r, err := s.client.Status(ctx, endpoint); err == nil {
				found[i] = Size{endpoint, r.DbSize, r.DbSizeInUse, r.DbSizeQuota}
			}
		})
	}
	wg.Wait()
	out := found[:0]
	for _, size := range found {
		if size.Endpoint != "" {
			out = append(out, size)
		}
	}
	return out
}

// observed tells Options.Observed about each request.
func (o Options) observed(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	began := time.Now()
	err := invoke(ctx, method, req, reply, conn, opts...)
	if o.Observed != nil {
		o.Observed(path.Base(method), status.Code(err).String(), time.Since(began))
	}
	return err
}
