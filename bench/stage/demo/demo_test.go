package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/measure/workload"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// standIn schedules like Basalt as far as anyone outside can see: records in the control store, then Bindings. It is one
// loop that lists everything and knows no faults but those that a test asks for.
type standIn struct {
	t       testing.TB
	cluster *local.Cluster
	faults  map[string]bool
	kube    *kube.Clients
	etcd    *clientv3.Client
	cancel  context.CancelFunc
	done    chan struct{}

	mu     sync.Mutex
	killed []string

	term, seq, n uint64
	leader       int
	table        *api.Table
	caps         map[string]api.Resources
	charged      map[string]api.Resources
	free         map[string]api.Resources
	model        map[string]string
	gangs        map[string]*wire.ReservationRecord
	bound        map[types.UID]*v1.Pod
	denied       map[string]bool
	once         map[string]bool
}

func (s *standIn) shard(i int) string { return fmt.Sprintf("shard-%d", i) }

func (s *standIn) server() string { return "" }

func (s *standIn) command(context.Context, ...string) (string, error) {
	return "", errors.New("a stand-in answers nobody")
}

func (s *standIn) kill(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killed = append(s.killed, name)
	return nil
}

func (s *standIn) stop() {
	if s.cancel != nil {
		s.cancel()
		<-s.done
		s.cancel = nil
		_ = s.etcd.Close()
	}
}

func (s *standIn) start(context.Context) (err error) {
	if s.kube, err = kube.ConnectConfig(s.cluster.Config(local.Shard), "stand-in"); err != nil {
		return err
	}
	if s.etcd, err = clientv3.New(clientv3.Config{Endpoints: s.cluster.ControlStore(), Logger: zap.NewNop()}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel, s.done = cancel, make(chan struct{})
	go func() {
		defer close(s.done)
		if err := s.run(ctx); err != nil && ctx.Err() == nil {
			s.t.Errorf("stand-in: %v", err)
		}
	}()
	return nil
}

func (s *standIn) commit(ctx context.Context, values map[string]proto.Message) error {
	var ops []clientv3.Op
	for k, m := range values {
		if m == nil {
			ops = append(ops, clientv3.OpDelete(k))
			continue
		}
		b, err := proto.Marshal(m)
		if err != nil {
			return err
		}
		ops = append(ops, clientv3.OpPut(k, string(b)))
	}
	_, err := s.etcd.Txn(ctx).Then(ops...).Commit()
	return err
}

func (s *standIn) coordinate(ctx context.Context, key string, m proto.Message) error {
	s.seq++
	return s.commit(ctx, map[string]proto.Message{"seq": &wire.Sequence{Value: s.seq, Term: s.term}, key: m})
}

// lead begins a new term.
func (s *standIn) lead(ctx context.Context) error {
	if s.leader++; s.leader > 1 {
		if err := s.commit(ctx, map[string]proto.Message{"leader/coordinator": nil}); err != nil {
			return err
		}
	}
	if err := s.commit(ctx, map[string]proto.Message{"leader/coordinator": &wire.LeaderRecord{Name: fmt.Sprintf("coordinator-%d", s.leader%2)}}); err != nil {
		return err
	}
	r, err := s.etcd.Get(ctx, "leader/coordinator")
	if err != nil {
		return err
	}
	s.term = uint64(r.Kvs[0].CreateRevision)
	return nil
}

// assign writes a table in which a shard, if named, has a new incarnation.
func (s *standIn) assign(ctx context.Context, replaced string) error {
	next := &api.Table{Epoch: 1}
	if s.table != nil {
		*next = *s.table
		next.Epoch++
		next.Members = slices.Clone(s.table.Members)
	} else {
		for i := range 3 {
			next.Members = append(next.Members, api.Member{Name: s.shard(i)})
		}
	}
	for i := range next.Members {
		if m := &next.Members[i]; m.Incarnation == "" || m.Name == replaced {
			m.Incarnation = api.Incarnation(fmt.Sprintf("%s-at-%d", m.Name, next.Epoch))
			for b := range next.Owners {
				if b%3 == i {
					next.Owners[b], next.Changed[b] = uint16(i), next.Epoch
				}
			}
		}
	}
	s.table = next
	return s.coordinate(ctx, "table", wire.FromTable(next))
}

func (s *standIn) run(ctx context.Context) error {
	s.caps, s.charged, s.free, s.model = map[string]api.Resources{}, map[string]api.Resources{}, map[string]api.Resources{}, map[string]string{}
	s.gangs, s.bound, s.denied, s.once = map[string]*wire.ReservationRecord{}, map[types.UID]*v1.Pod{}, map[string]bool{}, map[string]bool{}
	if err := errors.Join(s.lead(ctx), s.assign(ctx, "")); err != nil {
		return err
	}
	var queues v1beta1.QueueList
	if err := s.kube.Basalt.Get().Resource("queues").Do(ctx).Into(&queues); err != nil {
		return err
	}
	closed, parents := map[string]bool{}, map[string]bool{}
	for _, q := range queues.Items {
		limits, err := api.FromResourceList(q.Spec.Capability, false)
		if err != nil {
			return err
		}
		s.caps[q.Name], closed[q.Name] = limits, q.Spec.Closed
		parents[api.Parent(q.Name)] = true
		if err := s.coordinate(ctx, "queues/"+q.Name, &wire.LimitsRecord{Queue: q.Name, Capability: wire.FromResources(limits)}); err != nil {
			return err
		}
	}
	nodes, err := s.kube.Core.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range nodes.Items {
		n := api.FromNode(&nodes.Items[i], nil)
		s.free[n.Name], s.model[n.Name] = n.Allocatable, n.Labels[workload.ModelLabel]
	}
	for ctx.Err() == nil {
		if err := s.round(ctx, closed); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

// fault tells once whether a fault that was asked for is to be made now.
func (s *standIn) fault(name string) bool {
	if !s.faults[name] || s.once[name] {
		return false
	}
	s.once[name] = true
	return true
}

func (s *standIn) round(ctx context.Context, closed map[string]bool) error {
	s.mu.Lock()
	killed := s.killed
	s.killed = nil
	s.mu.Unlock()
	for _, name := range killed {
		replace := func() error { return s.assign(ctx, name) }
		if strings.HasPrefix(name, "coordinator") {
			replace = func() error { return s.lead(ctx) }
		}
		if err := replace(); err != nil {
			return err
		}
	}

	var groups v1beta1.PodGroupList
	if err := s.kube.Basalt.Get().Namespace(namespace).Resource("podgroups").Do(ctx).Into(&groups); err != nil {
		return err
	}
	pods, err := s.kube.Core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	members := map[string][]*v1.Pod{}
	var singles []*v1.Pod
	for i := range pods.Items {
		p := &pods.Items[i]
		if name := p.Labels[api.LabelPodGroup]; name != "" {
			members[name] = append(members[name], p)
		} else {
			singles = append(singles, p)
		}
	}
	for i := range groups.Items {
		g := &groups.Items[i]
		ref := &wire.GangRef{Uid: string(g.UID), Namespace: g.Namespace, Name: g.Name, Queue: g.Spec.Queue}
		if err := s.gang(ctx, ref, members[g.Name], int(g.Spec.SchedulingPolicy.Gang.MinCount), closed); err != nil {
			return err
		}
	}
	for _, p := range singles {
		ref := &wire.GangRef{Uid: string(p.UID), Namespace: p.Namespace, Name: p.Name, Queue: p.Labels[api.LabelQueue], Single: true}
		if err := s.gang(ctx, ref, []*v1.Pod{p}, 1, closed); err != nil {
			return err
		}
	}
	return nil
}

func (s *standIn) charge(queue string, by api.Resources) {
	for _, path := range api.Lineage(queue) {
		s.charged[path] = s.charged[path].Add(by)
	}
}

func (s *standIn) fits(queue string, demand api.Resources) bool {
	for _, path := range api.Lineage(queue) {
		for _, c := range s.caps[path] {
			if s.charged[path].Value(c.Resource)+demand.Value(c.Resource) > c.Value {
				return false
			}
		}
	}
	return true
}

// gang takes one gang a step further: releases what has finished, or reserves and binds all of it.
func (s *standIn) gang(ctx context.Context, ref *wire.GangRef, pods []*v1.Pod, min int, closed map[string]bool) error {
	key := "reservations/" + api.BucketOf(ref.Queue).Label() + "/" + ref.Uid
	record := s.gangs[ref.Uid]
	if record != nil {
		var left api.Resources
		live := 0
		for _, p := range pods {
			requests, _ := api.PodRequests(p, nil)
			if p.Status.Phase == v1.PodSucceeded {
				if b := s.bound[p.UID]; b != nil {
					s.free[b.Spec.NodeName] = s.free[b.Spec.NodeName].Add(requests)
					delete(s.bound, p.UID)
				}
				continue
			}
			live++
			left = left.Add(requests)
		}
		charged, _ := wire.ToResources(record.Demand)
		switch {
		case left.Equal(charged) || live == len(pods):
		case live == 0:
			s.charge(ref.Queue, api.Resources{}.Sub(charged))
			record.Demand = nil
			return s.coordinate(ctx, key, nil)
		default:
			s.charge(ref.Queue, left.Sub(charged))
			record.Demand, record.Term = wire.FromResources(left.Positive()), s.term
			return s.coordinate(ctx, key, record)
		}
		return nil
	}
	if _, exists := s.caps[ref.Queue]; !exists || closed[ref.Queue] || len(pods) < min || len(pods[0].Spec.ResourceClaims) > 0 {
		return nil
	}
	expected := 0 // whole gangs only: a pod that comes later would need growth
	if i := strings.LastIndexByte(pods[len(pods)-1].Name, '-'); i > 0 {
		_, _ = fmt.Sscanf(pods[len(pods)-1].Name[i+1:], "%d", &expected)
	}
	if len(pods) < expected+1 {
		return nil
	}
	var demand api.Resources
	for _, p := range pods {
		requests, _ := api.PodRequests(p, nil)
		demand = demand.Add(requests)
	}
	if !s.fits(ref.Queue, demand) && (strings.HasPrefix(ref.Name, "never") || !s.fault("quota")) {
		if ref.Single || s.denied[ref.Uid] {
			return nil
		}
		s.denied[ref.Uid] = true
		sequence := int64(1)
		if s.fault("status") { // the same stamp twice: the API server refuses the second
			defer func() { _ = s.deny(ctx, ref, 0) }()
		}
		return s.deny(ctx, ref, sequence)
	}
	where := map[string][]*v1.Pod{} // by owner
	placed := map[string]string{}
	undo := map[string]api.Resources{}
	nodes := slices.Sorted(maps.Keys(s.free))
	if len(pods) == 1 { // small ones go round, so that every shard's nodes get some however slow the machine is
		first := len(s.gangs) % len(nodes)
		nodes = slices.Concat(nodes[first:], nodes[:first])
	}
	for _, p := range pods {
		requests, _ := api.PodRequests(p, nil)
		for _, node := range nodes {
			off := p.Spec.Affinity != nil && s.model[node] == bigModel
			on := len(p.Spec.NodeSelector) > 0 && s.model[node] != bigModel
			if off || on || !requests.Fits(s.free[node]) && !(strings.HasPrefix(ref.Name, "one") && s.fault("node")) {
				continue
			}
			undo[node] = undo[node].Add(requests)
			s.free[node] = s.free[node].Sub(requests)
			placed[p.Name] = node
			owner := string(s.table.OwnerOf(node))
			where[owner] = append(where[owner], p)
			break
		}
		if placed[p.Name] == "" {
			for node, r := range undo {
				s.free[node] = s.free[node].Add(r)
			}
			return nil
		}
	}
	record = &wire.ReservationRecord{Gang: ref, Attempt: 1, Demand: wire.FromResources(demand), State: wire.ReservationState_RESERVATION_OPEN, Term: s.term}
	s.gangs[ref.Uid] = record
	s.charge(ref.Queue, demand)
	if err := s.coordinate(ctx, key, record); err != nil {
		return err
	}
	for _, owner := range slices.Sorted(maps.Keys(where)) {
		s.n++
		rec := &wire.IntentsRecord{Gangs: []*wire.GangRef{ref}, TableEpoch: uint64(s.table.Epoch)}
		for _, p := range where[owner] {
			requests, _ := api.PodRequests(p, nil)
			rec.Demands = append(rec.Demands, &wire.Demand{Amounts: wire.FromResources(requests)})
			rec.Rows = append(rec.Rows, &wire.IntentRow{PodUid: string(p.UID), PodResourceVersion: p.ResourceVersion, Namespace: p.Namespace, Name: p.Name, Node: placed[p.Name], Demand: uint32(len(rec.Demands) - 1)})
		}
		key := fmt.Sprintf("intents/%s/%016x", owner, s.n)
		if !ref.Single || !s.fault("intent") {
			if err := s.commit(ctx, map[string]proto.Message{key: rec}); err != nil {
				return err
			}
		}
		for _, p := range where[owner] {
			name := kube.Pod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)}
			labels := map[string]string{api.LabelGang: ref.Uid}
			if err := s.kube.Bind(ctx, name, p.ResourceVersion, placed[p.Name], labels, nil); err != nil {
				return err
			}
			if ref.Single && s.fault("twice") {
				_ = s.kube.Bind(ctx, name, p.ResourceVersion, slices.Sorted(maps.Keys(s.free))[len(s.free)-1], labels, nil)
			}
			b := p.DeepCopy()
			b.Spec.NodeName = placed[p.Name]
			s.bound[p.UID] = b
		}
		if err := s.commit(ctx, map[string]proto.Message{key: nil}); err != nil {
			return err
		}
	}
	return nil
}

func (s *standIn) deny(ctx context.Context, ref *wire.GangRef, sequence int64) error {
	status := v1beta1.PodGroupStatus{Stamp: v1beta1.Stamp{Epoch: 1, Writer: "w", Sequence: sequence}, Queue: ref.Queue, Conditions: []metav1.Condition{{
		Type: v1beta1.ConditionQuotaReserved, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonQuotaExceeded, LastTransitionTime: metav1.Now()}}}
	body, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	return s.kube.Basalt.Patch(types.MergePatchType).Namespace(ref.Namespace).Resource("podgroups").Name(ref.Name).SubResource("status").Body(body).Do(ctx).Error()
}

// runStandIn runs the demo at a small scale over a stand-in and returns its result.
func runStandIn(t *testing.T, scale float64, faults ...string) (result, bool, string) {
	t.Helper()
	root, report := localtest.Programs(t, "etcd", "kube-apiserver"), filepath.Join(t.TempDir(), "report")
	var out bytes.Buffer
	asked := map[string]bool{}
	for _, f := range faults {
		asked[f] = true
	}
	ok, err := Run(
		t.Context(),
		Options{
			Seed:    3,
			Shards:  3,
			Scale:   scale,
			Out:     &out,
			Report:  report,
			without: map[int]bool{3: true},
			system: func(c *local.Cluster) system {
				return &standIn{t: t, cluster: c, faults: asked}
			},
		},
	)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if len(faults) == 0 {
		wantOneScreen(t, out.String(), report)
		wantAsInREADME(t, root, out.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	last := lines[len(lines)-1]
	var r result
	d := json.NewDecoder(strings.NewReader(last))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatalf("the last line is no result: %v\n%s", err, last)
	}
	return r, ok, out.String()
}

// The keys are a promise to whoever reads them.
func TestResultKeys(t *testing.T) {
	b, err := json.Marshal(result{})
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	want := strings.Fields("seed nodes cores shards gangs_expected gangs_bound pods_bound gangs_denied_by_quota pods_per_second p50_ms p99_ms quota_violations double_bindings overcommitted_nodes partial_gangs status_writes status_conflicts api_writes_per_pod shard_failover_ms coordinator_failover_ms gangs_evicted reclaim_ms")
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(m)); !slices.Equal(got, want) {
		t.Errorf("keys %v", got)
	}
}

// With somebody who schedules as he should, the demo counts everything and finds nothing.
func TestDemoCounts(t *testing.T) {
	r, ok, out := runStandIn(t, 0.02)
	if !ok || r.QuotaViolations+r.DoubleBindings+r.OvercommittedNodes+r.PartialGangs+r.StatusConflicts != 0 {
		t.Errorf("violations were found:\n%s", out)
	}
	if r.GangsExpected == 0 || r.GangsBound != r.GangsExpected || r.PodsBound < 100 || r.GangsDeniedByQuota == 0 || r.StatusWrites == 0 ||
		r.PodsPerSecond <= 0 || r.P50 <= 0 || r.P99 < r.P50 || r.APIWritesPerPod < 1 || r.ShardFailoverMS <= 0 || r.CoordinatorFailoverMS <= 0 {
		t.Errorf("result %+v\n%s", r, out)
	}
}

// wantOneScreen judges what the demo prints: no line is too wide but the last, which no person reads, the result fits
// a screen, and it names the report.
func wantOneScreen(t *testing.T, out, report string) {
	t.Helper()
	const lines = 45
	all := strings.Split(strings.TrimSpace(out), "\n")
	all = all[:len(all)-1]
	for _, line := range all {
		if utf8.RuneCountInString(line) > summaryColumns && !strings.Contains(line, report) {
			t.Errorf("%d columns: %s", utf8.RuneCountInString(line), line)
		}
	}
	summary := all[slices.IndexFunc(all, func(line string) bool { return strings.HasPrefix(line, "basalt demo, seed ") }):]
	if len(summary) > lines || !strings.Contains(out, report) {
		t.Errorf("%d lines; the report %s is named: %t", len(summary), report, strings.Contains(out, report))
	}
}

// What README shows of the demo is what it prints, but for the figures.
func wantAsInREADME(t *testing.T, root, out string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, shown, found := strings.Cut(string(text), "\nbasalt demo, seed ")
	shown, _, closed := strings.Cut(shown, "```")
	if !found || !closed {
		t.Fatal("README shows nothing of the demo")
	}
	words := func(line string) string {
		line = regexp.MustCompile(`[0-9][0-9.]*(ms|s|m[0-9.]+s)?`).ReplaceAllString(line, "N")
		return strings.Join(strings.Fields(line), " ")
	}
	printed := map[string]bool{}
	for line := range strings.Lines(out) {
		printed[words(line)] = true
	}
	for line := range strings.Lines("basalt demo, seed " + shown) {
		if !printed[words(line)] {
			t.Errorf("README shows %q, the demo prints\n%s", line, out)
		}
	}
}

// Each fault shows under its key.
func TestDemoCatches(t *testing.T) {
	r, ok, out := runStandIn(t, 0.02, "quota", "node", "intent", "twice", "status")
	if ok || r.QuotaViolations == 0 || r.OvercommittedNodes == 0 || r.DoubleBindings < 2 || r.StatusConflicts == 0 {
		t.Errorf("result %+v\n%s", r, out)
	}
}

func TestDemoRefuses(t *testing.T) {
	for _, o := range []Options{{Shards: 0, Scale: 1}, {Shards: 3, Scale: 0}} {
		if _, err := Run(t.Context(), o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}
