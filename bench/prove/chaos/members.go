package chaos

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"basalt.dev/basalt/api/wait"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/network"
)

// member is a process that is kept alive under its name, each time on new ports, as a pod would be.
type member struct {
	name, role string
	run        *run
	place      network.Place
	etcd       proxies    // one a member of the control store
	api        proxies    // one
	lists      *listProxy // behind api
	link       proxies    // one, in front of what it listens on
	listen     string
	gossip     string
	host       string // where it is found: the address of its namespace, or one on the loopback interface
	kubeconfig string

	mu      sync.Mutex
	wanted  bool
	changed chan struct{} // closed when wanted changes
	delay   time.Duration // before the next start
	current *local.Basalt
	started int
	old     bool   // the next start is of the older version
	path    string // of the log
}

func (r *run) startMembers(ctx context.Context, wg *sync.WaitGroup) error {
	for i := range r.Coordinators {
		if err := r.addMember(fmt.Sprintf("coordinator-%d", i), "coordinator", local.Coordinator); err != nil {
			return err
		}
	}
	for i := range r.MostShards {
		if err := r.addMember(fmt.Sprintf("shard-%d", i), "shard", local.Shard); err != nil {
			return err
		}
	}
	r.scale(r.Shards)
	for _, m := range r.members {
		wg.Go(func() { m.keep(ctx) })
	}
	ready, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	return poll(ready, func() error {
		if !r.view.spread(r.Shards) {
			return fmt.Errorf("the table does not name %d shards", r.Shards)
		}
		return nil
	})
}

func (r *run) addMember(name, role, user string) error {
	m := &member{name: name, role: role, run: r, wanted: role == "coordinator", changed: make(chan struct{})}
	r.members = append(r.members, m)
	m.host = fmt.Sprintf("127.0.0.%d", 10+len(r.members))
	if r.Network != nil {
		var err error
		if m.place, err = r.Network.Join(name); err != nil {
			return err
		}
		m.host = m.place.Host
	}
	for _, endpoint := range r.Cluster.ControlStore() {
		store, err := url.Parse(endpoint)
		if err != nil {
			return err
		}
		p, err := newProxy(m.place, "127.0.0.1:0", store.Host)
		if err != nil {
			return err
		}
		m.etcd = append(m.etcd, p)
	}
	host := r.Cluster.Config(user).Host
	server, err := url.Parse(host)
	if err != nil {
		return err
	}
	lists, behind, err := newListProxy(m.place, r.Cluster.Dir(), server.Host)
	if err != nil {
		return err
	}
	m.lists = lists
	api, err := newProxy(m.place, "127.0.0.1:0", behind)
	if err != nil {
		return err
	}
	m.api = proxies{api}
	// Its peers find it at an address where the proxy listens; itself it listens on another, with the same port.
	if m.listen, err = freeAddress(m.place, "127.0.0.1"); err != nil {
		return err
	}
	if m.gossip, err = freeAddress(m.place, m.host); err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(m.listen)
	if err != nil {
		return err
	}
	link, err := newProxy(m.place, net.JoinHostPort(m.host, port), m.listen)
	if err != nil {
		return err
	}
	m.link = proxies{link}
	path, err := r.Cluster.Kubeconfig(user)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	m.kubeconfig = filepath.Join(r.Cluster.Dir(), "kubeconfig-"+name)
	return os.WriteFile(m.kubeconfig, []byte(strings.ReplaceAll(string(text), host, "https://"+api.address())), 0o600)
}

func freeAddress(in network.Place, host string) (string, error) {
	if in == (network.Place{}) { // other programs are there, too
		ports, err := local.FreePorts(1)
		if err != nil {
			return "", err
		}
		return net.JoinHostPort(host, strconv.Itoa(ports[0])), nil
	}
	var l net.Listener
	err := in.In(func() (err error) { l, err = net.Listen("tcp", net.JoinHostPort(host, "0")); return err })
	if err != nil {
		return "", fmt.Errorf("find a port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// keep starts the process whenever it is wanted and not there.
func (m *member) keep(ctx context.Context) {
	for ctx.Err() == nil {
		m.mu.Lock()
		wanted, changed, delay := m.wanted, m.changed, m.delay
		m.delay = 0
		m.mu.Unlock()
		if !wanted {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		if !wait.For(ctx, delay) {
			return
		}
		flags := []string{"--etcd=" + m.etcd.endpoints(), "--kubeconfig=" + m.kubeconfig,
			"--listen=" + m.listen, "--advertise=" + m.host, "--gossip=" + m.gossip}
		if m.run.Verbose {
			flags = append(flags, "--verbose")
		}
		start := m.run.Cluster.StartShard
		if m.role == "coordinator" {
			start = m.run.Cluster.StartCoordinator
		}
		b, err := start(ctx, m.name, local.BasaltOptions{NoWait: true, Flags: flags, Place: m.place, Program: m.program(),
			Env: []string{"BASALT_CRASHES=" + m.run.crashes.dir, "BASALT_CLOCK=" + m.clock()}})
		if err != nil {
			m.run.logf("start %s: %v", m.name, err)
			wait.For(ctx, time.Second)
			continue
		}
		m.mu.Lock()
		m.current, m.path = b, b.Log()
		m.started++
		if m.delay == 0 {
			m.delay = 300 * time.Millisecond
		}
		m.mu.Unlock()
		select {
		case <-b.Done():
			m.run.logf("%s ended: %v", m.name, b.Err())
			m.run.crashes.look()
		case <-ctx.Done():
			return
		}
		m.mu.Lock()
		m.current = nil
		m.mu.Unlock()
	}
}

// program is what the next start runs; empty for the cluster's.
func (m *member) program() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.old {
		return m.run.Old
	}
	return ""
}

func (m *member) running() *local.Basalt {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current
}

func (m *member) log() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.path
}

func (m *member) starts() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.started
}

func (m *member) want(wanted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.wanted != wanted {
		m.wanted = wanted
		close(m.changed)
		m.changed = make(chan struct{})
	}
}

func (m *member) startAfter(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.delay = d
}

func (r *run) stopMembers() {
	var wg sync.WaitGroup
	for _, m := range r.members {
		m.want(false)
		wg.Go(func() {
			if b := m.running(); b != nil {
				_ = b.Stop()
			}
			for _, p := range slices.Concat(m.etcd, m.api, m.link) {
				p.stop()
			}
			_ = m.lists.server.Close()
		})
	}
	wg.Wait()
}

// scale says how many shards there are to be. Those that go are asked to.
func (r *run) scale(n int) {
	for i, m := range r.shards() {
		m.want(i < n)
		if b := m.running(); b != nil && i >= n {
			_ = b.Signal(syscall.SIGTERM)
		}
	}
}

func (r *run) shards() []*member       { return r.members[r.Coordinators:] }
func (r *run) coordinators() []*member { return r.members[:r.Coordinators] }
