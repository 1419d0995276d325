package server

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api/tiers"
	"basalt.dev/basalt/shard/event"
)

// Failures of expressions are all counted, and the log has the first ones of each class.
func TestTierFailures(t *testing.T) {
	var log bytes.Buffer
	m := newMetrics(prometheus.NewRegistry())
	f := tierFailures{log: slog.New(slog.NewTextHandler(&log, nil)), counts: m.tierFailures, told: map[string]int{}}
	for i := range 3 * maxTold {
		err := errors.New("no such key: cost")
		f.tell(tiers.Failure{Class: "cheap", Of: tiers.OfNode, Object: fmt.Sprint("n", i), Err: err})
	}
	f.tell(tiers.Failure{Class: "cheap", Of: tiers.OfPod, Object: "ns/p", Err: errors.New("no such key: team")})
	if n := strings.Count(log.String(), "\n"); n != maxTold+1 {
		t.Errorf("%d lines", n)
	}
	for _, want := range []string{
		"it is in the last tier", "it is not of the class", "node=n15", "pod=ns/p", "no such key: cost",
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %s", want)
		}
	}
	if got := value(t, m.tierFailures.WithLabelValues("cheap", tiers.OfNode)); got != 3*maxTold {
		t.Errorf("%v failures are counted", got)
	}
}

// A node's tiers are found when it is new or has changed, and nothing is kept of a node that is gone.
func TestNodesAreEvaluatedOnce(t *testing.T) {
	failed := 0
	o := Options{NodeTiers: []tiers.Class{{Name: "a", Pods: "true", Nodes: `labels["cost"] == "low" ? 0 : 1`}}}
	rules, err := o.rules(func(tiers.Failure) { failed++ })
	if err != nil {
		t.Fatal(err)
	}
	seen, gone := (&watches{rules: rules}).nodeEvents()
	see := func(labels map[string]string, tier uint8, failures int) {
		t.Helper()
		ev := seen(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels}}).(event.NodeSeen)
		if got := ev.Node.Tiers.Of("a"); got != tier || failed != failures {
			t.Errorf("tier %d after %d failures, want %d after %d", got, failed, tier, failures)
		}
	}
	see(nil, 3, 1)
	see(map[string]string{}, 3, 1)
	see(map[string]string{"cost": "low"}, 0, 1)
	see(map[string]string{"cost": "high"}, 1, 1)
	see(nil, 3, 2)
	gone(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	see(nil, 3, 3)
}
