package store_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// proxy stands between a client and its etcd and can lose what passes. A connection belongs to the rules that hold when
// it is made, so a client that reconnects after Deliver or Hold was called and Cut talks freely.
type proxy struct {
	t        testing.TB
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns map[*conn]bool
	ended bool // a connection that is accepted from now on is closed at once
}

type conn struct {
	client, server net.Conn

	mu          sync.Mutex
	cond        *sync.Cond
	dropAnswers bool
	hold        bool // requests wait
	closed      bool
	waiting     int // bytes of requests that wait
}

func newProxy(t testing.TB, endpoint string) *proxy {
	t.Helper()
	u, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, listener: l, target: u.Host, conns: map[*conn]bool{}}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		p.ended = true
		p.mu.Unlock()
		p.each(func(c *conn) { c.end() })
		p.wg.Wait()
	})
	return p
}

func (p *proxy) endpoints() []string { return []string{"http://" + p.listener.Addr().String()} }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		c := &conn{client: client, server: server}
		c.cond = sync.NewCond(&c.mu)
		p.mu.Lock()
		ended := p.ended
		p.conns[c] = true
		p.mu.Unlock()
		if ended {
			c.end()
			return
		}
		p.wg.Go(c.requests)
		p.wg.Go(c.answers)
	}
}

func (p *proxy) each(f func(*conn)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		f(c)
	}
}

func (c *conn) requests() {
	buf := make([]byte, 64<<10)
	for {
		n, err := c.client.Read(buf)
		c.mu.Lock()
		if n > 0 {
			c.waiting = n
			c.cond.Broadcast()
			for c.hold && !c.closed {
				c.cond.Wait()
			}
			c.waiting = 0
			c.mu.Unlock()
			if _, err := c.server.Write(buf[:n]); err != nil {
				return
			}
			continue
		}
		c.mu.Unlock()
		if err != nil {
			return // the server's side stays open: what was sent is on its way
		}
	}
}

func (c *conn) answers() {
	buf := make([]byte, 64<<10)
	for {
		n, err := c.server.Read(buf)
		c.mu.Lock()
		drop := c.dropAnswers
		c.mu.Unlock()
		if n > 0 && !drop {
			if _, err := c.client.Write(buf[:n]); err != nil {
				_, _ = io.Copy(io.Discard, c.server)
				return
			}
		}
		if err != nil {
			c.client.Close()
			return
		}
	}
}

func (c *conn) end() {
	c.mu.Lock()
	c.closed = true
	c.cond.Broadcast()
	c.mu.Unlock()
	c.client.Close()
	c.server.Close()
}

// loseAnswers delivers requests of the connections that are open now and drops their answers.
func (p *proxy) loseAnswers() {
	p.each(func(c *conn) {
		c.mu.Lock()
		c.dropAnswers = true
		c.mu.Unlock()
	})
}

// holdRequests keeps requests of the connections that are open now.
func (p *proxy) holdRequests() {
	p.each(func(c *conn) {
		c.mu.Lock()
		c.hold = true
		c.mu.Unlock()
	})
}

// held tells how many bytes of requests wait.
func (p *proxy) held() (n int) {
	p.each(func(c *conn) {
		c.mu.Lock()
		if c.hold {
			n += c.waiting
		}
		c.mu.Unlock()
	})
	return n
}

// cut breaks the client's side of the connections that are open now; the servers' sides live on. It returns a function
// that delivers what was held.
func (p *proxy) cut() (deliver func()) {
	var old []*conn
	p.each(func(c *conn) {
		c.client.Close()
		old = append(old, c)
	})
	p.mu.Lock()
	for _, c := range old {
		delete(p.conns, c)
	}
	p.mu.Unlock()
	p.t.Cleanup(func() {
		for _, c := range old {
			c.end()
		}
	})
	return func() {
		for _, c := range old {
			c.mu.Lock()
			c.hold = false
			c.cond.Broadcast()
			c.mu.Unlock()
		}
	}
}
