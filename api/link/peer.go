package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wait"
	"basalt.dev/basalt/api/wire"
)

const (
	shortest = 50 * time.Millisecond
	longest  = time.Second
)

// patience is how long a receiver may take to acknowledge a frame before it counts as down. Tests have less of it.
var patience = 5 * time.Second

var connectBackoff = backoff.Config{BaseDelay: shortest, Multiplier: 2, Jitter: 0.2, MaxDelay: longest}

// errIdle ends a stream that had nothing to say, errMoved one whose peer has another address now.
var (
	errIdle  = errors.New("idle")
	errMoved = errors.New("the address changed")
)

// peer is the sending side of one stream: a queue and the goroutine that empties it.
type peer struct {
	link   *Link
	to     api.Incarnation
	ctx    context.Context
	cancel context.CancelFunc
	wake   chan struct{} // the queue has something, or the address changed

	mu       sync.Mutex
	address  string
	queue    []*wire.Envelope // queue[head:] waits
	head     int
	up       bool
	sent     uint64
	dropped  uint64
	complain bool // the next drop of a run is worth a line

	refused string // of the goroutine: the refusal that was logged last
}

func newPeer(l *Link, to api.Incarnation, address string) *peer {
	p := &peer{link: l, to: to, address: address, wake: make(chan struct{}, 1), complain: true}
	p.ctx, p.cancel = context.WithCancel(l.ctx)
	return p
}

func (p *peer) push(address string, m *wire.Envelope) {
	p.mu.Lock()
	if address != "" {
		p.address = address
	}
	if len(p.queue)-p.head >= p.link.opts.Queue {
		p.queue[p.head] = nil
		p.head++
		p.dropped++
		if p.complain {
			p.complain = false
			p.link.log.Warn("message queue to peer is full, dropping the oldest", "peer", p.to, "address", p.address)
		}
	}
	if p.head > 1024 && p.head > len(p.queue)/2 {
		n := copy(p.queue, p.queue[p.head:])
		clear(p.queue[n:])
		p.queue, p.head = p.queue[:n], 0
	}
	p.queue = append(p.queue, m)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// next takes a frame's worth from the queue, nil when there is nothing.
func (p *peer) next() []*wire.Envelope {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*wire.Envelope
	size := 0
	for p.head < len(p.queue) && len(out) < frameCount {
		m := p.queue[p.head]
		n := proto.Size(m)
		if n > MaxMessage {
			p.dropped++
			kind, gang := describe(m)
			p.link.log.Error("message is too large, dropping it", "peer", p.to, "message", kind, "gang", gang, "bytes", n, "limit", MaxMessage)
		} else {
			if len(out) > 0 && size+n > frameSize {
				break
			}
			out, size = append(out, m), size+n
		}
		p.queue[p.head] = nil
		p.head++
	}
	if p.head == len(p.queue) {
		p.head, p.complain = 0, true
		if cap(p.queue) > 1024 { // a burst is over
			p.queue = nil
		}
		p.queue = p.queue[:0]
	}
	return out
}

// dropUnencodable drops the messages of a frame that cannot be encoded, such as those with a string that is not UTF-8, and
// reports whether there are any. The others wait again, before those that came later.
func (p *peer) dropUnencodable(messages []*wire.Envelope) (found bool) {
	good := make([]*wire.Envelope, 0, len(messages))
	for _, m := range messages {
		if _, err := proto.Marshal(m); err != nil {
			kind, gang := describe(m)
			p.link.log.Error("cannot encode message, dropping it", "peer", p.to, "message", kind, "gang", gang, "error", err)
			continue
		}
		good = append(good, m)
	}
	if len(good) == len(messages) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropped += uint64(len(messages) - len(good))
	p.queue, p.head = append(good, p.queue[p.head:]...), 0
	return true
}

// maxUID bounds the UID of a gang in the log, in bytes; Kubernetes gives UIDs of 36.
const maxUID = 64

// describe names a message for the log: its kind, and the UID of the gang that it is about, if it is about one.
func describe(m *wire.Envelope) (kind, gang string) {
	e := m.ProtoReflect()
	field := e.WhichOneof(e.Descriptor().Oneofs().Get(0))
	if field == nil {
		return "", ""
	}
	switch body := e.Get(field).Message().Interface().(type) {
	case interface{ GetGang() *wire.GangRef }:
		gang = body.GetGang().GetUid()
	case interface{ GetGangUid() string }:
		gang = body.GetGangUid()
	}
	return string(field.Name()), api.Shorten(gang, maxUID)
}

func (p *peer) waiting() (n int, address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queue) - p.head, p.address
}

func (p *peer) tell(up bool) {
	p.mu.Lock()
	known := up && p.up
	p.up = up
	p.mu.Unlock()
	if known || p.ctx.Err() != nil {
		return
	}
	call := p.link.opts.Up
	if !up {
		call = p.link.opts.Down
	}
	if call != nil {
		call(p.to)
	}
}

// run keeps a stream while there is something to say, until the peer is forgotten or was idle for long.
func (p *peer) run() {
	pause := wait.Backoff{Min: shortest, Max: longest, Jitter: 0.25}
	for p.ctx.Err() == nil {
		acknowledged, err := p.stream()
		switch {
		case p.ctx.Err() != nil:
			return
		case errors.Is(err, errIdle):
			if p.link.retire(p) {
				return
			}
			continue
		case errors.Is(err, errMoved):
			pause.Reset()
			continue
		}
		p.tell(false)
		if acknowledged {
			pause.Reset()
		}
		p.say(err, acknowledged)
		pause.Wait(p.ctx)
	}
}

// say logs why a stream ended: loudly, once, when that will not mend by itself.
func (p *peer) say(err error, acknowledged bool) {
	if acknowledged {
		p.refused = ""
	}
	text, level := err.Error(), slog.LevelDebug
	if code := status.Code(err); code == codes.PermissionDenied || strings.Contains(text, "tls: ") || strings.Contains(text, "x509: ") || strings.Contains(text, "does not speak plain text") {
		if p.refused != text {
			level = slog.LevelWarn
		}
		p.refused = text
	}
	p.link.log.Log(p.ctx, level, "stream to peer broke", "peer", p.to, "error", err)
}

// retire forgets an idle peer, unless something was queued just now.
func (l *Link) retire(p *peer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n, _ := p.waiting(); n > 0 {
		return false
	}
	if l.peers[p.to] == p {
		delete(l.peers, p.to)
	}
	p.cancel()
	return true
}

// receive passes acknowledgements on, and returns why they ended. It always does: whoever sends may wait for that.
func receive(ctx context.Context, next func() (*wire.FrameAck, error), acks chan<- uint64) error {
	for {
		ack, err := next()
		if errors.Is(err, io.EOF) {
			return status.Error(codes.Unavailable, "the peer ended the stream")
		}
		if err != nil {
			return err
		}
		select {
		case acks <- ack.Sequence:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stream opens one stream and sends what is queued. It reports whether the peer acknowledged anything, and why it ended.
func (p *peer) stream() (acknowledged bool, err error) {
	_, address := p.waiting()
	conn, err := p.link.Dial(p.to, address)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	stream, err := wire.NewLinkClient(conn).Open(ctx)
	if err != nil {
		return false, err
	}

	// The receiving half: acknowledgements, then the reason why the stream ended.
	acks, ended := make(chan uint64, window), make(chan error, 1)
	var receiving sync.WaitGroup
	receiving.Go(func() { ended <- receive(ctx, stream.Recv, acks) })
	defer receiving.Wait()
	defer cancel()

	idle := time.NewTimer(p.link.opts.Idle)
	defer idle.Stop()
	answer := time.NewTimer(patience)
	defer answer.Stop()
	answer.Stop()
	var sequence uint64
	flying := []int(nil) // messages in each frame that is not acknowledged
	defer func() {
		lost := 0
		for _, n := range flying {
			lost += n
		}
		p.mu.Lock()
		p.dropped += uint64(lost)
		p.mu.Unlock()
	}()
	for {
		if n, now := p.waiting(); now != address {
			return acknowledged, errMoved
		} else if n > 0 && len(flying) < window {
			messages := p.next()
			if len(messages) == 0 {
				continue
			}
			frame := &wire.Frame{From: string(p.link.opts.Self), To: string(p.to), Sequence: sequence + 1, Messages: messages}
			encoded := &grpc.PreparedMsg{} // by itself: an error of it ends no stream
			if err := encoded.Encode(stream, frame); err != nil {
				if !p.dropUnencodable(messages) {
					flying = append(flying, len(messages))
					return acknowledged, fmt.Errorf("encode frame: %w", err)
				}
				continue
			}
			sequence++
			if err := stream.SendMsg(encoded); err != nil {
				flying = append(flying, len(messages))
				return acknowledged, <-ended // SendMsg says only EOF
			}
			flying = append(flying, len(messages))
			if len(flying) == 1 {
				answer.Reset(patience)
			}
			idle.Reset(p.link.opts.Idle)
			continue // whatever came meanwhile is one frame
		}
		select {
		case <-p.wake:
		case n := <-acks:
			if len(flying) == 0 || n != sequence-uint64(len(flying))+1 {
				return acknowledged, status.Errorf(codes.DataLoss, "acknowledgement %d of frames up to %d", n, sequence)
			}
			p.mu.Lock()
			p.sent += uint64(flying[0])
			p.mu.Unlock()
			flying = flying[1:]
			acknowledged = true
			p.tell(true)
			if answer.Stop(); len(flying) > 0 {
				answer.Reset(patience)
			}
		case err := <-ended:
			return acknowledged, err
		case <-answer.C:
			// Not a judgement: a receiver may be busy with something else. The peer is down as far as we can tell.
			p.tell(false)
			answer.Reset(patience)
		case <-idle.C:
			if len(flying) == 0 {
				return acknowledged, errIdle
			}
			idle.Reset(p.link.opts.Idle)
		case <-p.ctx.Done():
			return acknowledged, p.ctx.Err()
		}
	}
}
