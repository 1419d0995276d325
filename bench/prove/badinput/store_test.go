package badinput

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/stage/local"
)

// crowd is a queue that is full, and a gang that waits for it: it must not get in while the full one's records are missing.
type crowd struct {
	w         *world
	ns, queue string
	key       string // of the full gang's reservation
}

func (w *world) crowd(t *testing.T, queue string) *crowd {
	t.Helper()
	c := &crowd{w: w, ns: w.namespace(t), queue: queue}
	w.queue(t, queue, v1beta1.QueueSpec{Capability: list("cpu", "2")})
	w.queue(t, queue+".in", v1beta1.QueueSpec{})
	w.queue(t, queue+".out", v1beta1.QueueSpec{}) // of another bucket, and perhaps of another shard
	w.group(t, c.ns, "in", queue+".in", 2)
	for _, name := range []string{"one", "two"} {
		w.pod(t, c.ns, name, inGroup("in"), asks("cpu", "1"))
	}
	w.bound(t, c.ns, "one", "two")
	for _, name := range []string{"in", "out"} {
		w.group(t, c.ns, "waits-"+name, queue+"."+name, 1)
		w.pod(t, c.ns, "waits-"+name, inGroup("waits-"+name), asks("cpu", "1"))
		w.noQuota(t, c.ns, "waits-"+name, v1beta1.ReasonQuotaExceeded, fmt.Sprintf("%q", queue), "cpu")
	}
	g := v1beta1.PodGroup{}
	if err := w.kube.Basalt.Get().Namespace(c.ns).Resource("podgroups").Name("in").Do(t.Context()).Into(&g); err != nil {
		t.Fatal(err)
	}
	c.key = "reservations/" + api.BucketOf(queue+".in").Label() + "/" + string(g.UID)
	return c
}

// charged is what the records charge to the queue and all below it, in milli-cores.
func charged(values map[string][]byte, queue string) (cpu int64) {
	for _, v := range values {
		r := wire.ReservationRecord{}
		if proto.Unmarshal(v, &r) != nil || !api.Under(r.GetGang().GetQueue(), queue) {
			continue
		}
		for _, a := range r.GetDemand() {
			if a.GetResource() == "cpu" {
				cpu += a.GetValue()
			}
		}
	}
	return cpu
}

// stillFull waits until the full gang has its record again, and shows that nothing else got in meanwhile or was moved.
func (c *crowd) stillFull(t *testing.T) {
	t.Helper()
	client := c.w.etcd(t)
	wait(t, "the record of "+c.ns+"/in", func(ctx context.Context) error {
		resp, err := client.Get(ctx, "reservations/", clientv3.WithPrefix())
		if err != nil {
			return err
		}
		values, found := map[string][]byte{}, false
		for _, kv := range resp.Kvs {
			values[string(kv.Key)] = kv.Value
			r := wire.ReservationRecord{}
			found = found || string(kv.Key) == c.key && proto.Unmarshal(kv.Value, &r) == nil && r.GetGang().GetName() == "in"
		}
		if n := charged(values, c.queue); n > 2000 {
			t.Fatalf("%dm are charged to queue %s of 2000m", n, c.queue)
		}
		if !found {
			return fmt.Errorf("no readable record %s", c.key)
		}
		return nil
	})
	c.w.noQuota(t, c.ns, "waits-in", v1beta1.ReasonQuotaExceeded, fmt.Sprintf("%q", c.queue), "cpu")
	c.w.noQuota(t, c.ns, "waits-out", v1beta1.ReasonQuotaExceeded, fmt.Sprintf("%q", c.queue), "cpu")
	c.w.unbound(t, c.ns, "waits-in", "waits-out")
	c.w.bound(t, c.ns, "one", "two")
}

// leave ends the full gang: those who waited get in, so their requests were not forgotten.
func (c *crowd) leave(t *testing.T) {
	t.Helper()
	c.w.deletePods(t, c.ns, "one", "two")
	c.w.bound(t, c.ns, "waits-in", "waits-out")
	c.w.deletePods(t, c.ns, "waits-in", "waits-out")
}

// watchQuota follows the records from a revision on, and at the end says the most that was ever charged to a queue.
func (w *world) watchQuota(t *testing.T, queue string, revision int64) (most func() int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	client := w.etcd(t)
	var highest int64
	var wg sync.WaitGroup
	wg.Go(func() {
		values := map[string][]byte{}
		for resp := range client.Watch(ctx, "reservations/", clientv3.WithPrefix(), clientv3.WithRev(revision)) {
			if err := resp.Err(); err != nil && ctx.Err() == nil {
				t.Errorf("watch the control store: %v", err)
			}
			for i, e := range resp.Events {
				if e.Type == clientv3.EventTypeDelete {
					delete(values, string(e.Kv.Key))
				} else {
					values[string(e.Kv.Key)] = e.Kv.Value
				}
				if i+1 == len(resp.Events) || resp.Events[i+1].Kv.ModRevision != e.Kv.ModRevision {
					highest = max(highest, charged(values, queue))
				}
			}
		}
	})
	return func() int64 { cancel(); wg.Wait(); return highest }
}

type mark struct {
	starts int
	log    int64
}

func (w *world) marks(t *testing.T) map[*local.Basalt]mark {
	out := map[*local.Basalt]mark{}
	for _, b := range w.cluster.Basalts() {
		out[b] = mark{b.Starts(), w.logSize(t, b)}
	}
	return out
}

// restarted waits until each process has ended by itself, saying why, and was started again. A shard may find first that
// its session is over; somebody must have found what really happened.
func (w *world) restarted(t *testing.T, before map[*local.Basalt]mark, words ...string) {
	t.Helper()
	var lines []string
	for b, m := range before {
		line := w.logged(t, b, m.log, "basalt: ", "start over")
		if !strings.HasPrefix(line, "basalt: ") {
			t.Errorf("%s: %s", b.Name(), line)
		}
		lines = append(lines, line)
		wait(t, "the next "+b.Name(), func(context.Context) error {
			if b.Starts() == m.starts {
				return errors.New("not started again")
			}
			return nil
		})
	}
	if err := contains(strings.Join(lines, ""), words); err != nil {
		t.Error(err)
	}
}

func (w *world) store(t *testing.T) {
	c := w.crowd(t, "crowd")
	t.Run("emptied under running processes", func(t *testing.T) { w.emptied(t, c) })
	t.Run("restored from a copy", func(t *testing.T) { w.restored(t, c) })
	t.Run("corrupt records", func(t *testing.T) { w.corrupt(t, c) })
	c.leave(t)
}

func (w *world) emptied(t *testing.T, c *crowd) {
	before := w.marks(t)
	resp, err := w.etcd(t).Delete(t.Context(), "\x00", clientv3.WithFromKey())
	if err != nil {
		t.Fatal(err)
	}
	most := w.watchQuota(t, c.queue, resp.Header.Revision)
	w.restarted(t, before, "the control store was replaced: its identity changed")
	w.ready(t)
	c.stillFull(t)
	w.healthy(t)
	if n := most(); n != 2000 {
		t.Errorf("while it was refilled %dm were charged to a queue of 2000m", n)
	}
	w.noOvercommit(t)
}

// restored puts a copy of the data in place of a store that has gone on since, as a restore from a backup does.
func (w *world) restored(t *testing.T, c *crowd) {
	data, backup := filepath.Join(w.cluster.Dir(), "control-store"), filepath.Join(t.TempDir(), "backup")
	w.cluster.KillControlStore()
	if err := os.CopyFS(backup, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	if err := w.cluster.StartControlStore(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.healthy(t)
	late := w.crowd(t, "late-crowd")

	before := w.marks(t)
	w.cluster.KillControlStore()
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(data, os.DirFS(backup)); err != nil {
		t.Fatal(err)
	}
	if err := w.cluster.StartControlStore(t.Context()); err != nil {
		t.Fatal(err)
	}
	now, err := w.etcd(t).Get(t.Context(), c.key)
	if err != nil || len(now.Kvs) != 1 {
		t.Fatalf("the record of before the copy: %d, %v", len(now.Kvs), err)
	}
	most := w.watchQuota(t, late.queue, 1)
	w.restarted(t, before, "the control store was replaced: it is at revision ")
	w.ready(t)
	late.stillFull(t)
	c.stillFull(t)
	w.healthy(t)
	if n := most(); n != 2000 {
		t.Errorf("while it was refilled %dm were charged to a queue of 2000m", n)
	}
	late.leave(t)
	w.noOvercommit(t)
}

// corrupt writes what cannot be read over one record after another, and has each read again.
func (w *world) corrupt(t *testing.T, c *crowd) {
	const garbage = "\xff\xfe\xfd no record"
	client := w.etcd(t)
	put := func(t *testing.T, key string) {
		t.Helper()
		if _, err := client.Put(t.Context(), key, garbage); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		what string
		keys []string
	}{
		{"reservations", []string{c.key, "reservations/0007/nobody", "reservations/here"}},
		{"limits", []string{"queues/" + c.queue, "queues/nobody", "queues/No Path"}},
		{"intents", []string{"intents/0123456789abcdef/0000000000000001", "intents/here"}},
		{"shards", []string{"shards/0123456789abcdef"}},
		{"sequence", []string{"seq"}},
		{"table", []string{"table"}},
	} {
		t.Run(row.what, func(t *testing.T) {
			log := w.marks(t)
			for _, key := range row.keys {
				put(t, key)
			}
			shard := w.shards[0]
			w.leader.Kill()
			shard.Kill()
			w.ready(t)
			for _, key := range row.keys { // by whoever reads it
				wait(t, "a line about "+key, func(context.Context) error {
					for b, m := range log {
						text, err := os.ReadFile(b.Log())
						if err != nil {
							return err
						}
						for line := range strings.Lines(string(text[m.log:])) {
							if strings.Contains(line, "level=ERROR") && strings.Contains(line, key) && strings.Contains(line, "corrupt record") {
								return nil
							}
						}
					}
					return errors.New("no such line")
				})
			}
			w.healthy(t)
			c.stillFull(t)
			w.queueSays(t, c.queue, yes, v1beta1.ReasonReady)
		})
	}
	t.Run("identity", func(t *testing.T) {
		before := w.marks(t)
		was, err := client.Get(t.Context(), "store")
		if err != nil || len(was.Kvs) != 1 {
			t.Fatalf("%d, %v", len(was.Kvs), err)
		}
		put(t, "store")
		w.restarted(t, before, "the control store was replaced: its identity changed")
		for b, m := range before { // nobody writes over what they cannot read
			w.logged(t, b, m.log, "basalt: ", `"store"`, "corrupt record")
		}
		if out, err := w.run(t, "status", "--etcd="+w.cluster.ControlStore()[0]); err == nil || contains(out, []string{`"store"`, "corrupt record"}) != nil {
			t.Errorf("basalt status: %v\n%s", err, out)
		}
		c.w.bound(t, c.ns, "one", "two")
		if _, err := client.Put(t.Context(), "store", string(was.Kvs[0].Value)); err != nil {
			t.Fatal(err)
		}
		w.ready(t)
		w.healthy(t)
		c.stillFull(t)
	})
	for _, kind := range []string{"reservations/", "intents/"} { // what nobody owns stays for somebody to look at, and only that
		resp, err := client.Get(t.Context(), kind, clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range resp.Kvs {
			if string(kv.Value) == garbage {
				t.Logf("left: %s", kv.Key)
			}
		}
	}
}
