package deploy_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const monitoringComponent = "resources: [deploy]\ncomponents: [deploy/monitoring]\n"

// The component for the Prometheus Operator adds alerts, PodMonitors and the dashboards. What they say,
// monitoring/check tests.
func TestMonitoringComponent(t *testing.T) {
	with := render(t, monitoringComponent)
	for text, n := range map[string]int{"kind: PodMonitor\n": 2, "kind: PrometheusRule\n": 1,
		"grafana_dashboard: \"1\"\n": 1, ".json: |\n": 4, "name: basalt-dashboards\n": 1} {
		if got := strings.Count(with, text); got != n {
			t.Errorf("%q is there %d times, want %d", text, got, n)
		}
	}
}

// runbooks returns the address of each alert's runbook among some objects.
func runbooks(t *testing.T, objects []*unstructured.Unstructured) (out []string) {
	t.Helper()
	for _, o := range objects {
		groups, _, _ := unstructured.NestedSlice(o.Object, "spec", "groups")
		for _, g := range groups {
			rules, _, _ := unstructured.NestedSlice(g.(map[string]any), "rules")
			for _, r := range rules {
				url, _, _ := unstructured.NestedString(r.(map[string]any), "annotations", "runbook_url")
				out = append(out, url)
			}
		}
	}
	if len(out) < 10 {
		t.Errorf("there are only %d alerts", len(out))
	}
	return out
}

// Runbooks are where their reader keeps them: the kustomization that the component's comment shows, and the value of
// the chart, replace the same part of each address.
func TestRunbooksCanBeElsewhere(t *testing.T) {
	text := string(must[[]byte](t)(os.ReadFile("monitoring/kustomization.yaml")))
	_, comment, _ := strings.Cut(text, "#   configMapGenerator:\n")
	comment, _, found := strings.Cut(comment, "# The dashboards")
	if !found {
		t.Fatal("the comment shows no kustomization")
	}
	shown := "configMapGenerator:\n" + strings.ReplaceAll(strings.ReplaceAll("\n"+comment, "\n#   ", "\n"), "\n#", "\n")
	kustomize := runbooks(t, parse(t, render(t, monitoringComponent+shown)))
	values := "monitoring.enabled=true,monitoring.runbooks=https://wiki.example.com/basalt"
	chart := runbooks(t, template(t, "--set", values))
	if !slices.Equal(kustomize, chart) {
		t.Errorf("kustomize has %q, the chart %q", kustomize, chart)
	}
	for _, url := range chart {
		if !strings.HasPrefix(url, "https://wiki.example.com/basalt#basalt") {
			t.Errorf("a runbook is at %s", url)
		}
	}
}

// The chart renders what the component makes. Where there is no control store of Basalt's own, none is scraped.
func TestChartMonitors(t *testing.T) {
	only := func(objects []*unstructured.Unstructured) map[string]*unstructured.Unstructured {
		return byName(t, slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
			return o.GroupVersionKind().Group != "monitoring.coreos.com" && o.GetName() != "basalt-dashboards"
		}))
	}
	base, chart := only(parse(t, render(t, monitoringComponent))), only(template(t, "--set", "monitoring.enabled=true"))
	if len(base) != 4 || len(base) != len(chart) {
		t.Errorf("%d and %d objects", len(base), len(chart))
	}
	for _, name := range slices.Sorted(maps.Keys(base)) {
		if chart[name] == nil {
			t.Errorf("the chart has no %s", name)
			continue
		}
		for _, d := range differences(name, base[name].Object, chart[name].Object) {
			t.Error(d)
		}
	}
	for name, o := range only(template(t, "--set", "monitoring.enabled=true,monitoring.labels.release=p")) {
		if labelled := o.GetLabels()["release"] == "p"; labelled != (o.GetKind() != "ConfigMap") {
			t.Errorf("%s has the labels %v", name, o.GetLabels())
		}
	}
	theirs := only(template(t, "--set", "monitoring.enabled=true,etcd.endpoints={https://a:2379},etcd.secretName=theirs"))
	if len(theirs) != 3 {
		t.Errorf("with an etcd of others: %q", slices.Sorted(maps.Keys(theirs)))
	}
}

// Labels and annotations of pods are on all of them, and do not take the labels that select them.
func TestChartLabelsPods(t *testing.T) {
	n := 0
	for _, o := range template(t, "--set", "podLabels.team=batch,podAnnotations.mesh=off") {
		if o.GetKind() != "Deployment" && o.GetKind() != "StatefulSet" {
			continue
		}
		n++
		labels, _, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels")
		annotations, _, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "annotations")
		if labels["team"] != "batch" || labels["app.kubernetes.io/name"] != o.GetName() || annotations["mesh"] != "off" {
			t.Errorf("pods of %s have %v and %v", o.GetName(), labels, annotations)
		}
	}
	if n != 5 {
		t.Errorf("%d workloads", n)
	}
}
