package link

import (
	"context"
	"crypto/ed25519"
	"time"

	"google.golang.org/grpc/codes"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"basalt.dev/basalt/api"
)

// Who a stream is from. A certificate says that the sender is a process of this Basalt, not which one, and whoever sends
// under another's incarnation could withdraw its gangs. So each process makes a key pair at its start, writes the public key
// into its record in the control store, and signs its own and the receiver's incarnation in the first frame of each stream.
// The signature needs no nonce: it says nothing to anybody but the receiver that it names, who gains nothing from it.
//
// So who can write the control store can be anybody; who has only a certificate can be nobody.

// register is how long a stream may be ahead of the watch that shows its sender's record.
const register = 3 * time.Second

func statement(from, to api.Incarnation) []byte {
	return []byte("basalt link\x00" + string(from) + "\x00" + string(to))
}

func (l *Link) proof(to api.Incarnation) []byte {
	if l.opts.Key == nil {
		return nil
	}
	return ed25519.Sign(l.opts.Key, statement(l.opts.Self, to))
}

// checkProof returns why a stream is not taken, nil when it is.
func (l *Link) checkProof(ctx context.Context, from api.Incarnation, proof []byte) error {
	if l.opts.KeyOf == nil {
		return nil
	}
	key, known := l.opts.KeyOf(from)
	for deadline := time.Now().Add(register); !known; key, known = l.opts.KeyOf(from) {
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
	if key == nil || len(key) == ed25519.PublicKeySize && ed25519.Verify(key, statement(from, l.opts.Self), proof) {
		return nil // a record without a key is of a version that made none
	}
	remote := "unknown"
	if p, ok := grpcpeer.FromContext(ctx); ok {
		remote = p.Addr.String()
	}
	l.log.Error("refused a stream: it does not prove the incarnation that it claims", "claimed", from, "remote", remote)
	return status.Errorf(codes.PermissionDenied, "this stream does not prove that it is from incarnation %s", from)
}
