package link

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"syscall"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/credentials"
)

// plain are credentials without encryption. Both ends send a greeting and a nonce before anything else, so that a connection
// has an identity that a proof can be bound to, as TLS gives it one (see proof.go). An end that speaks TLS is recognised.
type plain struct {
	log       *slog.Logger
	sometimes *rate.Sometimes
}

const (
	greeting  = "basalt plain text 1\n"
	nonceSize = 32
)

func newPlain(log *slog.Logger) *plain {
	return &plain{log: log, sometimes: &rate.Sometimes{First: 10, Interval: 10 * time.Second}}
}

// plainInfo is what the handshake of a plain connection found out.
type plainInfo struct {
	credentials.CommonAuthInfo
	binding []byte // a hash of both nonces
}

// AuthType implements credentials.AuthInfo.
func (plainInfo) AuthType() string { return "plain" }

// ValidateAuthority lets any :authority be used: none is checked.
func (plainInfo) ValidateAuthority(string) error { return nil }

// ClientHandshake implements credentials.TransportCredentials.
func (p *plain) ClientHandshake(ctx context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	ours := hello()
	if _, err := conn.Write(ours); err != nil {
		return nil, nil, fmt.Errorf("greet the peer in plain text: %w", err)
	}
	theirs, err := readHello(conn)
	switch {
	case errors.Is(err, errNoGreeting), errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return nil, nil, fmt.Errorf("the peer does not speak plain text: is it started with --tls-cert? %w", err)
	case err != nil:
		return nil, nil, fmt.Errorf("wait for the peer's greeting in plain text: %w", err)
	case !stop():
		return nil, nil, ctx.Err() // the deadline is set, or will be in a moment
	}
	return conn, plainBinding(ours, theirs), nil
}

// ServerHandshake implements credentials.TransportCredentials.
func (p *plain) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	theirs, err := readHello(conn)
	if err != nil {
		if !errors.Is(err, io.EOF) { // EOF: a port scan
			p.sometimes.Do(func() {
				p.log.Warn("rejected a connection: this process does not use TLS", "remote", conn.RemoteAddr(), "error", err)
			})
		}
		return nil, nil, err
	}
	ours := hello()
	if _, err := conn.Write(ours); err != nil {
		return nil, nil, err
	}
	return conn, plainBinding(theirs, ours), nil
}

// Info implements credentials.TransportCredentials.
func (p *plain) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "insecure"}
}

// Clone implements credentials.TransportCredentials.
func (p *plain) Clone() credentials.TransportCredentials { return p }

// OverrideServerName implements credentials.TransportCredentials.
func (p *plain) OverrideServerName(string) error { return nil }

func hello() []byte {
	b := append([]byte(greeting), make([]byte, nonceSize)...)
	_, _ = rand.Read(b[len(greeting):]) // never fails
	return b
}

var errNoGreeting = errors.New("no greeting of a plain connection: TLS, or another protocol")

// readHello stops at the first byte that is not of a greeting: the other end may wait for us to speak.
func readHello(conn io.Reader) ([]byte, error) {
	b := make([]byte, len(greeting)+nonceSize)
	if _, err := io.ReadFull(conn, b[:1]); err != nil {
		return nil, err
	}
	if b[0] != greeting[0] {
		return nil, errNoGreeting
	}
	if _, err := io.ReadFull(conn, b[1:]); err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(b, []byte(greeting)) {
		return nil, errNoGreeting
	}
	return b, nil
}

func plainBinding(client, server []byte) plainInfo {
	sum := sha256.Sum256(append(append([]byte(nil), client...), server...))
	return plainInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}, sum[:]}
}
