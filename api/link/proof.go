package link

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/certs"
	"basalt.dev/basalt/api/wire"
)

// Who makes a call. A certificate says that the caller is a shard or a coordinator of this Basalt, not which one, and whoever
// sends under another's incarnation could withdraw its gangs. So each process makes a key pair at its start and writes the
// public key into its record in the control store. Each call carries the caller's incarnation, the one it is meant for, and
// a signature of both and of the connection: with TLS, of keying material exported from it (RFC 9266's tls-exporter under a
// label of our own), in plain text of the nonces that both ends sent first. A proof that was overheard, or given to a
// dishonest receiver, is worth nothing on another connection.
//
// So who can write the control store can be anybody; who has only a certificate can be nobody.
//
// Link and Relay are for incarnations alone. Inspect also answers an operator: by certificate with TLS, and in plain text a
// caller on the same machine. A ping is answered to everybody who can name the incarnation, and says no more than that it
// is there: a shard that is cut off from the control store cannot know a new coordinator, and must not look dead to it.
//
// An incarnation has another drained only on behalf of a user: it hands the user's token on, and the other has the API
// server review it. A user whom the API server's aggregator has named has no token here: then it hands on who that is,
// and the other has the API server review what that user may do. So far it believes an incarnation that has proved to
// be the one it says.

// register is how long a call may be ahead of the watch that shows its caller's record, and maxAhead how many calls may wait
// for that at a time: they prove nothing yet.
const (
	register = 3 * time.Second
	maxAhead = 1024
)

// Metadata of a call.
const (
	fromKey  = "basalt-from"
	toKey    = "basalt-to"
	proofKey = "basalt-proof-bin"
	tokenKey = "authorization"   // the token of a user on whose behalf a process calls,
	userKey  = "basalt-user-bin" // or who that is
)

// exporterLabel keeps our exported keying material apart from that of any other protocol.
const exporterLabel = "EXPORTER-basalt-link-1"

// Record is what the control store has of an incarnation.
type Record struct {
	Key  ed25519.PublicKey
	Role string // certs.NameShard or certs.NameCoordinator: a name that its certificate must have
}

func statement(binding []byte, from, to api.Incarnation) []byte {
	return []byte("basalt call\x00" + string(binding) + "\x00" + string(from) + "\x00" + string(to))
}

// binding is what both ends of a connection, and nobody else, have in common.
func binding(info credentials.AuthInfo) ([]byte, error) {
	switch info := info.(type) {
	case credentials.TLSInfo:
		return info.State.ExportKeyingMaterial(exporterLabel, nil, nonceSize)
	case plainInfo:
		return info.binding, nil
	}
	return nil, errors.New("the connection has no identity")
}

// proof adds the proof to each call of a connection. It implements credentials.PerRPCCredentials.
type proof struct {
	link *Link
	to   api.Incarnation
}

// GetRequestMetadata is called for each call, with the connection that it will use.
func (p proof) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	m := map[string]string{fromKey: string(p.link.opts.Self), toKey: string(p.to)}
	if p.link.opts.Key == nil {
		return m, nil
	}
	info, _ := credentials.RequestInfoFromContext(ctx)
	b, err := binding(info.AuthInfo)
	if err != nil {
		return nil, err
	}
	m[proofKey] = string(ed25519.Sign(p.link.opts.Key, statement(b, p.link.opts.Self, p.to)))
	return m, nil
}

// RequireTransportSecurity tells that a proof may travel in plain text: it serves nobody else.
func (p proof) RequireTransportSecurity() bool { return false }

// callerKey is under which a call's context has the incarnation that made it.
type callerKey struct{}

// Caller returns the proven incarnation of a call, "" for an operator's, and where the link has no KeyOf.
func Caller(ctx context.Context) api.Incarnation {
	who, _ := ctx.Value(callerKey{}).(api.Incarnation)
	return who
}

// User is a user on whose behalf a process calls: a token, or who it is, in an encoding of the caller's.
type User struct {
	Token string
	Named []byte
}

// WithUser returns a context for calls on behalf of a user. Who is called has to find out itself whose token it is, and
// what the user may do.
func WithUser(ctx context.Context, u User) context.Context {
	if u.Token != "" {
		return metadata.AppendToOutgoingContext(ctx, tokenKey, "Bearer "+u.Token)
	}
	return metadata.AppendToOutgoingContext(ctx, userKey, string(u.Named))
}

// UserOf returns the user of a call, nothing if it brings none along. It proves nothing yet.
func UserOf(ctx context.Context) (u User) {
	values, _ := metadata.FromIncomingContext(ctx)
	u.Token, _ = strings.CutPrefix(only(values, tokenKey), "Bearer ")
	u.Named = []byte(only(values, userKey))
	return u
}

// None reports whether a call is on behalf of nobody.
func (u User) None() bool { return u.Token == "" && len(u.Named) == 0 }

// unary authenticates a call.
func (l *Link) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	ctx, err := l.authenticate(ctx, info.FullMethod, request)
	if err != nil {
		return nil, err
	}
	return handle(ctx, request)
}

// stream authenticates a stream before anything of it is read.
func (l *Link) stream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	ctx, err := l.authenticate(stream.Context(), info.FullMethod, nil)
	if err != nil {
		return err
	}
	return handle(service, authenticated{stream, ctx})
}

type authenticated struct {
	grpc.ServerStream
	ctx context.Context
}

func (a authenticated) Context() context.Context { return a.ctx }

// operatorMethods begins the names of the methods that operators call.
var operatorMethods = "/" + wire.Inspect_ServiceDesc.ServiceName + "/"

// authenticate returns the context that the call's handler gets, or why the call is refused.
func (l *Link) authenticate(ctx context.Context, method string, message any) (context.Context, error) {
	if l.opts.KeyOf == nil {
		return ctx, nil
	}
	values, _ := metadata.FromIncomingContext(ctx)
	from, to := api.Incarnation(only(values, fromKey)), api.Incarnation(only(values, toKey))
	request, isStatus := message.(*wire.StatusRequest)
	ping := isStatus && request.GetPing()
	switch {
	case ping && to == l.opts.Self:
		return ctx, nil
	case from == "" && strings.HasPrefix(method, operatorMethods):
		if isOperator(ctx) && !ping {
			return ctx, nil
		}
		return ctx, status.Errorf(codes.PermissionDenied,
			"this is for callers with a certificate for %s, or on the same machine where processes speak plain text", certs.NameOperator)
	case method == wire.Inspect_Drain_FullMethodName && UserOf(ctx).None():
		return ctx, status.Error(codes.PermissionDenied, "a process cannot drain another, but for a user whom it names")
	case from == "":
		return ctx, status.Error(codes.Unauthenticated, "the call does not say who makes it")
	case to != l.opts.Self:
		return ctx, status.Errorf(codes.FailedPrecondition, "the call is for incarnation %q, which is not here", to)
	}
	if err := l.checkProof(ctx, from, []byte(only(values, proofKey))); err != nil {
		return ctx, err
	}
	return context.WithValue(ctx, callerKey{}, from), nil
}

// only returns the one value of a key, "" where there are none or several.
func only(values metadata.MD, key string) string {
	if v := values.Get(key); len(v) == 1 {
		return v[0]
	}
	return ""
}

// checkProof returns why a call is not from whom it says, nil when it is.
func (l *Link) checkProof(ctx context.Context, from api.Incarnation, signature []byte) error {
	record, known := l.opts.KeyOf(from)
	if !known {
		defer l.ahead.Add(-1)
		if l.ahead.Add(1) > maxAhead {
			return status.Errorf(codes.ResourceExhausted, "the control store knows no incarnation %q, and %d calls wait for such already", from, maxAhead)
		}
	}
	for deadline := time.Now().Add(register); !known; record, known = l.opts.KeyOf(from) {
		if time.Now().After(deadline) {
			return status.Errorf(codes.Unavailable, "the control store knows no incarnation %q", from)
		}
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-l.ctx.Done():
			return status.Error(codes.Unavailable, "stopping")
		case <-time.After(20 * time.Millisecond):
		}
	}
	p, _ := grpcpeer.FromContext(ctx)
	remote := "unknown"
	if p.Addr != nil {
		remote = p.Addr.String()
	}
	b, err := binding(p.AuthInfo)
	if err != nil || len(record.Key) != ed25519.PublicKeySize || !ed25519.Verify(record.Key, statement(b, from, l.opts.Self), signature) {
		l.log.Error("rejected a call: the caller did not prove the incarnation that it claims", "claimed", from, "remote", remote)
		return status.Errorf(codes.PermissionDenied, "this call does not prove that it is from incarnation %s", from)
	}
	if leaf := certificate(p.AuthInfo); leaf != nil && leaf.VerifyHostname(record.Role) != nil {
		l.log.Error("rejected a call: the certificate belongs to another role", "claimed", from, "remote", remote, "role", record.Role, "certificate", leaf.DNSNames)
		return status.Errorf(codes.PermissionDenied, "incarnation %s is registered as %s, and its certificate is valid for %q", from, record.Role, leaf.DNSNames)
	}
	return nil
}

// certificate returns that of the other end, nil in plain text.
func certificate(info credentials.AuthInfo) *x509.Certificate {
	if t, ok := info.(credentials.TLSInfo); ok && len(t.State.PeerCertificates) > 0 {
		return t.State.PeerCertificates[0]
	}
	return nil
}

// isOperator reports whether the caller has an operator's certificate, or in plain text is on this machine.
func isOperator(ctx context.Context) bool {
	p, _ := grpcpeer.FromContext(ctx)
	switch info := p.AuthInfo.(type) {
	case credentials.TLSInfo:
		leaf := certificate(info)
		return leaf != nil && leaf.VerifyHostname(certs.NameOperator) == nil
	case plainInfo:
		remote, local := addressOf(p.Addr), addressOf(p.LocalAddr)
		return remote != nil && (remote.IsLoopback() || remote.Equal(local))
	}
	return false
}

func addressOf(a net.Addr) net.IP {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.IP
	}
	return nil
}
