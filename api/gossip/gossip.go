// Package gossip reports quickly which processes seem to be alive. Its reports are hints: safety never depends on them. Membership
// and ownership are in the control store.
//
// It wraps memberlist. A member's name is its incarnation: if a name comes back with another address, memberlist treats that as a
// conflict for half a minute. Lists and events are copies, because memberlist modifies the objects that it hands out.
package gossip

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"basalt.dev/basalt/api"
)

// Meta is what a member says of itself. Its JSON must stay under memberlist's 512 bytes.
type Meta struct {
	Name    string `json:"n"` // stable name (StatefulSet pod name)
	Address string `json:"a"` // host:port of its gRPC server
}

// Member is a copy of what is known of a live member.
type Member struct {
	Incarnation api.Incarnation
	Gossip      string // host:port of its memberlist
	Meta        Meta
}

// Kind is what happened to a member.
type Kind uint8

// Kinds of events. A member is suspected for a while before it is called dead; memberlist tells only the latter.
const (
	Alive   Kind = iota + 1
	Changed      // its Meta
	Dead
)

// Event is a change of a member.
type Event struct {
	Kind   Kind
	Member Member
}

// Options of a member.
type Options struct {
	Incarnation api.Incarnation
	Bind        string // host:port, TCP and UDP; port 0 takes a free one
	Advertise   string // host:port that others reach us at; Bind if empty
	KeyFile     string // of ReadKeys, read again now and then; empty for none. Who has none of its keys does not get in
	Label       string // keeps the members of two clusters apart
	Meta        Meta

	RejoinEvery time.Duration // 3 s if 0
	ReloadEvery time.Duration // of KeyFile; 5 s if 0
	Logger      *slog.Logger  // slog.Default() if nil
}

// Gossip is a running member.
type Gossip struct {
	opts   Options
	list   *memberlist.Memberlist
	ring   *memberlist.Keyring // nil: not encrypted
	at     string              // our address: memberlist writes the node that holds it whenever it spreads news of us
	cancel context.CancelFunc
	ctx    context.Context
	wg     sync.WaitGroup

	mu      sync.Mutex
	meta    []byte
	members map[api.Incarnation]Member
	pending []Event
	wake    chan struct{}
}

// New starts a member that knows nobody yet. events is called by one goroutine, in order; it does not hear of ourselves.
func New(o Options, events func(Event)) (*Gossip, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.RejoinEvery <= 0 {
		o.RejoinEvery = 3 * time.Second
	}
	if o.Incarnation == "" {
		return nil, errors.New("start gossip: no incarnation")
	}
	if o.ReloadEvery <= 0 {
		o.ReloadEvery = 5 * time.Second
	}
	var ring *memberlist.Keyring
	if o.KeyFile != "" {
		keys, err := ReadKeys(o.KeyFile)
		if err == nil {
			ring, err = memberlist.NewKeyring(keys, keys[0])
			o.Logger.Info("gossip keys loaded", "keys", len(keys), "first", fingerprint(keys[0]))
		}
		if err != nil {
			return nil, fmt.Errorf("start gossip: read keys: %w", err)
		}
	}
	g := &Gossip{opts: o, ring: ring, members: map[api.Incarnation]Member{}, wake: make(chan struct{}, 1)}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	if err := g.setMeta(o.Meta); err != nil {
		return nil, fmt.Errorf("start gossip: %w", err)
	}

	c := memberlist.DefaultLANConfig()
	c.EnableCompression = false // of packets that are a few hundred bytes: it was a third of what gossip costs
	c.Name = string(o.Incarnation)
	c.Label = o.Label
	c.Keyring = ring
	c.Delegate, c.Events = delegate{g}, delegate{g}
	c.Logger = log.New(lines{o.Logger}, "", 0)
	// A death is known in about 2.5 s: found by a probe, then suspected for SuspicionMult * ProbeInterval.
	c.ProbeInterval, c.ProbeTimeout = 500*time.Millisecond, 250*time.Millisecond
	c.SuspicionMult, c.SuspicionMaxTimeoutMult = 3, 3
	c.GossipInterval = 200 * time.Millisecond
	c.PushPullInterval = 10 * time.Second
	c.TCPTimeout = 3 * time.Second
	var err error
	if c.BindAddr, c.BindPort, err = split(o.Bind); err != nil {
		return nil, fmt.Errorf("start gossip: bind address: %w", err)
	}
	c.AdvertisePort = c.BindPort
	if o.Advertise != "" {
		if c.AdvertiseAddr, c.AdvertisePort, err = split(o.Advertise); err != nil {
			return nil, fmt.Errorf("start gossip: advertised address: %w", err)
		}
	}
	if g.list, err = memberlist.Create(c); err != nil {
		g.cancel()
		return nil, fmt.Errorf("start gossip at %s: %w", o.Bind, err)
	}
	g.at = g.list.LocalNode().Address()
	g.wg.Go(func() { g.dispatch(events) })
	if ring != nil {
		g.wg.Go(g.followKeys)
	}
	return g, nil
}

func split(address string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	if port, err = strconv.Atoi(p); err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("address %s: %q is not a port", address, p)
	}
	return host, port, nil
}

// Address is where others reach this member.
func (g *Gossip) Address() string { return g.at }

// Members are the live members but ourselves, by incarnation.
func (g *Gossip) Members() []Member {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]Member, 0, len(g.members))
	for _, m := range g.members {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Member) int { return cmp.Compare(a.Incarnation, b.Incarnation) })
	return out
}

// Rejoin starts a loop that joins every address that no live member has, now and every few seconds, until Close. Without
// it a split that healed would stay split: each half has forgotten the other. Called once.
func (g *Gossip) Rejoin(addresses func() []string) {
	g.wg.Go(func() {
		tick := time.NewTicker(g.opts.RejoinEvery)
		defer tick.Stop()
		for {
			g.join(addresses())
			select {
			case <-g.ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
}

func (g *Gossip) join(addresses []string) {
	known := map[string]bool{g.Address(): true, g.opts.Advertise: true, "": true}
	for _, m := range g.Members() {
		known[m.Gossip] = true
	}
	for _, a := range addresses {
		if known[a] || g.ctx.Err() != nil {
			continue
		}
		known[a] = true
		if _, err := g.list.Join([]string{a}); err != nil {
			g.opts.Logger.Debug("cannot join gossip member", "address", a, "error", err)
		}
	}
}

// Close leaves, so that others learn at once, and stops.
func (g *Gossip) Close() error {
	err := g.list.Leave(2 * time.Second)
	if stop := g.stop(); err == nil {
		err = stop
	}
	if err != nil {
		return fmt.Errorf("close gossip: %w", err)
	}
	return nil
}

// stop ends without a word to the others, as a death would.
func (g *Gossip) stop() error {
	g.cancel()
	err := g.list.Shutdown()
	g.wg.Wait()
	return err
}

func (g *Gossip) setMeta(m Meta) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(b) > memberlist.MetaMaxSize {
		return fmt.Errorf("metadata of %d bytes, at most %d are possible: name and address are too long", len(b), memberlist.MetaMaxSize)
	}
	g.mu.Lock()
	g.meta = b
	g.mu.Unlock()
	return nil
}

func (g *Gossip) dispatch(events func(Event)) {
	for {
		select {
		case <-g.ctx.Done():
			return
		case <-g.wake:
		}
		g.mu.Lock()
		all := g.pending
		g.pending = nil
		g.mu.Unlock()
		for _, e := range all {
			if events != nil && g.ctx.Err() == nil {
				events(e)
			}
		}
	}
}

// note is called by memberlist under its lock, where the node may be read; it must not wait.
func (g *Gossip) note(kind Kind, n *memberlist.Node) {
	if api.Incarnation(n.Name) == g.opts.Incarnation {
		return
	}
	m := Member{Incarnation: api.Incarnation(n.Name), Gossip: n.Address()}
	if err := json.Unmarshal(n.Meta, &m.Meta); err != nil && len(n.Meta) > 0 {
		m.Meta = Meta{} // of a version that we do not know
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if kind == Dead {
		delete(g.members, m.Incarnation)
	} else {
		g.members[m.Incarnation] = m
	}
	g.pending = append(g.pending, Event{kind, m})
	signal(g.wake)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// delegate is what memberlist calls.
type delegate struct{ g *Gossip }

func (d delegate) NotifyJoin(n *memberlist.Node)   { d.g.note(Alive, n) }
func (d delegate) NotifyLeave(n *memberlist.Node)  { d.g.note(Dead, n) }
func (d delegate) NotifyUpdate(n *memberlist.Node) { d.g.note(Changed, n) }

func (d delegate) NodeMeta(int) []byte {
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	return d.g.meta
}
func (delegate) NotifyMsg([]byte)                {}
func (delegate) GetBroadcasts(int, int) [][]byte { return nil }
func (delegate) LocalState(bool) []byte          { return nil }
func (delegate) MergeRemoteState([]byte, bool)   {}

// lines turns memberlist's log lines, "[WARN] memberlist: words", into records.
type lines struct{ log *slog.Logger }

func (l lines) Write(b []byte) (int, error) {
	level, words, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(string(b)), "["), "] ")
	at := slog.LevelDebug
	if level == "WARN" || level == "ERR" {
		at = slog.LevelWarn
	}
	l.log.Log(context.Background(), at, "gossip: "+strings.TrimPrefix(words, "memberlist: "))
	return len(b), nil
}
