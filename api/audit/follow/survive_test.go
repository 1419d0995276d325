package follow_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/audit/follow"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// road is a TCP proxy that can be cut, and lead elsewhere.
type road struct {
	net.Listener
	mu    sync.Mutex
	to    string // "" while it is cut
	conns map[net.Conn]bool
}

func newRoad(t *testing.T) *road {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &road{Listener: l, conns: map[net.Conn]bool{}}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			to := r.to
			r.mu.Unlock()
			if to == "" {
				c.Close()
				continue
			}
			go r.carry(c, to)
		}
	}()
	t.Cleanup(func() { l.Close(); r.lead("") })
	return r
}

func (r *road) carry(c net.Conn, to string) {
	d, err := net.Dial("tcp", to)
	if err != nil {
		c.Close()
		return
	}
	r.mu.Lock()
	r.conns[c], r.conns[d] = true, true
	if r.to != to {
		c.Close()
		d.Close()
	}
	r.mu.Unlock()
	go func() { _, _ = io.Copy(d, c); d.Close() }()
	_, _ = io.Copy(c, d)
	c.Close()
}

// lead ends what is under way and leads to another address, "" for nowhere.
func (r *road) lead(to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
	for c := range r.conns {
		c.Close()
	}
	clear(r.conns)
}

func host(t *testing.T, e *local.Etcd) string {
	t.Helper()
	u, err := url.Parse(e.Endpoints()[0])
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// desk writes what a coordinator would.
type desk struct {
	t    *testing.T
	etcd *clientv3.Client
	term uint64
	seq  uint64
}

func newDesk(t *testing.T, endpoints []string) *desk {
	t.Helper()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: time.Second}, MinConnectTimeout: time.Second})}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { etcd.Close() })
	return &desk{t: t, etcd: etcd}
}

func (d *desk) commit(values map[string]proto.Message) int64 {
	d.t.Helper()
	var ops []clientv3.Op
	for k, m := range values {
		b, err := proto.Marshal(m)
		if err != nil {
			d.t.Fatal(err)
		}
		ops = append(ops, clientv3.OpPut(k, string(b)))
	}
	r, err := d.etcd.Txn(d.t.Context()).Then(ops...).Commit()
	if err != nil {
		d.t.Fatal(err)
	}
	return r.Header.Revision
}

// open leads, and sets a limit of one core.
func (d *desk) open() {
	d.t.Helper()
	d.term = uint64(d.commit(map[string]proto.Message{"leader/l": &wire.LeaderRecord{}}))
	d.write("queues/q", &wire.LimitsRecord{Queue: "q", Capability: wire.FromResources(api.FromMap(map[string]int64{"cpu": 1000}))})
}

func (d *desk) write(key string, m proto.Message) int64 {
	d.t.Helper()
	d.seq++
	return d.commit(map[string]proto.Message{"seq": &wire.Sequence{Value: d.seq, Term: d.term}, key: m})
}

func (d *desk) reserve(gang string, cpu int64) int64 {
	d.t.Helper()
	return d.write("reservations/"+api.BucketOf("q").Label()+"/"+gang, &wire.ReservationRecord{
		Gang: &wire.GangRef{Uid: gang, Queue: "q"}, Attempt: 1, Demand: wire.FromResources(api.FromMap(map[string]int64{"cpu": cpu})),
		State: wire.ReservationState_RESERVATION_OPEN, Term: d.term})
}

// Cuts, compaction, restarts and another store: the auditor goes on, says what it missed, and cries wolf at nothing.
func TestAuditorGoesOn(t *testing.T) {
	c := localtest.Shared(t)
	store := localtest.Etcd(t)
	r := newRoad(t)
	r.lead(host(t, store))
	d := newDesk(t, store.Endpoints())
	d.open()
	registry := prometheus.NewRegistry()
	a, err := follow.New(follow.Options{
		Etcd: newDesk(t, []string{"http://" + r.Addr().String()}).etcd, Kube: c.Config(local.Admin), StartRevision: 1, Registry: registry,
		Judge: audit.Config{Grace: time.Hour}, // these gangs have no pods
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	wait := func(what string, revision int64, gaps, violations int) {
		t.Helper()
		localtest.Wait(t, 2*time.Minute, what, func(context.Context) error {
			if rep, s := a.Report(), a.Sight(); rep.Revision < revision || s.Gaps != gaps || rep.Sum() != violations {
				return fmt.Errorf("revision %d of %d, %d gaps, found %v", rep.Revision, revision, s.Gaps, rep.Violations)
			}
			return nil
		})
	}
	wait("the beginning", d.reserve("a", 400), 0, 0)

	// Cut for a while: what was done meanwhile is judged afterwards.
	r.lead("")
	d.reserve("a", 500)
	cut := d.reserve("a", 300)
	r.lead(host(t, store))
	wait("what was done while it was cut", cut, 0, 0)

	// Cut for longer than the history is kept.
	r.lead("")
	last := d.reserve("b", 100)
	d.reserve("b", 200)
	newest := d.reserve("b", 300)
	if _, err := d.etcd.Compact(t.Context(), last+1, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	r.lead(host(t, store))
	wait("a gap", newest, 1, 0)

	// The server goes and comes back.
	if err := store.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := store.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait("what comes after a restart", d.reserve("c", 100), 1, 0)
	wait("a violation", d.reserve("d", 5000), 1, 1)

	// Another store in its place: terms, attempts and sequences begin anew.
	other := localtest.Etcd(t)
	o := newDesk(t, other.Endpoints())
	o.open()
	fresh := o.reserve("a", 100)
	r.lead(host(t, other))
	localtest.Wait(t, 2*time.Minute, "the other store", func(context.Context) error {
		if rep, s := a.Report(), a.Sight(); rep.Revision != fresh || s.Gaps != 2 {
			return fmt.Errorf("revision %d, want %d; %d gaps", rep.Revision, fresh, s.Gaps)
		}
		return nil
	})
	fresh = o.reserve("e", 100)
	wait("what comes in the other store", fresh, 2, 1)

	// Restored, and then written to so much that its revisions do not show it: whoever found out first has given it another identity.
	wait("an identity", o.commit(map[string]proto.Message{"store": &wire.StoreIdentity{Id: "one"}}), 2, 1)
	o.commit(map[string]proto.Message{"store": &wire.StoreIdentity{Id: "two"}})
	fresh = o.reserve("e", 200)
	wait("what comes with another identity", fresh, 3, 1)

	got := map[string]float64{}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += " " + l.GetValue()
			}
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"basalt_audit_violations_total quota": 1, "basalt_audit_violations_total leak": 0, "basalt_audit_revision": float64(fresh), "basalt_audit_gaps_total": 3,
		"basalt_audit_gangs": 5,
	} {
		if value, is := got[name]; !is || value != want {
			t.Errorf("%s is %v, want %v; all: %v", name, value, want, got)
		}
	}
	if got["basalt_audit_relists_total pods"] == 0 {
		t.Errorf("no lists are counted: %v", got)
	}
}

// The command as an operator or a CI runs it.
func TestCommand(t *testing.T) {
	c := localtest.Shared(t)
	kubeconfig, err := c.Kubeconfig(local.Admin)
	if err != nil {
		t.Fatal(err)
	}
	store := localtest.Etcd(t)
	d := newDesk(t, store.Endpoints())
	d.open()
	clean := d.reserve("a", 400)
	run := func(args ...string) (out, log string, err error) {
		cmd := follow.Command()
		var o, e bytes.Buffer
		cmd.SetOut(&o)
		cmd.SetErr(&e)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetArgs(append([]string{"--kubeconfig=" + kubeconfig, "--insecure-plain-text", "--etcd=" + store.Endpoints()[0], "--grace=1h"}, args...))
		err = cmd.ExecuteContext(t.Context())
		return o.String(), e.String(), err
	}
	code := func(err error) int {
		var coded interface{ ExitCode() int }
		switch {
		case err == nil:
			return 0
		case errors.As(err, &coded):
			return coded.ExitCode()
		}
		return 1
	}
	const long = "--for=10ms" // once everything was read
	out, log, err := run("--from-revision=1", long)
	if code(err) != 0 || !strings.Contains(out, fmt.Sprintf("judged revisions 1 to %d", clean)) || !strings.Contains(out, "no violations") {
		t.Errorf("clean: %v\n%s%s", err, out, log)
	}
	d.reserve("b", 5000)
	d.reserve("b", 1)
	if out, log, err = run("--from-revision=1", long, "--json"); code(err) != 2 {
		t.Errorf("a violation in the past: %v\n%s%s", err, out, log)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var violation struct {
		Kind, Object, Message string
		Revisions             []int64
	}
	var summary struct {
		Summary    bool
		Revision   int64
		Violations map[string]int
	}
	if err := errors.Join(json.Unmarshal([]byte(lines[0]), &violation), json.Unmarshal([]byte(lines[len(lines)-1]), &summary)); err != nil || len(lines) < 2 ||
		violation.Kind != "quota" || len(violation.Revisions) == 0 || !summary.Summary || summary.Violations["quota"] != 1 ||
		violation.Message != "reservations of 5400m are above the capability of 1" {
		t.Errorf("%v: %+v, %+v\n%s", err, violation, summary, out)
	}
	// A store in which nothing changes: there is nothing to judge, and all of it was seen.
	if out, log, err = run(long); code(err) != 0 || !strings.Contains(out, "no violations") {
		t.Errorf("a quiet store: %v\n%s%s", err, out, log)
	}
	newest := d.reserve("b", 1)
	if _, err := d.etcd.Compact(t.Context(), newest-1, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if out, log, err = run("--from-revision=1", long); code(err) != 0 || !strings.Contains(out, fmt.Sprintf("judged revisions %d to %d", newest, newest)) || !strings.Contains(log, "compacted") {
		t.Errorf("a revision that is compacted: %v\n%s%s", err, out, log)
	}
	for says, args := range map[string][]string{
		"--etcd is required": {"--etcd="}, "--from-revision -1": {"--from-revision=-1"}, "--metrics-token-file": {"--metrics=127.0.0.1:0", "--metrics-token-file=/no/such/file", "--for=1s"},
		"https://": {"--etcd-ca=/ca"}, "not be encrypted: give --etcd-ca": {"--insecure-plain-text=false"}, "kubeconfig": {"--kubeconfig=/no/such/file"},
	} {
		if _, _, err := run(args...); code(err) != 1 || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v does not say %q", args, err, says)
		}
	}
}
