package store_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

// rpcProxy stands between a client and its etcd and understands calls, but not what is in them. Its hooks may be replaced
// at any time.
type rpcProxy struct {
	upstream *grpc.ClientConn
	address  string

	mu     sync.Mutex
	before func(method string, request []byte) error   // an error is the answer
	after  func(method string, response []byte) []byte // replaces the answer
}

func newRPCProxy(t testing.TB, endpoint string) *rpcProxy {
	t.Helper()
	u, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	upstream, err := grpc.NewClient("passthrough:///"+u.Host, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &rpcProxy{upstream: upstream, address: l.Addr().String()}
	server := grpc.NewServer(grpc.ForceServerCodec(rawCodec{}), grpc.UnknownServiceHandler(p.handle))
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		upstream.Close()
	})
	return p
}

func (p *rpcProxy) endpoints() []string { return []string{"http://" + p.address} }

// set replaces the hooks.
func (p *rpcProxy) set(before func(method string, request []byte) error, after func(method string, response []byte) []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before, p.after = before, after
}

func (p *rpcProxy) handle(_ any, down grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(down)
	name := method[strings.LastIndex(method, "/")+1:]
	in, _ := metadata.FromIncomingContext(down.Context())
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(down.Context(), in.Copy()))
	defer cancel()
	up, err := p.upstream.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, grpc.ForceCodec(rawCodec{}))
	if err != nil {
		return err
	}
	refused := make(chan error, 1)
	go func() {
		for {
			var b []byte
			if err := down.RecvMsg(&b); err != nil {
				_ = up.CloseSend()
				return
			}
			p.mu.Lock()
			before := p.before
			p.mu.Unlock()
			if before != nil {
				if err := before(name, b); err != nil {
					refused <- err
					cancel()
					return
				}
			}
			if up.SendMsg(&b) != nil {
				return
			}
		}
	}()
	for {
		var b []byte
		if err := up.RecvMsg(&b); err != nil {
			select {
			case err := <-refused:
				return err
			default:
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		p.mu.Lock()
		after := p.after
		p.mu.Unlock()
		if after != nil {
			b = after(name, b)
		}
		if err := down.SendMsg(&b); err != nil {
			return err
		}
	}
}

// rawCodec leaves messages as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (rawCodec) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), b...)
	return nil
}
func (rawCodec) Name() string { return "proto" }
