package chaos

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
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

	"basalt.dev/basalt/api/wait"
)

// attempt is something bad; one with more weight is made more often. What lasts is ended by attack.lasting.
type attempt struct {
	weight int
	make   func(a *attack)
}

// Kinds names the faults.
func Kinds() []string { return slices.Sorted(maps.Keys(faults)) }

var faults = map[string]attempt{
	"kill-shard": {5, func(a *attack) { a.kill(a.shard(), 300*time.Millisecond) }},
	// Long enough that others take its buckets.
	"kill-shard-long":  {3, func(a *attack) { a.kill(a.shard(), between(a.rand, 5*time.Second, 12*time.Second)) }},
	"kill-leader":      {3, func(a *attack) { a.kill(a.leader(), between(a.rand, 300*time.Millisecond, 6*time.Second)) }},
	"kill-coordinator": {1, func(a *attack) { a.kill(a.coordinator(), 300*time.Millisecond) }},
	"term-shard":       {3, func(a *attack) { a.term(a.shard()) }},
	"term-coordinator": {1, func(a *attack) { a.term(a.coordinator()) }},
	"pause-shard":      {5, func(a *attack) { a.pause(a.shard(), between(a.rand, time.Second, 8*time.Second)) }},
	"pause-leader":     {4, func(a *attack) { a.pause(a.leader(), between(a.rand, time.Second, 8*time.Second)) }},
	// The control store: all of it, a member, its leader, more members than it can do without.
	"kill-store": {1, func(a *attack) { a.killStore(a.stores(), between(a.rand, 0, 2*time.Second)) }},
	"kill-store-member": {2, func(a *attack) {
		a.killStore(a.stores()[a.rand.IntN(len(a.stores())):][:1], between(a.rand, 0, 6*time.Second))
	}},
	"kill-store-leader":  {2, func(a *attack) { a.killStore(a.storeLeader(), between(a.rand, 0, 6*time.Second)) }},
	"pause-store":        {1, func(a *attack) { a.pauseStore(a.stores(), between(a.rand, time.Second, 4*time.Second)) }},
	"pause-store-leader": {2, func(a *attack) { a.pauseStore(a.storeLeader(), between(a.rand, 2*time.Second, 9*time.Second)) }},
	"lose-quorum":        {2, func(a *attack) { a.loseQuorum(between(a.rand, time.Second, 8*time.Second)) }},
	"compact-store":      {3, func(a *attack) { a.compactStore() }},
	"slow-store": {2, func(a *attack) {
		delay, d := between(a.rand, 50*time.Millisecond, 700*time.Millisecond), between(a.rand, 2*time.Second, 8*time.Second)
		ok, done := a.once("slow store")
		if !ok {
			return
		}
		a.lasting(d, done)
		for _, m := range a.members {
			a.through(m.etcd, mode{what: "delay", delay: delay}, d)
		}
		a.about = fmt.Sprintf("answers %s late for everybody for %s", delay.Round(time.Millisecond), d.Round(time.Millisecond))
	}},
	"kill-api": {1, func(a *attack) { a.killAPI(false) }},
	// The API server comes back without the past: every watch's resourceVersion is too old (410).
	"watch-window": {1, func(a *attack) { a.killAPI(true) }},
	"rolling":      {1, func(a *attack) { a.rolling() }},
	"crash-point":  {6, func(a *attack) { a.crashPoint() }},
	// The network, where each process has its own: packets are lost, and nobody is told.
	"net-store":         {3, func(a *attack) { a.cut(a.any().name, a.storeNames(), 100, false, 10*time.Second) }},
	"net-store-one-way": {3, func(a *attack) { a.cut(a.any().name, a.storeNames(), 100, true, 10*time.Second) }},
	"net-api":           {2, func(a *attack) { a.cut(a.any().name, []string{"api"}, 100, false, 10*time.Second) }},
	"net-api-one-way":   {2, func(a *attack) { a.cut(a.any().name, []string{"api"}, 100, true, 10*time.Second) }},
	"net-peer":          {2, func(a *attack) { a.cut(a.any().name, []string{a.any().name}, 100, false, 12*time.Second) }},
	"net-peer-one-way":  {3, func(a *attack) { a.cut(a.any().name, []string{a.any().name}, 100, true, 12*time.Second) }},
	"net-alone":         {2, func(a *attack) { a.cut(a.any().name, a.everybody(), 100, false, 12*time.Second) }},
	"net-loss":          {4, func(a *attack) { a.cut(a.any().name, a.everybody(), 10+a.rand.IntN(40), false, 10*time.Second) }},
	"net-loss-store": {2, func(a *attack) {
		a.cut(a.storeNames()[a.rand.IntN(3)], a.everybody(), 5+a.rand.IntN(30), false, 8*time.Second)
	}},
	"net-store-leader":         {2, func(a *attack) { a.cutStoreLeader(false) }},
	"net-store-leader-one-way": {1, func(a *attack) { a.cutStoreLeader(true) }},
	"net-split":                {1, func(a *attack) { a.split() }},
	"scale":                    {3, func(a *attack) { a.scaleShards() }},
	"limits":                   {2, func(a *attack) { a.limits() }},
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
	"late-binding-kill": {4, func(a *attack) { a.lateKill(a.shard(), func(m *member) proxies { return m.api }, "intents") }},
	"late-intent-kill":  {3, func(a *attack) { a.lateKill(a.shard(), func(m *member) proxies { return m.etcd }, "intents") }},
	"late-grant-kill":   {3, func(a *attack) { a.lateKill(a.leader(), func(m *member) proxies { return m.etcd }, "reservations") }},
	// The same, but the process lives, and has to find out what became of its requests before they arrive.
	"late-binding-cut": {4, func(a *attack) { a.lateCut(a.shard(), func(m *member) proxies { return m.api }, "intents") }},
	"late-intent-cut":  {3, func(a *attack) { a.lateCut(a.shard(), func(m *member) proxies { return m.etcd }, "intents") }},
	"late-grant-cut":   {3, func(a *attack) { a.lateCut(a.leader(), func(m *member) proxies { return m.etcd }, "reservations") }},
	"late-binding-pause": {2, func(a *attack) {
		m := a.shard()
		a.through(m.api, mode{what: "late", delay: between(a.rand, time.Second, 5*time.Second)}, 6*time.Second)
		a.pause(m, between(a.rand, 4*time.Second, 8*time.Second))
	}},
	// Every shard's requests to the API server are late, so that what is done about a lost one is no faster than it is.
	"late-bindings-kill": {4, func(a *attack) { a.lateBindings(true) }},
	"late-bindings-cut":  {4, func(a *attack) { a.lateBindings(false) }},
	// The heirs of a dead shard are late too, but only when they have listed the pods: its Bindings arrive before they are resolved.
	"late-heirs":   {4, func(a *attack) { a.lateHeirs() }},
	"freeze-api":   {1, func(a *attack) { a.any().api.each((*proxy).freeze) }},
	"freeze-store": {2, func(a *attack) { a.any().etcd.each((*proxy).freeze) }},
	"freeze-link":  {2, func(a *attack) { a.any().link.each((*proxy).freeze) }},
	"pause-api":    {2, func(a *attack) { a.pauseAPI(between(a.rand, time.Second, 6*time.Second)) }},
	"queue-again":  {1, func(a *attack) { a.queueAgain() }},
	"foreign":      {2, func(a *attack) { a.foreign() }},
	"cordon":       {2, func(a *attack) { a.cordon() }},
	"shrink":       {2, func(a *attack) { a.shrink() }},
	"node-again":   {1, func(a *attack) { a.nodeAgain() }},
	"move-node":    {1, func(a *attack) { a.moveNode() }},
	// Nothing dies, and no path breaks.
	"refuse-bindings": {2, func(a *attack) { a.refuseBindings() }},
	"refuse-pods":     {1, func(a *attack) { a.refusePods() }},
	"refuse-statuses": {1, func(a *attack) { a.refuseStatuses() }},
	"late-lists":      {2, func(a *attack) { a.lateLists() }},
	"no-space":        {2, func(a *attack) { a.noSpace() }},
	"restore-store":   {1, func(a *attack) { a.restoreStore() }},
	"clock-step":      {3, func(a *attack) { a.stepClock(a.any()) }},
	"slow-shard":      {2, func(a *attack) { a.slow(a.shard()) }},
	"slow-leader":     {2, func(a *attack) { a.slow(a.leader()) }},
	"no-links":        {2, func(a *attack) { a.noLinks() }},
	"other-version":   {3, func(a *attack) { a.otherVersion(a.any()) }},
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
	dropped time.Time       // when the path to the control store was last cut for a transaction without an answer
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
	for _, k := range kinds {
		if why := a.missing(k); why != "" {
			r.result.Missing[k] = why
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
	began := time.Now()
	var wg sync.WaitGroup
	defer wg.Wait()
	a.lasting = func(d time.Duration, f func()) {
		wg.Go(func() { wait.For(loading, d); f() })
	}
	// Load first: a fault in an empty cluster shows nothing.
	for wait.For(loading, 2*time.Second); loading.Err() == nil; {
		if time.Since(began) > r.For { // what is left to do is to visit the last crash points
			kinds, total = []string{"crash-point"}, faults["crash-point"].weight
			longest = 1500 * time.Millisecond
		}
		n := a.rand.IntN(total)
		for _, k := range kinds {
			if n -= faults[k].weight; n < 0 {
				a.about = ""
				if a.missing(k) != "" {
					r.result.Skipped[k]++
					break
				}
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
		if !wait.For(loading, pause) {
			break
		}
	}
	return ctx.Err()
}

// once reports whether nothing of this name goes on, and notes that it does; done ends it.
func (a *attack) once(name string) (ok bool, done func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.busy[name] {
		return false, nil
	}
	a.busy[name] = true
	return true, func() { a.mu.Lock(); defer a.mu.Unlock(); a.busy[name] = false }
}

func (a *attack) shard() *member       { return a.shards()[a.rand.IntN(a.MostShards)] }
func (a *attack) coordinator() *member { return a.coordinators()[a.rand.IntN(a.Coordinators)] }
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
func (a *attack) lateKill(m *member, through func(*member) proxies, kind string) {
	delay := between(a.rand, time.Second, 6*time.Second)
	after := between(a.rand, 300*time.Millisecond, 6*time.Second)
	pause := between(a.rand, 0, 300*time.Millisecond)
	if m.running() == nil {
		return
	}
	a.through(through(m), mode{what: "late", delay: delay}, 2*delay+time.Second)
	a.hear(m, kind)
	wait.For(a.loading, pause)
	a.kill(m, after)
	if a.about != "" {
		a.about += fmt.Sprintf("; its requests arrive %s late", delay.Round(time.Millisecond))
	}
}

// lateCut makes requests late, and cuts their connections after the next one that matters.
func (a *attack) lateCut(m *member, through func(*member) proxies, kind string) {
	delay := between(a.rand, 300*time.Millisecond, 3*time.Second)
	pause := between(a.rand, 100*time.Millisecond, 800*time.Millisecond)
	p := through(m)
	ok, done := a.once(p[0].name())
	if !ok || m.running() == nil {
		return
	}
	defer done()
	p.each(func(p *proxy) { p.set(mode{what: "late", delay: delay}) })
	a.hear(m, kind)
	wait.For(a.loading, pause)
	p.each(func(p *proxy) { p.cut(); p.set(mode{}) })
	a.about = fmt.Sprintf("%s: requests of %s arrive %s late", m.name, pause.Round(time.Millisecond), delay.Round(time.Millisecond))
}

// lateBindings makes the requests of all shards to the API server late, and leaves those of one without an answer again
// and again: its connections are cut, or it dies. Room that was given back too early is taken before the first of them
// arrive.
func (a *attack) lateBindings(kill bool) {
	delay := between(a.rand, 1500*time.Millisecond, 3*time.Second)
	gaps := between(a.rand, 400*time.Millisecond, 900*time.Millisecond)
	ok, done := a.once("late bindings")
	if !ok {
		return
	}
	defer done()
	for _, m := range a.shards() {
		a.through(m.api, mode{what: "late", delay: delay}, 2*delay)
	}
	if m := a.at("intents"); m != nil && kill {
		wait.For(a.loading, gaps/4)
		a.kill(m, between(a.rand, 300*time.Millisecond, 6*time.Second))
	} else {
		for range 4 {
			if !wait.For(a.loading, gaps) {
				break
			}
			for _, m := range a.shards() {
				m.api.each((*proxy).cut)
			}
		}
	}
	a.about = fmt.Sprintf("requests arrive %s late", delay.Round(time.Millisecond))
}

// lateHeirs kills a shard whose Bindings are on their way, and makes the others' requests late a moment after they have
// inherited its nodes.
func (a *attack) lateHeirs() {
	delay, moment := between(a.rand, 3*time.Second, 5*time.Second), between(a.rand, 30*time.Millisecond, 400*time.Millisecond)
	ok, done := a.once("late bindings")
	if !ok {
		return
	}
	defer done()
	for _, m := range a.shards() { // one of them writes the next intents
		a.through(m.api, mode{what: "late", delay: delay}, 2*time.Second)
	}
	victim := a.at("intents")
	for _, m := range a.shards() {
		if m != victim {
			m.api.each(func(p *proxy) { p.set(mode{}) })
		}
	}
	if victim == nil || victim.running() == nil {
		return
	}
	wait.For(a.loading, 100*time.Millisecond)
	a.kill(victim, 8*time.Second)
	within, cancel := context.WithTimeout(a.loading, 5*time.Second)
	defer cancel()
	for within.Err() == nil && a.view.named(victim.name) {
		wait.For(within, 10*time.Millisecond)
	}
	wait.For(a.loading, moment)
	for _, m := range a.shards() {
		m.api.each(func(p *proxy) { p.set(mode{what: "late", delay: delay}) })
	}
	a.lasting(delay, func() {
		for _, m := range a.shards() {
			m.api.each(func(p *proxy) { p.set(mode{}) })
		}
	})
	a.about = fmt.Sprintf("%s; requests arrive %s late, its heirs' %s after they were named", victim.name, delay.Round(time.Millisecond), moment.Round(time.Millisecond))
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
		a.view.killed(m.name)
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

func (a *attack) through(all proxies, m mode, d time.Duration) {
	ok, done := a.once(all[0].name())
	if !ok {
		a.about = ""
		return
	}
	a.about += fmt.Sprintf(" for %s", d.Round(time.Millisecond))
	if m.delay > 0 {
		a.about += fmt.Sprintf(", answers %s late", m.delay.Round(time.Millisecond))
	}
	all.each(func(p *proxy) { p.set(m) })
	a.lasting(d, func() { defer done(); all.each(func(p *proxy) { p.set(mode{}) }) })
}

func (a *attack) scaleShards() {
	n := max(2, a.Shards-2) + a.rand.IntN(a.MostShards-max(2, a.Shards-2)+1)
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
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
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
		wait.For(a.loading, d)
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

// moveNode has a node in another zone, under its pods.
func (a *attack) moveNode() {
	set := func(zone func(node string) string) func(ctx context.Context, node string) error {
		return func(ctx context.Context, node string) error {
			_, err := a.kube.Core.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, v1.LabelTopologyZone, zone(node)), metav1.PatchOptions{})
			return err
		}
	}
	to := fmt.Sprintf("zone-%d", a.rand.IntN(zones))
	a.onNode("move", set(func(string) string { return to }), set(zoneOf))
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
