package link

import (
	"log/slog"

	"google.golang.org/grpc/credentials"
)

// Transport returns the credentials of a server or client that is no Link.
func Transport(tls *TLS) credentials.TransportCredentials { return transport(tls, slog.Default()) }

// Inbound is how many senders have streams open here.
func (l *Link) Inbound() int {
	l.inMu.Lock()
	defer l.inMu.Unlock()
	return len(l.inbound)
}
