package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// However many shards there are, one of them watches at the API server; when it is killed, another does, and what comes in
// between is placed.
func TestOneShardWatches(t *testing.T) {
	ctx := t.Context()
	c := localtest.Cluster(t, local.Options{Basalt: localtest.Basalt(t)})
	clients, err := kube.ConnectConfig(c.Config(local.Admin), "basalt-test")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		if _, err := clients.Core.CoreV1().Nodes().Create(ctx, kubelet.Node(fmt.Sprint("n", i), "4", "8Gi", 10), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		q := &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("q", i)}}
		q.APIVersion, q.Kind = v1beta1.SchemeGroupVersion.String(), "Queue"
		if err := clients.Basalt.Post().Resource("queues").Body(q).Do(ctx).Error(); err != nil {
			t.Fatal(err)
		}
	}
	all, err := c.StartBasalt(ctx, 1, 3, local.BasaltOptions{Restart: true})
	if err != nil {
		t.Fatal(err)
	}
	shards := all[1:]
	pod := 0
	// place makes a pod in each queue, each owned by some shard, and waits until all are bound.
	place := func() {
		t.Helper()
		var names []string
		for i := range 4 {
			pod++
			p := &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", pod), Labels: map[string]string{api.LabelQueue: fmt.Sprint("q", i)}},
				Spec: v1.PodSpec{SchedulerName: api.SchedulerName, Containers: []v1.Container{{Name: "c", Image: "none",
					Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse("1")}}}}},
			}
			if _, err := clients.Core.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			names = append(names, p.Name)
		}
		for _, name := range names {
			localtest.Wait(t, 2*time.Minute, "pod "+name, func(ctx context.Context) error {
				p, err := clients.Core.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
				if err == nil && p.Spec.NodeName == "" {
					err = errors.New("not bound")
				}
				return err
			})
		}
	}
	watches := func(what string) {
		t.Helper()
		localtest.Wait(t, 2*time.Minute, what, func(ctx context.Context) error {
			b, err := clients.Core.CoreV1().RESTClient().Get().AbsPath("/metrics").Do(ctx).Raw()
			if err != nil {
				return err
			}
			for resource, most := range map[string]int{"pods": 1 + others, "podgroups": 1} {
				n := 0
				for line := range strings.Lines(string(b)) {
					if strings.HasPrefix(line, "apiserver_longrunning_requests{") && strings.Contains(line, `resource="`+resource+`"`) && strings.Contains(line, `verb="WATCH"`) {
						i, _ := strconv.Atoi(strings.Fields(line)[1])
						n += i
					}
				}
				if n > most {
					return fmt.Errorf("%d watches of %s, %d are expected", n, resource, most)
				}
			}
			return nil
		})
	}
	for _, s := range shards {
		if err := s.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
	}
	place()
	watches("one watch of a kind")

	relay := -1
	for i, s := range shards {
		if metric(t, s, `basalt_relay_streams{resource="pods"}`) > 0 {
			relay = i
		}
	}
	if relay < 0 {
		t.Fatal("no shard serves a watch of pods")
	}
	shards[relay].Kill()
	place()
	if err := shards[relay].WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	place()
	watches("one watch of a kind, after the one that had it was killed")
}

// others is how many watches of pods the API server has of its own: an admission plugin's.
const others = 1

// metric reads one of a process's metrics.
func metric(t *testing.T, b *local.Basalt, name string) float64 {
	t.Helper()
	resp, err := http.Get("http://" + b.Metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			f, _ := strconv.ParseFloat(value, 64)
			return f
		}
	}
	return 0
}
