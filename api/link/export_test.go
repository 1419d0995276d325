package link

import (
	"cmp"
	"log/slog"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	"basalt.dev/basalt/api"
)

// Transport returns the credentials of a server or client that is no Link.
func Transport(tls *TLS) credentials.TransportCredentials { return transport(tls, slog.Default()) }

// Inbound is how many senders have streams open here.
func (l *Link) Inbound() int {
	l.inMu.Lock()
	defer l.inMu.Unlock()
	return len(l.inbound)
}

// Peer is what is known of a peer.
type Peer struct {
	Incarnation api.Incarnation
	Address     string
	Up          bool
	Queued      int
	Sent        uint64 // messages acknowledged
	Dropped     uint64 // messages that gave way to newer ones, were too large, or were on a stream that broke
}

// Peers lists the peers that messages were sent to and that have not been idle for long, by incarnation.
func (l *Link) Peers() []Peer {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]Peer, 0, len(l.peers))
	for _, p := range l.peers {
		out = append(out, p.describe())
	}
	slices.SortFunc(out, func(a, b Peer) int { return cmp.Compare(a.Incarnation, b.Incarnation) })
	return out
}

func (p *peer) describe() Peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Peer{Incarnation: p.to, Address: p.address, Up: p.up, Queued: len(p.queue) - p.head, Sent: p.sent, Dropped: p.dropped}
}

// Ahead is how many calls wait for their caller's record.
func (l *Link) Ahead() int64 { return l.ahead.Load() }

// SetPatience is for links that are started afterwards and end before the test.
func SetPatience(t *testing.T, d time.Duration) {
	before := patience
	patience = d
	t.Cleanup(func() { patience = before })
}
