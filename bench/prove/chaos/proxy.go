package chaos

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"basalt.dev/basalt/bench/stage/local/network"
)

// A proxy stands between one process and one server. Requests always arrive, unless it is shut: it is the answers that get
// lost or late, for that is what leaves a caller in doubt.
type proxy struct {
	in       network.Place // where it listens, and calls from
	target   string
	listener net.Listener

	mu    sync.Mutex
	mode  mode
	until chan struct{} // closed when the mode ends
	conns map[*conn]bool
}

// proxies are those of one process to one service.
type proxies []*proxy

func (all proxies) each(f func(*proxy)) {
	for _, p := range all {
		f(p)
	}
}

// endpoints is what etcd's clients want.
func (all proxies) endpoints() string {
	var list []string
	all.each(func(p *proxy) { list = append(list, "http://"+p.address()) })
	return strings.Join(list, ",")
}

type mode struct {
	what  string // "", "drop" answers, "delay" answers, "late" for requests too, "shut"
	delay time.Duration
}

type conn struct {
	client, server net.Conn
	torn           bool // bytes of it are lost: it can only be cut
	frozen         bool // nothing passes any more and nobody is told, as when a machine between vanishes
}

func newProxy(in network.Place, address, target string) (*proxy, error) {
	var l net.Listener
	if err := in.In(func() (err error) { l, err = net.Listen("tcp", address); return err }); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	p := &proxy{in: in, target: target, listener: l, conns: map[*conn]bool{}, until: make(chan struct{})}
	go p.accept()
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

// name tells it from all others: in another namespace the same address may be taken.
func (p *proxy) name() string { return p.in.Namespace + " " + p.address() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.serve(client)
	}
}

func (p *proxy) serve(client net.Conn) {
	var server net.Conn
	if err := p.in.In(func() (err error) { server, err = net.DialTimeout("tcp", p.target, 2*time.Second); return err }); err != nil {
		_ = client.Close()
		return
	}
	c := &conn{client: client, server: server}
	p.mu.Lock()
	p.conns[c] = true
	p.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() {
		p.copy(c, server, client, false)
		time.Sleep(500 * time.Millisecond) // what was sent last is served before the server hears that nobody waits for it
		c.close()
	})
	wg.Go(func() { p.copy(c, client, server, true); _ = client.Close() })
	wg.Wait()
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

func (c *conn) close() {
	_ = c.client.Close()
	_ = c.server.Close()
}

func (p *proxy) copy(c *conn, to, from net.Conn, answers bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && p.passes(c, answers) {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// passes waits as long as the mode asks, and reports whether what was read goes on.
func (p *proxy) passes(c *conn, answer bool) bool {
	p.mu.Lock()
	m, until := p.mode, p.until
	if c.frozen || c.torn && answer {
		p.mu.Unlock()
		return false
	}
	switch {
	case m.what == "drop" && answer:
		c.torn = true
		p.mu.Unlock()
		return false
	case m.what == "shut":
		p.mu.Unlock()
		<-until
	case m.what == "late":
		p.mu.Unlock()
		time.Sleep(m.delay) // whatever becomes of the sender
	case m.what == "delay" && answer:
		p.mu.Unlock()
		select {
		case <-until:
		case <-time.After(m.delay):
		}
	default:
		p.mu.Unlock()
	}
	return true
}

// set changes the mode; connections that lost something are cut.
func (p *proxy) set(m mode) {
	p.mu.Lock()
	p.mode = m
	close(p.until)
	p.until = make(chan struct{})
	for c := range p.conns {
		if c.torn {
			c.close()
		}
	}
	p.mu.Unlock()
}

// cut ends the connections for the clients; what they sent still arrives.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.client.Close()
	}
}

// freeze makes every connection that exists go silent for ever. New ones pass: whoever waits on an old one must find out.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.frozen = true
	}
}

func (p *proxy) stop() {
	_ = p.listener.Close()
	p.set(mode{})
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.close()
	}
}
