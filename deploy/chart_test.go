package deploy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/deploy/install"
)

// run runs a program of bin/ in this folder, and returns what it printed. With a kubeconfig, it is for that cluster.
func run(t *testing.T, kubeconfig, program string, args ...string) (stdout string, err error) {
	t.Helper()
	root := must[string](t)(local.Root())
	if err := local.Programs(t.Context(), root, t.Output(), program); err != nil {
		t.Fatal(err)
	}
	var out, failure bytes.Buffer
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "bin", program), args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "KUBECONFIG="+kubeconfig)
	cmd.Stdout, cmd.Stderr = &out, &failure
	if err := cmd.Run(); err != nil {
		lines := slices.DeleteFunc(strings.Split(failure.String(), "\n"), func(l string) bool { return strings.Contains(l, "found symbolic link") })
		return out.String(), fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, strings.Join(lines, "\n"))
	}
	return out.String(), nil
}

// parse reads a stream of objects.
func parse(t *testing.T, text string) (out []*unstructured.Unstructured) {
	t.Helper()
	for d := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := d.Decode(&o.Object); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		if len(o.Object) > 0 {
			out = append(out, o)
		}
	}
}

// template returns what the chart renders in basalt-system.
func template(t *testing.T, args ...string) []*unstructured.Unstructured {
	t.Helper()
	args = append([]string{"template", "basalt", "chart", "--namespace", namespace}, args...)
	return parse(t, must[string](t)(run(t, "", "helm", args...)))
}

// combinations are the overlays that can be chosen together.
func combinations() (out [][]string) {
	for _, size := range []string{"", "small", "standard"} {
		for _, volcano := range []string{"", "volcano-observe", "volcano"} {
			for _, certs := range []string{"", "cert-manager"} {
				out = append(out, slices.DeleteFunc([]string{size, volcano, certs}, func(s string) bool { return s == "" }))
			}
		}
	}
	return out
}

// valuesOf are the flags for the values files of some overlays.
func valuesOf(overlays []string) (args []string) {
	for _, o := range overlays {
		args = append(args, "--values", "chart/values/"+o+".yaml")
	}
	return args
}

// allowed are the differences between the kustomize base and the chart, with their reasons.
var allowed = map[string]string{
	"Namespace /basalt-system: only in the base": "helm install --create-namespace makes it; a chart with its own namespace would delete keys and volumes with it",
	`CustomResourceDefinition /podgroups.scheduling.basalt.dev.metadata.annotations.helm.sh/resource-policy: <nil> and "keep"`: "helm uninstall must not delete all gangs",
	`CustomResourceDefinition /queues.scheduling.basalt.dev.metadata.annotations.helm.sh/resource-policy: <nil> and "keep"`:    "helm uninstall must not delete all queues",
}

// The chart renders what the kustomize base and its overlays make, object by object and field by field.
func TestChartRendersTheBase(t *testing.T) {
	files := must[[]string](t)(filepath.Glob("overlays/*"))
	for _, overlay := range files {
		if _, err := os.Stat("chart/values/" + filepath.Base(overlay) + ".yaml"); err != nil {
			t.Error(err)
		}
	}
	for _, overlays := range combinations() {
		t.Run(strings.Join(append([]string{"base"}, overlays...), "+"), func(t *testing.T) {
			components := ""
			for _, o := range overlays {
				components += "- deploy/overlays/" + o + "\n"
			}
			if components != "" {
				components = "components:\n" + components
			}
			base := byName(t, parse(t, render(t, "resources: [deploy]\n"+components)))
			chart := byName(t, template(t, valuesOf(overlays)...))
			var found []string
			for _, name := range slices.Sorted(maps.Keys(base)) {
				if chart[name] == nil {
					found = append(found, name+": only in the base")
				} else {
					found = append(found, differences(name, base[name].Object, chart[name].Object)...)
				}
			}
			for _, name := range slices.Sorted(maps.Keys(chart)) {
				if base[name] == nil {
					found = append(found, name+": only in the chart")
				}
			}
			for _, d := range found {
				if allowed[d] == "" {
					t.Error(d)
				}
			}
			for d := range allowed {
				if !slices.Contains(found, d) {
					t.Errorf("this difference is gone: %s", d)
				}
			}
		})
	}
}

// byName returns objects by kind, namespace and name. One that is there twice is an error.
func byName(t *testing.T, objects []*unstructured.Unstructured) map[string]*unstructured.Unstructured {
	t.Helper()
	out := map[string]*unstructured.Unstructured{}
	for _, o := range objects {
		name := fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
		if out[name] != nil {
			t.Errorf("%s is there twice", name)
		}
		out[name] = o
	}
	return out
}

// differences lists the fields in which two values differ.
func differences(path string, a, b any) (out []string) {
	switch x := a.(type) {
	case map[string]any:
		if y, is := b.(map[string]any); is {
			keys := slices.Sorted(maps.Keys(x))
			for key := range y {
				if _, both := x[key]; !both {
					keys = append(keys, key)
				}
			}
			slices.Sort(keys)
			for _, key := range keys {
				out = append(out, differences(path+"."+key, x[key], y[key])...)
			}
			return out
		}
	case []any:
		if y, is := b.([]any); is && len(x) == len(y) {
			for i := range x {
				out = append(out, differences(fmt.Sprintf("%s[%d]", path, i), x[i], y[i])...)
			}
			return out
		}
	}
	if x, y := fmt.Sprintf("%#v", a), fmt.Sprintf("%#v", b); x != y {
		return []string{fmt.Sprintf("%s: %s and %s", path, x, y)}
	}
	return nil
}

func TestChartLint(t *testing.T) {
	for _, overlays := range combinations() {
		out, err := run(t, "", "helm", append([]string{"lint", "--strict", "chart", "--namespace", namespace}, valuesOf(overlays)...)...)
		if err != nil || !strings.Contains(out, "1 chart(s) linted, 0 chart(s) failed") || strings.Contains(out, "[WARNING]") {
			t.Errorf("%v: %v\n%s", overlays, err, out)
		}
	}
}

// What the chart renders is accepted by a real API server that checks every field.
func TestChartIsAccepted(t *testing.T) {
	c := cluster(t)
	volcano := parse(t, `{apiVersion: v1, kind: Namespace, metadata: {name: volcano-system}}`)
	if err := install.Apply(t.Context(), c.Config(local.Admin), volcano, false); err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for _, overlays := range combinations() {
		rows[strings.Join(append([]string{"base"}, overlays...), "+")] = valuesOf(overlays)
	}
	rows["everything set"] = []string{"--values", "testdata/all-values.yaml"}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		t.Run(name, func(t *testing.T) {
			objects := template(t, rows[name]...)
			objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
				return o.GroupVersionKind().Group == "cert-manager.io" // its definitions are not here
			})
			if len(objects) < 30 {
				t.Errorf("only %d objects", len(objects))
			}
			if err := install.Apply(t.Context(), c.Config(local.Admin), objects, true); err != nil {
				t.Error(err)
			}
		})
	}
}
