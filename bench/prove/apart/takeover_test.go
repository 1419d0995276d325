package apart

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// TestTakeover kills a shard under a steady load. Pods with constraints over zones wait no longer for its heirs than plain ones, and those
// of the other homes do not wait for the heirs at all.
func TestTakeover(t *testing.T) {
	const queues, every, before, after = 12, 25 * time.Millisecond, 4 * time.Second, 10 * time.Second
	w := start(t, 60)
	w.namespace("takeover")
	for i := range queues {
		w.check(w.kube.Basalt.Post().Resource("queues").Body(&v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("q", i)}}).Do(t.Context()).Error())
	}
	constrained := map[string]edit{
		"plain":         func(*corev1.Pod) {},
		"spread":        spread(zone, 5),
		"affinity":      joins(zone),
		"anti-affinity": func(p *corev1.Pod) { repels(zone, "alone", p.Name)(p) },
	}
	kinds := []string{"plain", "spread", "affinity", "anti-affinity"}
	created, n := map[string]time.Time{}, 0
	load := func(d time.Duration) {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for end := time.Now().Add(d); time.Now().Before(end); <-tick.C {
			kind, queue := kinds[n%len(kinds)], n/len(kinds)%queues
			name := fmt.Sprintf("%s-%d-%d", kind, queue, n)
			created[name] = time.Now()
			w.pod("takeover", name, label(api.LabelQueue, fmt.Sprint("q", queue)), label("kind", fmt.Sprintf("%s-%d", kind, queue)), label("alone", name), constrained[kind])
			n++
		}
	}
	load(before)
	dead := map[int]bool{}
	for i := range queues {
		dead[i] = w.home(fmt.Sprint("q", i)) == w.shards[1].Name()
	}
	killed := time.Now()
	w.shards[1].Kill()
	load(after)
	w.nobodyWaits("takeover", "")
	waits := map[string][]time.Duration{}
	usual := time.Duration(0) // the longest wait before, which is how busy the machine is
	for _, p := range w.seen.pods() {
		at, ours := created[p.Name]
		if !ours {
			continue
		}
		if wait := w.seen.boundAt(p.UID).Sub(at); at.Add(wait).Before(killed) {
			usual = max(usual, wait)
		}
		if at.Before(killed.Add(-time.Second)) {
			continue
		}
		var kind string
		var queue, i int
		for _, k := range kinds {
			if _, err := fmt.Sscanf(p.Name, k+"-%d-%d", &queue, &i); err == nil {
				kind = k
			}
		}
		group := kind + ", home alive"
		if dead[queue] {
			group = kind + ", home killed"
		}
		waits[group] = append(waits[group], w.seen.boundAt(p.UID).Sub(at))
	}
	for _, group := range api.SortedKeys(waits) {
		d := waits[group]
		slices.Sort(d)
		t.Logf("%-28s %4d pods: p50 %s, p99 %s, most %s", group, len(d), d[len(d)/2].Round(time.Millisecond), d[len(d)*99/100].Round(time.Millisecond), d[len(d)-1].Round(time.Millisecond))
		limit := 5*time.Second + 3*usual
		if strings.HasSuffix(group, "alive") {
			limit = 2*time.Second + 3*usual
		}
		if most := d[len(d)-1]; most > limit {
			t.Errorf("%s: a pod waited for %s, and before the takeover for at most %s", group, most, usual)
		}
	}
	w.audited()
}

// store connects to the control store.
func (w *world) store() *clientv3.Client {
	w.t.Helper()
	etcd, err := clientv3.New(clientv3.Config{
		Endpoints: w.cluster.ControlStore(), DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	w.check(err)
	return etcd
}

// table returns the bucket table of the control store.
func (w *world) table(etcd *clientv3.Client) *api.Table {
	w.t.Helper()
	got, err := etcd.Get(w.t.Context(), "table")
	w.check(err)
	var r wire.TableRecord
	w.check(proto.Unmarshal(got.Kvs[0].Value, &r))
	table, err := wire.ToTable(&r, got.Kvs[0].ModRevision)
	w.check(err)
	return table
}

// home returns the name of the shard that drives the gangs of a queue.
func (w *world) home(queue string) (name string) {
	w.t.Helper()
	etcd := w.store()
	defer etcd.Close()
	table := w.table(etcd)
	for _, m := range table.Members {
		if m.Incarnation == table.OwnerOf(queue) {
			name = m.Name
		}
	}
	return name
}

// rests waits until no buckets have moved for some seconds: those that move are offered by nobody for a moment.
func (w *world) rests() {
	w.t.Helper()
	etcd := w.store()
	defer etcd.Close()
	var last api.Epoch
	var since time.Time
	localtest.Wait(w.t, patience, "a table that rests", func(context.Context) error {
		if epoch := w.table(etcd).Epoch; epoch != last {
			last, since = epoch, time.Now()
		}
		if rest := time.Since(since); rest < 3*time.Second {
			return fmt.Errorf("epoch %d since %s", last, rest)
		}
		return nil
	})
}

// spread has a pod spread over domains with those of its kind.
func spread(topology string, skew int32) edit {
	return func(p *corev1.Pod) {
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{TopologyKey: topology, MaxSkew: skew, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kind": p.Labels["kind"]}}}}
	}
}

// joins ties a pod to those of its kind.
func joins(topology string) edit {
	return func(p *corev1.Pod) { requires(topology, "kind", p.Labels["kind"])(p) }
}
