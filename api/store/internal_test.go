package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"basalt.dev/basalt/api/certs/certstest"
	"basalt.dev/basalt/api/store/protocol"
)

// What an error says about the request: whether it is a refusal, and whether the same request would meet it again.
func TestWhatErrorsMean(t *testing.T) {
	for _, c := range []struct {
		err      error
		refusal  string
		definite bool
		tooLarge bool
	}{
		{nil, "", false, false},
		{rpctypes.ErrGRPCNoSpace, RefusedNoSpace, false, false},
		{rpctypes.ErrNoSpace, RefusedNoSpace, false, false},
		{rpctypes.ErrGRPCCorrupt, RefusedCorrupt, false, false},
		{rpctypes.ErrGRPCUserEmpty, RefusedPermission, false, false},
		{rpctypes.ErrGRPCUserNotFound, RefusedPermission, false, false},
		{rpctypes.ErrAuthFailed, RefusedPermission, false, false},
		{status.Error(codes.PermissionDenied, "no"), RefusedPermission, false, false},
		{status.Error(codes.Unauthenticated, "who"), RefusedPermission, false, false},
		{fmt.Errorf("%w: words", errBehind), RefusedBehind, false, false},
		{final(rpctypes.ErrGRPCPermissionDenied), RefusedPermission, true, false},
		{final(rpctypes.ErrGRPCNoSpace), RefusedNoSpace, false, false},
		{fmt.Errorf("%w: words", ErrReplaced), "", true, false},
		{fmt.Errorf("%w: words", protocol.ErrUnreadable), "", true, false},
		{rpctypes.ErrGRPCRequestTooLarge, "", true, true},
		{errors.New("trying to send message larger than max (3 vs. 2)"), "", true, true},
		{rpctypes.ErrGRPCCompacted, "", true, false},
		{rpctypes.ErrGRPCTooManyOps, "", true, false},
		{rpctypes.ErrGRPCDuplicateKey, "", true, false},
		{rpctypes.ErrGRPCLeaseNotFound, "", true, false},
		{status.Error(codes.InvalidArgument, "x"), "", true, false},
		{status.Error(codes.Unimplemented, "x"), "", true, false},
		{status.Error(codes.Unavailable, "x"), "", false, false},
		{rpctypes.ErrGRPCNoLeader, "", false, false},
		{context.DeadlineExceeded, "", false, false},
		{errors.New("x"), "", false, false},
	} {
		if got := refusal(c.err); got != c.refusal {
			t.Errorf("%v is the refusal %q, want %q", c.err, got, c.refusal)
		}
		if got := definite(c.err); got != c.definite {
			t.Errorf("%v is definite: %t", c.err, got)
		}
		if got := tooLarge(c.err); got != c.tooLarge {
			t.Errorf("%v says too large: %t", c.err, got)
		}
	}
	if leaseGone(nil) || leaseGone(rpctypes.ErrGRPCCompacted) || !leaseGone(rpctypes.ErrGRPCLeaseNotFound) || !leaseGone(rpctypes.ErrLeaseNotFound) {
		t.Error("which error says that a lease is gone")
	}
}

// A hint tells those who wait of each revision that is newer than all before.
func TestHint(t *testing.T) {
	h := hint{ch: make(chan struct{})}
	_, waits := h.get()
	told := func() bool {
		select {
		case <-waits:
			_, waits = h.get()
			return true
		default:
			return false
		}
	}
	for i, c := range []struct {
		revision int64
		told     bool
	}{{0, false}, {5, true}, {5, false}, {4, false}, {6, true}} {
		if h.raise(c.revision); told() != c.told {
			t.Errorf("%d: revision %d told: %t", i, c.revision, !c.told)
		}
	}
	if revision, _ := h.get(); revision != 6 {
		t.Errorf("the newest is %d", revision)
	}
	s := &Store{}
	for _, r := range []int64{3, 7, 5} {
		s.raise(r)
	}
	if s.highest.Load() != 7 {
		t.Errorf("the highest revision is %d", s.highest.Load())
	}
}

// How etcd is reached: limits that fit the largest request, and one try.
func TestClientConfig(t *testing.T) {
	c := Options{ConnectTimeout: 7 * time.Second}.config([]string{"http://e"})
	if c.MaxCallSendMsgSize != 1600<<10 || c.MaxCallRecvMsgSize != 256<<20 || c.MaxUnaryRetries != 1 || c.DialTimeout != 7*time.Second ||
		c.DialKeepAliveTime != 10*time.Second || c.DialKeepAliveTimeout != 3*time.Second || !slices.Equal(c.Endpoints, []string{"http://e"}) {
		t.Errorf("%+v", c)
	}
}

// What is read and written is sent with the options that the protocol names.
func TestOperations(t *testing.T) {
	ops := operations(nil, []protocol.Op{
		{Kind: protocol.Put, Key: "a", Value: protocol.Value{Bytes: []byte("v")}}, {Kind: protocol.Put, Key: "b", Lease: 5}, {Kind: protocol.Delete, Key: "c"},
		{Kind: protocol.Get, Key: "d", KeysOnly: true}, {Kind: protocol.Get, Key: "e", End: "f", Limit: 1, Revision: 9},
	})
	if len(ops) != 5 || !ops[0].IsPut() || string(ops[0].ValueBytes()) != "v" || !ops[1].IsPut() || !ops[2].IsDelete() || !ops[3].IsGet() || !ops[4].IsGet() {
		t.Fatalf("%+v", ops)
	}
	if !ops[3].IsKeysOnly() || ops[4].IsKeysOnly() || string(ops[4].RangeBytes()) != "f" || ops[4].Rev() != 9 || ops[3].Rev() != 0 || len(ops[3].RangeBytes()) != 0 || ops[4].Limit() != 1 || ops[3].Limit() != 0 {
		t.Errorf("reads: %+v", ops[3:])
	}
}

// Files that do not belong together are refused with their flags, none is plain text, and the certificate that is named is shown to
// the server.
func TestClientTLS(t *testing.T) {
	ca, dir := certstest.New(t, "test"), t.TempDir()
	cert, key := ca.Leaf(time.Now().Add(time.Hour), "client")
	file := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	caFile, certFile, keyFile := file("ca", ca.PEM()), file("cert", cert), file("key", key)
	for _, c := range []struct {
		endpoint, ca, cert, key, says string
	}{
		{"https://e", caFile, certFile, "", "belong together"},
		{"https://e", caFile, "", keyFile, "belong together"},
		{"http://e", caFile, "", "", "would not be encrypted"},
		{"http://e", "", certFile, keyFile, "would not be encrypted"},
		{"https://e", filepath.Join(dir, "none"), "", "", "--etcd-ca"},
	} {
		if _, err := ClientTLS([]string{c.endpoint}, c.ca, c.cert, c.key, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if only, err := ClientTLS([]string{"https://e"}, "", certFile, keyFile, slog.New(slog.DiscardHandler)); err != nil || only == nil {
		t.Errorf("with a certificate and the system's CAs: %v, %v", only, err)
	}
	if plain, err := ClientTLS([]string{"http://e"}, "", "", "", slog.New(slog.DiscardHandler)); err != nil || plain != nil {
		t.Errorf("without files: %v, %v", plain, err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.PEM())
	pair, err := tls.X509KeyPair(ca.Leaf(time.Now().Add(time.Hour), "server"))
	if err != nil {
		t.Fatal(err)
	}
	for _, with := range []bool{true, false} {
		c, k := certFile, keyFile
		if !with {
			c, k = "", ""
		}
		credentials, err := ClientTLS([]string{"https://e"}, caFile, c, k, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ours, theirs := net.Pipe()
		shown := make(chan int, 1)
		go func() {
			server := tls.Server(theirs, &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert, ClientCAs: pool, NextProtos: []string{"h2"}})
			if err := server.Handshake(); err != nil {
				t.Errorf("the server: %v", err)
			}
			shown <- len(server.ConnectionState().PeerCertificates)
		}()
		conn, _, err := credentials.ClientHandshake(t.Context(), "localhost", ours)
		if err != nil {
			t.Fatal(err)
		}
		if n := <-shown; (n == 1) != with {
			t.Errorf("with a certificate %t, %d were shown", with, n)
		}
		_ = conn.Close()
		_ = theirs.Close()
	}
}

// An answer of another cluster, or of a revision that had passed, is not used; any other raises the highest revision.
func TestAnswersAreChecked(t *testing.T) {
	settled := make(chan struct{})
	close(settled)
	for _, c := range []struct {
		known, cluster  uint64
		revision, floor int64
		used            bool
	}{
		{5, 5, 10, 10, true}, {5, 5, 11, 10, true}, {5, 5, 9, 10, false}, {5, 6, 11, 10, false}, {0, 6, 11, 10, true}, {0, 6, 9, 10, false},
	} {
		s := &Store{ctx: t.Context()}
		s.doubts.open = settled // nobody is asked
		s.cluster.Store(c.known)
		h := &pb.ResponseHeader{ClusterId: c.cluster, Revision: c.revision}
		if err := s.check(t.Context(), h, c.floor); (err == nil) != c.used || err != nil && !errors.Is(err, errBehind) {
			t.Errorf("%+v: %v", c, err)
		}
		if highest := s.highest.Load(); (highest == c.revision) != c.used {
			t.Errorf("%+v: the highest revision is %d", c, highest)
		}
		if err := s.checkCluster(t.Context(), h); (err == nil) != (c.known == 0 || c.known == c.cluster) {
			t.Errorf("%+v: the cluster alone: %v", c, err)
		}
	}
}

// What is called again and again until its context ends is told with the last answer that came in time.
func TestTryTellsTheLastAnswer(t *testing.T) {
	for _, c := range []struct {
		answers []string // the context ends with the last
		want    string
	}{{[]string{"a"}, "last answer: a"}, {[]string{"a", "b"}, "last answer: a"}, {[]string{"a", "b", "c"}, "last answer: b"}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			s := &Store{ctx: context.Background(), log: slog.New(slog.DiscardHandler)}
			calls := 0
			err := s.try(ctx, time.Minute, func(context.Context) error {
				if calls++; calls == len(c.answers) {
					cancel()
				}
				return errors.New(c.answers[calls-1])
			})
			if calls != len(c.answers) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("after %d calls %v, want %s", calls, err, c.want)
			}
		})
	}
}

// Of what gets no answer, the log says so once; of a refusal, it says what to do.
func TestTryLogsOnce(t *testing.T) {
	for _, c := range []struct {
		err             error
		silent, refuses int
	}{{errors.New("no answer"), 1, 0}, {rpctypes.ErrGRPCNoSpace, 0, 1}} {
		synctest.Test(t, func(t *testing.T) {
			var log strings.Builder
			s := &Store{ctx: context.Background(), log: slog.New(slog.NewTextHandler(&log, nil))}
			calls := 0
			if err := s.try(t.Context(), time.Minute, func(context.Context) error {
				if calls++; calls == 9 {
					return nil
				}
				return c.err
			}); err != nil {
				t.Error(err)
			}
			if n, m := strings.Count(log.String(), "does not respond"), strings.Count(log.String(), "refuses requests"); n != c.silent || m != c.refuses {
				t.Errorf("%v: %s", c.err, log.String())
			}
		})
	}
}
