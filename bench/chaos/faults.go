package chaos

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/bench/local"
)

// member is a process that is kept alive under its name, each time on new ports, as a pod would be.
type member struct {
	name, role string
	run        *run
	etcd, api  *proxy
	link       *proxy // in front of what it listens on
	listen     string
	gossip     string
	host       string // where it is found: an address of its own on the loopback interface
	kubeconfig string

	mu      sync.Mutex
	wanted  bool
	changed chan struct{} // closed when wanted changes
	delay   time.Duration // before the next start
	current *local.Basalt
	started int
	path    string // of the log
}

func (r *run) startMembers(ctx context.Context, wg *sync.WaitGroup) error {
	for i := range 2 {
		if err := r.addMember(fmt.Sprintf("coordinator-%d", i), "coordinator", local.Coordinator); err != nil {
			return err
		}
	}
	for i := range 4 {
		if err := r.addMember(fmt.Sprintf("shard-%d", i), "shard", local.Shard); err != nil {
			return err
		}
	}
	r.scale(r.Shards)
	for _, m := range r.members {
		wg.Go(func() { m.keep(ctx) })
	}
	ready, cancel := context.WithTimeout(ctx, 90*time.Second)
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
	store, err := url.Parse(r.Cluster.ControlStore()[0])
	if err != nil {
		return err
	}
	host := r.Cluster.Config(user).Host
	server, err := url.Parse(host)
	if err != nil {
		return err
	}
	if m.etcd, err = newProxy(store.Host); err != nil {
		return err
	}
	if m.api, err = newProxy(server.Host); err != nil {
		return err
	}
	// Its peers find it at an address where the proxy listens; itself it listens on another, with the same port.
	m.host = fmt.Sprintf("127.0.0.%d", 10+len(r.members))
	if m.listen, err = freeAddress("127.0.0.1"); err != nil {
		return err
	}
	if m.gossip, err = freeAddress(m.host); err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(m.listen)
	if err != nil {
		return err
	}
	if m.link, err = newProxyAt(net.JoinHostPort(m.host, port), m.listen); err != nil {
		return err
	}
	path, err := r.Cluster.Kubeconfig(user)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	m.kubeconfig = filepath.Join(r.Cluster.Dir(), "kubeconfig-"+name)
	return os.WriteFile(m.kubeconfig, []byte(strings.ReplaceAll(string(text), host, "https://"+m.api.address())), 0o600)
}

func freeAddress(host string) (string, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
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
		if !sleep(ctx, delay) {
			return
		}
		flags := []string{"--etcd=http://" + m.etcd.address(), "--kubeconfig=" + m.kubeconfig,
			"--listen=" + m.listen, "--advertise=" + m.host, "--gossip=" + m.gossip}
		if m.run.Verbose {
			flags = append(flags, "--verbose")
		}
		start := m.run.Cluster.StartShard
		if m.role == "coordinator" {
			start = m.run.Cluster.StartCoordinator
		}
		b, err := start(ctx, m.name, local.BasaltOptions{NoWait: true, Flags: flags})
		if err != nil {
			m.run.logf("start %s: %v", m.name, err)
			sleep(ctx, time.Second)
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
		case <-ctx.Done():
			return
		}
		m.mu.Lock()
		m.current = nil
		m.mu.Unlock()
	}
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
			m.etcd.stop()
			m.api.stop()
			m.link.stop()
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

func (r *run) shards() []*member       { return r.members[2:] }
func (r *run) coordinators() []*member { return r.members[:2] }

// fault is something bad; one with more weight is made more often. What lasts is ended by attack.lasting.
type fault struct {
	weight int
	make   func(a *attack)
}

// Kinds names the faults.
func Kinds() []string { return slices.Sorted(maps.Keys(faults)) }

var faults = map[string]fault{
	"kill-shard": {5, func(a *attack) { a.kill(a.shard(), 300*time.Millisecond) }},
	// Long enough that others take its buckets.
	"kill-shard-long":  {3, func(a *attack) { a.kill(a.shard(), between(a.rand, 5*time.Second, 12*time.Second)) }},
	"kill-leader":      {3, func(a *attack) { a.kill(a.leader(), between(a.rand, 300*time.Millisecond, 6*time.Second)) }},
	"kill-coordinator": {1, func(a *attack) { a.kill(a.coordinator(), 300*time.Millisecond) }},
	"term-shard":       {3, func(a *attack) { a.term(a.shard()) }},
	"term-coordinator": {1, func(a *attack) { a.term(a.coordinator()) }},
	"pause-shard":      {5, func(a *attack) { a.pause(a.shard(), between(a.rand, time.Second, 8*time.Second)) }},
	"pause-leader":     {4, func(a *attack) { a.pause(a.leader(), between(a.rand, time.Second, 8*time.Second)) }},
	"kill-store":       {2, func(a *attack) { a.killStore(between(a.rand, 0, 2*time.Second)) }},
	"pause-store":      {1, func(a *attack) { a.pauseStore(between(a.rand, time.Second, 4*time.Second)) }},
	"kill-api":         {1, func(a *attack) { a.killAPI() }},
	"scale":            {3, func(a *attack) { a.scaleShards() }},
	"limits":           {2, func(a *attack) { a.limits() }},
	// At the moment that matters: an intent is durable and its Binding on its way; a grant is durable and not yet known.
	"kill-at-intent": {4, func(a *attack) {
		if m := a.at("intents"); m != nil {
			a.kill(m, between(a.rand, 300*time.Millisecond, 3*time.Second))
		}
	}},
	"pause-at-intent": {4, func(a *attack) {
		if m := a.at("intents"); m != nil {
			a.pause(m, between(a.rand, time.Second, 8*time.Second))
		}
	}},
	"drop-api-at-intent": {4, func(a *attack) {
		if m := a.at("intents"); m != nil {
			a.about = m.name
			a.through(m.api, mode{what: "drop"}, between(a.rand, 200*time.Millisecond, 4*time.Second))
		}
	}},
	"kill-leader-at-grant": {3, func(a *attack) {
		if a.at("reservations"); a.view.leads() != "" {
			a.kill(a.leader(), between(a.rand, 300*time.Millisecond, 3*time.Second))
		}
	}},
	"kill-home-at-grant": {2, func(a *attack) { // one of them is
		m := a.shard()
		a.at("reservations")
		a.kill(m, between(a.rand, 300*time.Millisecond, 6*time.Second))
	}},
	"kill-all": {1, func(a *attack) {
		for _, m := range a.members {
			a.kill(m, 300*time.Millisecond)
		}
		a.about = "everybody"
	}},
	"drop-link": {3, func(a *attack) {
		a.through(a.any().link, mode{what: "drop"}, between(a.rand, 200*time.Millisecond, 3*time.Second))
	}},
	"delay-link": {2, func(a *attack) {
		a.through(a.any().link, mode{what: "late", delay: between(a.rand, 50*time.Millisecond, 2*time.Second)}, between(a.rand, time.Second, 8*time.Second))
	}},
	"shut-link": {3, func(a *attack) {
		a.through(a.any().link, mode{what: "shut"}, between(a.rand, time.Second, 10*time.Second))
	}},
	// What a process sent is on its way still when it is dead and others have taken over.
	"late-binding-kill": {4, func(a *attack) { a.lateKill(a.shard(), func(m *member) *proxy { return m.api }, "intents") }},
	"late-intent-kill":  {3, func(a *attack) { a.lateKill(a.shard(), func(m *member) *proxy { return m.etcd }, "intents") }},
	"late-grant-kill":   {3, func(a *attack) { a.lateKill(a.leader(), func(m *member) *proxy { return m.etcd }, "reservations") }},
	// The same, but the process lives, and has to find out what became of its requests before they arrive.
	"late-binding-cut": {4, func(a *attack) { a.lateCut(a.shard(), func(m *member) *proxy { return m.api }, "intents") }},
	"late-intent-cut":  {3, func(a *attack) { a.lateCut(a.shard(), func(m *member) *proxy { return m.etcd }, "intents") }},
	"late-grant-cut":   {3, func(a *attack) { a.lateCut(a.leader(), func(m *member) *proxy { return m.etcd }, "reservations") }},
	"late-binding-pause": {2, func(a *attack) {
		m := a.shard()
		a.through(m.api, mode{what: "late", delay: between(a.rand, time.Second, 5*time.Second)}, 6*time.Second)
		a.pause(m, between(a.rand, 4*time.Second, 8*time.Second))
	}},
	"freeze-api":   {1, func(a *attack) { a.any().api.freeze() }},
	"freeze-store": {2, func(a *attack) { a.any().etcd.freeze() }},
	"freeze-link":  {2, func(a *attack) { a.any().link.freeze() }},
	"pause-api":    {2, func(a *attack) { a.pauseAPI(between(a.rand, time.Second, 6*time.Second)) }},
	"queue-again":  {1, func(a *attack) { a.queueAgain() }},
	"foreign":      {2, func(a *attack) { a.foreign() }},
	"cordon":       {2, func(a *attack) { a.cordon() }},
	"shrink":       {2, func(a *attack) { a.shrink() }},
	"node-again":   {1, func(a *attack) { a.nodeAgain() }},
	"drop-store": {4, func(a *attack) {
		a.through(a.any().etcd, mode{what: "drop"}, between(a.rand, 200*time.Millisecond, 4*time.Second))
	}},
	"drop-api": {4, func(a *attack) {
		a.through(a.any().api, mode{what: "drop"}, between(a.rand, 200*time.Millisecond, 4*time.Second))
	}},
	"delay-store": {3, func(a *attack) {
		a.through(a.any().etcd, mode{what: "delay", delay: between(a.rand, 50*time.Millisecond, 1500*time.Millisecond)}, between(a.rand, time.Second, 6*time.Second))
	}},
	"delay-api": {3, func(a *attack) {
		a.through(a.any().api, mode{what: "delay", delay: between(a.rand, 50*time.Millisecond, 1500*time.Millisecond)}, between(a.rand, time.Second, 6*time.Second))
	}},
	"shut-store": {2, func(a *attack) {
		a.through(a.any().etcd, mode{what: "shut"}, between(a.rand, time.Second, 8*time.Second))
	}},
	"shut-api": {2, func(a *attack) {
		a.through(a.any().api, mode{what: "shut"}, between(a.rand, time.Second, 8*time.Second))
	}},
}

// attack makes faults one after another; those that last overlap with the next.
type attack struct {
	*run
	rand  *rand.Rand
	about string // what the fault was done to
	// lasting runs f after a time, or at the end of the attack.
	lasting func(d time.Duration, f func())
	busy    map[string]bool
	serial  int
	loading context.Context // ends with the attack
	mu      sync.Mutex
}

func (r *run) attack(loading, ctx context.Context) error {
	a := &attack{run: r, loading: loading, rand: rand.New(rand.NewPCG(r.Seed, 0xfa017)), busy: map[string]bool{}}
	kinds := r.Faults
	if len(kinds) == 0 { // each seed has its own choice: some bugs need one fault often, and not another
		for _, k := range Kinds() {
			if a.rand.IntN(10) < 6 {
				kinds = append(kinds, k)
			}
		}
	}
	longest := []time.Duration{1500 * time.Millisecond, 4 * time.Second, 8 * time.Second}[a.rand.IntN(3)]
	total := 0
	for _, k := range kinds {
		if faults[k].make == nil {
			return fmt.Errorf("no fault %q: %s are possible", k, strings.Join(Kinds(), ", "))
		}
		total += faults[k].weight
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	a.lasting = func(d time.Duration, f func()) {
		wg.Go(func() { sleep(loading, d); f() })
	}
	// Load first: a fault in an empty cluster shows nothing.
	for sleep(loading, 2*time.Second); loading.Err() == nil; {
		n := a.rand.IntN(total)
		for _, k := range kinds {
			if n -= faults[k].weight; n < 0 {
				a.about = ""
				faults[k].make(a)
				if a.about != "" {
					r.result.Faults[k]++
					r.logf("%s: %s", k, a.about)
				}
				break
			}
		}
		pause := between(a.rand, 100*time.Millisecond, longest)
		if a.rand.IntN(4) == 0 {
			pause = 0 // two at once
		}
		if !sleep(loading, pause) {
			break
		}
	}
	return ctx.Err()
}

// once tells whether nothing of this name goes on, and notes that it does; done ends it.
func (a *attack) once(name string) (ok bool, done func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.busy[name] {
		return false, nil
	}
	a.busy[name] = true
	return true, func() { a.mu.Lock(); defer a.mu.Unlock(); a.busy[name] = false }
}

func (a *attack) shard() *member       { return a.shards()[a.rand.IntN(4)] }
func (a *attack) coordinator() *member { return a.coordinators()[a.rand.IntN(2)] }
func (a *attack) any() *member {
	m := a.members[a.rand.IntN(len(a.members))]
	a.about = m.name
	return m
}

func (a *attack) leader() *member {
	draw := a.coordinator() // so that the seed's next draws do not depend on who leads
	name := a.view.leads()
	for _, m := range a.coordinators() {
		if m.name == name {
			return m
		}
	}
	return draw
}

// lateKill makes a process's requests to a server late, waits for it to write something, and kills it at once or after the
// next words. Others take over before the last requests arrive.
func (a *attack) lateKill(m *member, through func(*member) *proxy, kind string) {
	delay := between(a.rand, time.Second, 6*time.Second)
	after := between(a.rand, 300*time.Millisecond, 6*time.Second)
	wait := between(a.rand, 0, 300*time.Millisecond)
	if m.running() == nil {
		return
	}
	a.through(through(m), mode{what: "late", delay: delay}, 2*delay+time.Second)
	a.hear(m, kind)
	sleep(a.loading, wait)
	a.kill(m, after)
	if a.about != "" {
		a.about += fmt.Sprintf("; its requests arrive %s late", delay.Round(time.Millisecond))
	}
}

// lateCut makes requests late, and cuts their connections after the next one that matters.
func (a *attack) lateCut(m *member, through func(*member) *proxy, kind string) {
	delay := between(a.rand, 300*time.Millisecond, 3*time.Second)
	wait := between(a.rand, 100*time.Millisecond, 800*time.Millisecond)
	p := through(m)
	ok, done := a.once(p.address())
	if !ok || m.running() == nil {
		return
	}
	defer done()
	p.set(mode{what: "late", delay: delay})
	a.hear(m, kind)
	sleep(a.loading, wait)
	p.cut()
	p.set(mode{})
	a.about = fmt.Sprintf("%s: requests of %s arrive %s late", m.name, wait.Round(time.Millisecond), delay.Round(time.Millisecond))
}

// hear waits for a new key that a process wrote.
func (a *attack) hear(m *member, kind string) {
	for range 5 {
		if who := a.at(kind); who == m || kind == "reservations" {
			return
		}
	}
}

// at waits a little for a new key of a kind in the control store, and gives the shard that wrote it, if it is one.
func (a *attack) at(kind string) *member {
	var who string
	select {
	case who = <-a.view.nextKey(kind):
	case <-time.After(3 * time.Second):
	case <-a.loading.Done():
	}
	for _, m := range a.shards() {
		if m.name == who {
			return m
		}
	}
	return nil
}

func (a *attack) kill(m *member, after time.Duration) {
	if b := m.running(); b != nil {
		a.about = fmt.Sprintf("%s, started again after %s", m.name, after.Round(time.Millisecond))
		m.startAfter(after)
		b.Kill()
	}
}

func (a *attack) term(m *member) {
	if b := m.running(); b != nil {
		a.about = m.name
		_ = b.Signal(syscall.SIGTERM)
	}
}

func (a *attack) pause(m *member, d time.Duration) {
	if b := m.running(); b != nil {
		a.about = fmt.Sprintf("%s for %s", m.name, d.Round(time.Millisecond))
		_ = b.Signal(syscall.SIGSTOP)
		a.lasting(d, func() { _ = b.Signal(syscall.SIGCONT) })
	}
}

func (a *attack) killStore(d time.Duration) {
	ok, done := a.once("store")
	if !ok {
		return
	}
	a.about = fmt.Sprintf("for %s", d.Round(time.Millisecond))
	a.Cluster.KillControlStore()
	a.lasting(d, func() {
		defer done()
		if err := a.Cluster.StartControlStore(context.Background()); err != nil {
			a.logf("start the control store: %v", err)
		}
	})
}

func (a *attack) pauseStore(d time.Duration) {
	ok, done := a.once("store")
	if !ok {
		return
	}
	p := a.Cluster.ControlStoreMembers()[0].Process()
	a.about = fmt.Sprintf("for %s", d.Round(time.Millisecond))
	_ = p.Signal(syscall.SIGSTOP)
	a.lasting(d, func() { defer done(); _ = p.Signal(syscall.SIGCONT) })
}

func (a *attack) killAPI() {
	ok, done := a.once("api")
	if !ok {
		return
	}
	a.about = "API server"
	a.Cluster.KillAPIServer()
	a.lasting(0, func() {
		defer done()
		if err := a.Cluster.StartAPIServer(context.Background()); err != nil {
			a.logf("start the API server: %v", err)
		}
		a.logf("the API server is back")
	})
}

func (a *attack) pauseAPI(d time.Duration) {
	ok, done := a.once("api")
	if !ok {
		return
	}
	p := a.Cluster.APIServerProcess()
	a.about = fmt.Sprintf("for %s", d.Round(time.Millisecond))
	_ = p.Signal(syscall.SIGSTOP)
	a.lasting(d, func() { defer done(); _ = p.Signal(syscall.SIGCONT) })
}

func (a *attack) through(p *proxy, m mode, d time.Duration) {
	ok, done := a.once(p.address())
	if !ok {
		a.about = ""
		return
	}
	a.about += fmt.Sprintf(" for %s", d.Round(time.Millisecond))
	if m.delay > 0 {
		a.about += fmt.Sprintf(", answers %s late", m.delay.Round(time.Millisecond))
	}
	p.set(m)
	a.lasting(d, func() { defer done(); p.set(mode{}) })
}

func (a *attack) scaleShards() {
	n := 2 + a.rand.IntN(3)
	a.about = fmt.Sprintf("to %d shards", n)
	a.scale(n)
}

// limits cuts the capability of a queue, or gives it back.
func (a *attack) limits() {
	q := queues[a.rand.IntN(len(queues))]
	percent := []int64{60, 100, 120}[a.rand.IntN(3)]
	if q.cpu == 0 {
		return
	}
	a.about = fmt.Sprintf("%s to %d %%", q.name, percent)
	a.lasting(0, func() { _ = a.setLimit(context.Background(), q, percent) })
}

func (r *run) setLimit(ctx context.Context, q queueSpec, percent int64) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	cpu := q.object(percent).Spec.Capability["cpu"]
	body := fmt.Sprintf(`{"spec":{"capability":{"cpu":%q}}}`, cpu.String())
	return r.kube.Basalt.Patch(types.MergePatchType).Resource("queues").Name(q.name).Body([]byte(body)).Do(ctx).Error()
}

// patiently repeats a call in the background until it succeeds, after the end of the attack too.
func (a *attack) patiently(what string, call func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	if err := poll(ctx, func() error {
		one, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return call(one)
	}); err != nil {
		a.logf("HARNESS %s: %v", what, err)
	}
}

// queueAgain deletes a leaf and makes it anew as soon as it is gone, which is when nothing is charged to it.
func (a *attack) queueAgain() {
	q := leaves[a.rand.IntN(len(leaves))]
	ok, done := a.once("queue " + q.name)
	if !ok {
		return
	}
	a.about = q.name
	a.lasting(0, func() {
		defer done()
		a.patiently("delete queue "+q.name, func(ctx context.Context) error {
			err := a.kube.Basalt.Delete().Resource("queues").Name(q.name).Do(ctx).Error()
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
		a.patiently("create queue "+q.name, func(ctx context.Context) error {
			return a.kube.Basalt.Post().Resource("queues").Body(q.object(100)).Do(ctx).Error()
		})
		a.logf("queue %s was made anew", q.name)
	})
}

// foreign puts a pod onto a node without asking anybody, for a while.
func (a *attack) foreign() {
	a.serial++
	name, node := fmt.Sprintf("foreign-%d", a.serial), fmt.Sprintf("node-%02d", a.rand.IntN(nodeCount))
	cpu := []string{"500m", "2", "4"}[a.rand.IntN(3)]
	d := between(a.rand, time.Second, 10*time.Second)
	a.about = fmt.Sprintf("%s of %s cores on %s for %s", name, cpu, node, d.Round(time.Millisecond))
	grace := int64(0)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: &grace,
		Containers: []v1.Container{{Name: "main", Image: "none", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}}}}}
	made := make(chan struct{})
	a.lasting(0, func() {
		defer close(made)
		a.patiently("create pod "+name, func(ctx context.Context) error {
			_, err := a.kube.Core.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		})
	})
	a.lasting(d, func() {
		<-made
		a.patiently("delete pod "+name, func(ctx context.Context) error {
			err := a.kube.Core.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
	})
}

// onNode does something to a node, and undoes it after a while.
func (a *attack) onNode(what string, do, undo func(ctx context.Context, node string) error) {
	node := fmt.Sprintf("node-%02d", a.rand.IntN(nodeCount))
	d := between(a.rand, time.Second, 10*time.Second)
	ok, done := a.once(node)
	if !ok {
		return
	}
	a.about = fmt.Sprintf("%s for %s", node, d.Round(time.Millisecond))
	a.lasting(0, func() {
		defer done()
		a.patiently(what+" "+node, func(ctx context.Context) error { return do(ctx, node) })
		sleep(a.loading, d)
		a.patiently("undo "+what+" "+node, func(ctx context.Context) error { return undo(ctx, node) })
	})
}

func (a *attack) cordon() {
	set := func(to bool) func(context.Context, string) error {
		return func(ctx context.Context, node string) error {
			_, err := a.kube.Core.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, to), metav1.PatchOptions{})
			return err
		}
	}
	a.onNode("cordon", set(true), set(false))
}

// shrink takes half of a node away, as a failing device does.
func (a *attack) shrink() {
	set := func(cpu int) func(context.Context, string) error {
		return func(ctx context.Context, node string) error {
			_, err := a.kube.Core.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, fmt.Appendf(nil, `{"status":{"allocatable":{"cpu":"%d"}}}`, cpu), metav1.PatchOptions{}, "status")
			return err
		}
	}
	a.onNode("shrink", set(nodeCPU/2), set(nodeCPU))
}

// nodeAgain deletes a node and makes it anew; its pods stay, for nobody here collects them.
func (a *attack) nodeAgain() {
	a.onNode("remove", func(ctx context.Context, node string) error {
		err := a.kube.Core.CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}, func(ctx context.Context, node string) error {
		_, err := a.kube.Core.CoreV1().Nodes().Create(ctx, newNode(node), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

// heal brings everything back: the attack has ended what lasted.
func (r *run) heal(ctx context.Context) error {
	r.scale(r.Shards)
	for _, q := range queues {
		if q.cpu == 0 {
			continue
		}
		if err := poll(ctx, func() error { return r.setLimit(ctx, q, 100) }); err != nil {
			return fmt.Errorf("set limit of %s: %w", q.name, err)
		}
	}
	return nil
}
