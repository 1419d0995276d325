package console

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/prove/seeds"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

var flat = flag.Duration("flat", 10*time.Minute, "how long 200 streams are watched for a growth of memory, in full")

// What a console is to stand.
const (
	manyGangs  = 10000
	manyQueues = 1000
	manyEyes   = 200 // streams
	churn      = 20  // statuses a second that change
)

// TestScale: ten thousand gangs and a thousand queues appear within a second, two hundred streams cost the console
// some CPU and no memory that grows, and Basalt nothing: no process of it runs.
func TestScale(t *testing.T) {
	if !seeds.InFull() {
		t.Skip("it takes a quarter of an hour: make nightly runs it")
	}
	w := start(t, 0)
	w.tenant("crowd")
	each := func(n int, do func(i int) error) {
		var wg sync.WaitGroup
		var failed atomic.Value
		for worker := range 16 {
			wg.Go(func() {
				for i := worker; i < n; i += 16 {
					if err := do(i); err != nil && !apierrors.IsAlreadyExists(err) {
						failed.Store(err)
						return
					}
				}
			})
		}
		wg.Wait()
		if err, is := failed.Load().(error); is {
			t.Fatal(err)
		}
	}
	each(manyQueues/10, func(i int) error { return w.makeQueue(fmt.Sprintf("q%d", i)) })
	each(manyQueues-manyQueues/10, func(i int) error { return w.makeQueue(fmt.Sprintf("q%d.c%d", i%100, i)) })
	each(manyGangs, func(i int) error {
		g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("g-%05d", i)}}
		g.Spec.SchedulingPolicy.Gang.MinCount = 4
		if err := w.kube.Basalt.Post().Namespace("crowd").Resource("podgroups").Body(g).Do(t.Context()).Error(); err != nil {
			return err
		}
		return w.say(t.Context(), i, 1)
	})
	w.serve()
	root := w.administrator("root")
	admin := w.login(root)
	admin.shows("/work", fmt.Sprintf("<b>%d</b>", manyGangs))
	pid := w.console.Process.Pid
	t.Logf("with %d gangs and %d queues: %d MiB", manyGangs, manyQueues, resident(t, pid)>>20)

	b := chromium(t)
	p := w.person(t, b)
	p.logsIn(root)
	for _, path := range []string{"/work", "/queues", "/queues?all=1"} {
		p.goes(path)
		var paint float64
		p.sees("performance.getEntriesByName('first-contentful-paint').length > 0")
		p.value("performance.getEntriesByName('first-contentful-paint')[0].startTime", &paint)
		var size int
		p.value("document.documentElement.outerHTML.length", &size)
		t.Logf("%s: first paint after %.0f ms, %d KiB", path, paint, size>>10)
		if paint > 1000 {
			t.Errorf("%s: first paint after %.0f ms", path, paint)
		}
	}
	p.goes("/login")

	// Statuses change as a busy cluster's do.
	busy, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(time.Second / churn)
		defer tick.Stop()
		for n := 2; ; n++ {
			select {
			case <-tick.C:
				if err := w.say(busy, n*37%manyGangs, n); err != nil && busy.Err() == nil {
					t.Error(err)
					return
				}
			case <-busy.Done():
				return
			}
		}
	})
	defer wg.Wait()
	defer stop()

	var heard, bytes atomic.Int64
	open := 0
	var eyes []*visitor
	for _, streams := range []int{0, 20, manyEyes} {
		for ; open < streams; open++ {
			if open%8 == 0 { // streams of a session
				eyes = append(
					eyes,
					w.login(w.token([]string{"default", "crowd"}[len(eyes)%2], []string{"root", "crowd"}[len(eyes)%2])),
				)
			}
			path := []string{"/work?n=crowd", "/work?n=crowd&sort=name&page=3", "/gangs/crowd/g-00037",
				"/work?n=crowd&text=g-00"}[open%4]
			if err := eyes[len(eyes)-1].stream(t.Context(), path, func(event string) {
				heard.Add(1)
				bytes.Add(int64(len(event)))
			}); err != nil {
				t.Fatal(err)
			}
		}
		const during = 20 * time.Second
		time.Sleep(3 * time.Second)
		before, had, sent := spent(t, pid), heard.Load(), bytes.Load()
		time.Sleep(during)
		t.Logf(
			"%d streams, %d statuses a second: %.1f %% of a core, %d MiB, %.1f pages a second, %.0f KiB/s",
			streams,
			churn,
			100*(spent(t, pid)-before)/during.Seconds(),
			resident(t, pid)>>20,
			float64(heard.Load()-had)/during.Seconds(),
			float64(bytes.Load()-sent)/1024/during.Seconds(),
		)
	}
	p.goes("/work?n=crowd&text=g-00")
	p.sees("document.getElementById('live').textContent == 'live'")
	var sizes, heaps, elements, shown []int64
	for range 10 {
		time.Sleep(*flat / 10)
		heap, n := p.memory()
		sizes, heaps, elements = append(sizes, resident(t, pid)>>20), append(heaps, heap>>10), append(elements, n)
		var all int64
		p.value("(() => { let n = 0; for (const i = document.createNodeIterator(document); i.nextNode();) n++; return n })()",
			&all)
		shown = append(shown, all)
	}
	t.Logf("%d streams for %v: the console has %v MiB; a page in the browser has a heap of %v KiB and %v nodes, of which "+
		"%v are shown", manyEyes, *flat, sizes, heaps, elements, shown)
	for what, had := range map[string][]int64{"the console's memory": sizes, "the heap of a page": heaps,
		"the nodes of a page": elements} {
		if early, late := max(had[1], had[2], had[3]), max(had[7], had[8], had[9]); late > early*13/10 {
			t.Errorf("%s grows: %v", what, had)
		}
	}
	p.sees("document.getElementById('live').textContent == 'live'")
}

// memory returns what a page keeps that is no garbage: bytes of scripts' objects, and nodes of documents.
func (p *person) memory() (heap, nodes int64) {
	p.t.Helper()
	ctx := p.t.Context()
	p.check(p.Call(ctx, "HeapProfiler.collectGarbage", struct{}{}, nil))
	var of struct{ UsedSize float64 }
	p.check(p.Call(ctx, "Runtime.getHeapUsage", struct{}{}, &of))
	var counts struct{ Nodes int64 }
	p.check(p.Call(ctx, "Memory.getDOMCounters", struct{}{}, &counts))
	return int64(of.UsedSize), counts.Nodes
}

// TestShardsPay: two hundred people who look cost a shard less than a hundredth of a core.
func TestShardsPay(t *testing.T) {
	if !seeds.InFull() {
		t.Skip("it measures for a minute: make nightly runs it")
	}
	w := start(t, 2)
	w.inhabited()
	w.serve()
	const during = 20 * time.Second
	measure := func() (cost []float64) {
		var before []float64
		for _, b := range w.all {
			before = append(before, spent(t, b.Pid()))
		}
		time.Sleep(during)
		for i, b := range w.all {
			cost = append(cost, 100*(spent(t, b.Pid())-before[i])/during.Seconds())
		}
		return cost
	}
	alone := measure()
	var eyes []*visitor
	var pages atomic.Int64
	for i := range manyEyes {
		if i%8 == 0 {
			of := []string{"red", "blue"}[len(eyes)%2]
			eyes = append(eyes, w.login(w.token(of, of)))
		}
		of := [][]string{{"/work?n=red", "/gangs/red/crimson-wait", "/work?n=red&show=waits", "/queues?n=red"},
			{"/work?n=blue", "/gangs/blue/azure-run", "/work?n=blue&sort=name", "/queues?n=blue"}}[(len(eyes)-1)%2]
		if err := eyes[len(eyes)-1].stream(t.Context(), of[i%4], func(string) { pages.Add(1) }); err != nil {
			t.Fatal(err)
		}
	}
	localtest.Wait(t, patience, "all pages", func(context.Context) error {
		if n := pages.Load(); n < manyEyes {
			return fmt.Errorf("%d pages", n)
		}
		return nil
	})
	looked := measure()
	for i, b := range w.all {
		t.Logf("%s: %.2f %% of a core alone, %.2f %% with %d streams", b.Name(), alone[i], looked[i], manyEyes)
		if more := looked[i] - alone[i]; b.Role == "shard" && more > 1 {
			t.Errorf("%s pays %.2f %% of a core for %d people who look", b.Name(), more, manyEyes)
		}
	}
}

func (w *world) makeQueue(name string) error {
	return w.kube.Basalt.Post().Resource("queues").Body(&v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}}).
		Do(w.t.Context()).Error()
}

// say writes a gang's status as its home would.
func (w *world) say(ctx context.Context, gang, sequence int) error {
	patch, err := json.Marshal(map[string]any{"status": v1beta1.PodGroupStatus{
		Stamp: v1beta1.Stamp{Epoch: 1, Writer: "test", Sequence: int64(sequence)}, Queue: "q1.c1", Pods: 4,
		Reason: v1beta1.ReasonQuotaExceeded, Message: fmt.Sprintf("insufficient cpu: short of %d", sequence)}})
	if err != nil {
		return err
	}
	err = w.kube.Basalt.Patch(types.MergePatchType).Namespace("crowd").Resource("podgroups").
		Name(fmt.Sprintf("g-%05d", gang)).SubResource("status").Body(patch).Do(ctx).Error()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// spent returns the CPU time of a process, in seconds.
func spent(t *testing.T, pid int) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:]))
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100
}

// resident returns the memory of a process, in bytes.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, _ := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	return pages * int64(os.Getpagesize())
}
