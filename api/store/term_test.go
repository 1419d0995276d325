package store

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"basalt.dev/basalt/api/store/protocol"
)

// answering gives transactions the errors that it is told to, and lets the others land. It is for what takes minutes; how an
// etcd answers is in the other tests.
type answering struct {
	pb.KVClient
	err      func() error
	revision int64
	sent     int
}

func (a *answering) Txn(context.Context, *pb.TxnRequest, ...grpc.CallOption) (*pb.TxnResponse, error) {
	a.sent++
	if err := a.err(); err != nil {
		return nil, err
	}
	a.revision++
	return &pb.TxnResponse{Header: &pb.ResponseHeader{Revision: a.revision}, Succeeded: true}, nil
}

// A term waits for a right that it lacks for half a minute, then another may lead; for anything else as long as it takes. It goes
// on after an error if nothing that was sent can land any more.
func TestHowLongATermWaits(t *testing.T) {
	denied, full, lost := rpctypes.ErrGRPCPermissionDenied, rpctypes.ErrGRPCNoSpace, context.DeadlineExceeded
	type phase struct {
		err   error
		lasts time.Duration
	}
	const ever = 24 * time.Hour
	for _, c := range []struct {
		what   string
		phases []phase // then it is answered
		takes  time.Duration
		err    error
		broken bool
	}{
		{"at once", nil, 0, nil, false},
		{"denied for a while", []phase{{denied, 29 * time.Second}}, 29 * time.Second, nil, false},
		{"denied", []phase{{denied, ever}}, deniedAtMost, rpctypes.ErrPermissionDenied, false},
		{"denied after a try was lost", []phase{{lost, time.Millisecond}, {denied, ever}}, deniedAtMost, rpctypes.ErrPermissionDenied, true},
		{"without space", []phase{{full, time.Hour}}, time.Hour, nil, false},
		{"denied twice, and without space in between", []phase{{denied, 20 * time.Second}, {full, 20 * time.Second}, {denied, 20 * time.Second}}, time.Minute, nil, false},
		{"not answered", []phase{{lost, time.Minute}}, time.Minute, nil, false},
		{"not possible", []phase{{rpctypes.ErrGRPCTooManyOps, ever}}, 0, rpctypes.ErrTooManyOps, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			client := clientv3.NewCtxClient(t.Context())
			began, right := time.Now(), false
			etcd := &answering{revision: 9, err: func() error {
				at := time.Since(began)
				for _, p := range c.phases {
					if at -= p.lasts; at < 0 && !right {
						return p.err
					}
				}
				return nil
			}}
			client.KV = clientv3.NewKVFromKVClient(etcd, client)
			s := &Store{opts: Options{RequestTimeout: time.Second}, ctx: t.Context(), client: client, log: slog.New(slog.DiscardHandler)}
			l := &lease{store: s}
			l.ctx, l.over = context.WithCancel(t.Context())
			defer l.over()
			term := &Term{store: s, number: 3, lease: l, own: protocol.ResumeTerm("", 3, 9, 5), loaded: true}
			_, err := term.Commit(t.Context(), []protocol.Change{protocol.DeleteReservation("q", "g")})
			if took := time.Since(began); took < c.takes || took > c.takes+2*time.Second {
				t.Errorf("%s: it took %s, want %s", c.what, took, c.takes)
			}
			if !errors.Is(err, c.err) {
				t.Errorf("%s: %v, want %v", c.what, err, c.err)
			}
			if says := err != nil && strings.Contains(err.Error(), "fate is open"); says != c.broken {
				t.Errorf("%s: %v", c.what, err)
			}
			right = true
			before := etcd.sent
			if _, err := term.Commit(t.Context(), nil); (err != nil) != c.broken || (etcd.sent == before) != c.broken {
				t.Errorf("%s: the next transaction: %v, of which %d were sent", c.what, err, etcd.sent-before)
			}
		})
	}
}
