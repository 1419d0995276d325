package deploy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"

	"basalt.dev/basalt/api/config"
	"basalt.dev/basalt/api/tiers"
	"basalt.dev/basalt/bench/prove/seeds"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/deploy"
	"basalt.dev/basalt/deploy/install"
)

// run runs a program of bin/ in this folder, and returns what it printed. With a kubeconfig, it is for that cluster.
func run(t *testing.T, kubeconfig, program string, args ...string) (stdout string, err error) {
	t.Helper()
	root := localtest.Programs(t, program)
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

// TestChartArchive: the archive that `make chart` packs renders the same as the folder, without links to report. It
// takes half a minute because the program that packs it is linked first.
func TestChartArchive(t *testing.T) {
	to := t.TempDir()
	pack := exec.CommandContext(t.Context(), "go", "run", "-buildvcs=false", ".", "--root", "../..", "--chart", to)
	pack.Dir = "image"
	out, err := pack.Output()
	if err != nil {
		t.Fatal(err)
	}
	archive := strings.TrimSpace(string(out))
	if archive != filepath.Join(to, "basalt-0.1.0.tgz") {
		t.Errorf("it was packed into %q", archive)
	}
	flags := []string{"--set", "monitoring.enabled=true,gangPolicies=true,userPolicies=true,volcano=write",
		"--kube-version", "1.37.0"}
	folder := must[string](t)(run(t, "", "helm", append([]string{"template", "basalt", "chart"}, flags...)...))
	packed := must[string](t)(run(t, "", "helm", append([]string{"template", "basalt", archive}, flags...)...))
	if folder != packed {
		t.Error("the archive renders something else than the folder")
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join("..", "bin", "helm"), "show", "chart", archive)
	if text, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(text), "symbolic") ||
		!strings.Contains(string(text), "appVersion: latest\n") {
		t.Errorf("%v: %s", err, text)
	}
}

// combinations are the overlays that can be chosen together: none, and a third of the others each day, all in full.
func combinations(t *testing.T) (out [][]string) {
	for _, size := range []string{"", "small", "standard"} {
		for _, volcano := range []string{"", "volcano-observe", "volcano"} {
			for _, certs := range []string{"", "cert-manager"} {
				console := map[bool]string{true: "console"}[len(out)%2 == 1]
				out = append(out, slices.DeleteFunc([]string{size, volcano, certs, console},
					func(s string) bool { return s == "" }))
			}
		}
	}
	return append(out[:1:1], seeds.OfTheDay(t, 3, out[1:])...)
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
	for _, overlays := range combinations(t) {
		t.Run(strings.Join(append([]string{"base"}, overlays...), "+"), func(t *testing.T) {
			components := ""
			for _, o := range overlays {
				components += "- deploy/overlays/" + o + "\n"
			}
			if components != "" {
				components = "components:\n" + components
			}
			base := byName(t, parse(t, render(t, "resources: [deploy/crds, deploy]\n"+components)))
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

// It takes half a minute: Helm lints the chart with four sets of values.
func TestChartLint(t *testing.T) {
	dir := t.TempDir() // links are followed when the chart is packed
	must[string](t)(run(t, "", "helm", "package", "chart", "--destination", dir))
	archive := must[string](t)(run(t, "", "helm", "template", "basalt", filepath.Join(dir, "basalt-0.1.0.tgz")))
	if folder := must[string](t)(run(t, "", "helm", "template", "basalt", "chart")); archive != folder {
		t.Error("the archive renders other objects than the folder")
	}
	for _, overlays := range [][]string{{}, {"small"}, {"standard", "volcano", "cert-manager"}, {"volcano-observe"}} {
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
	for _, overlays := range combinations(t) {
		rows[strings.Join(append([]string{"base"}, overlays...), "+")] = valuesOf(overlays)
	}
	rows["everything set"] = []string{"--values", "testdata/all-values.yaml"}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		t.Run(name, func(t *testing.T) {
			if name == "everything set" {
				localtest.Needs(t, "1.36", "a policy of gangPolicies and userPolicies")
			}
			objects := template(t, rows[name]...)
			objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
				// Their definitions are not here.
				return slices.Contains([]string{"cert-manager.io", "monitoring.coreos.com"}, o.GroupVersionKind().Group)
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

// leaves lists the values that are no map, or an empty one, by path.
func leaves(path string, values map[string]any) map[string]any {
	out := map[string]any{}
	for key, value := range values {
		if m, is := value.(map[string]any); is && len(m) > 0 && !slices.Contains([]string{"requests", "limits"}, key) {
			maps.Copy(out, leaves(path+key+".", m))
		} else {
			out[path+key] = value
		}
	}
	return out
}

// Every value does something, and by itself.
func TestChartValuesMatter(t *testing.T) {
	read := func(file string) map[string]any {
		return parse(t, string(must[[]byte](t)(os.ReadFile(file))))[0].Object
	}
	defaults, others := leaves("", read("chart/values.yaml")), read("testdata/all-values.yaml")
	plain := must[string](t)(run(t, "", "helm", "template", "basalt", "chart"))
	options := map[string]string{} // part that has to be enabled first -> what is rendered then
	for _, part := range []string{"monitoring", "console"} {
		options[part] = must[string](t)(run(t, "", "helm", "template", "basalt", "chart", "--set", part+".enabled=true"))
	}
	for _, name := range slices.Sorted(maps.Keys(defaults)) {
		if name == "etcd.endpoints" || name == "etcd.secretName" { // one without the other is refused, see below
			continue
		}
		value, there, err := unstructured.NestedFieldNoCopy(others, strings.Split(name, ".")...)
		if err != nil || !there {
			t.Errorf("all-values.yaml has no %s", name)
		}
		text := string(must[[]byte](t)(json.Marshal(value)))
		part, of, _ := strings.Cut(name, ".")
		if enabled := options[part]; enabled != "" && of != "enabled" {
			if got := must[string](t)(run(t, "", "helm", "template", "basalt", "chart", "--set", part+".enabled=true",
				"--set-json", name+"="+text)); got == enabled {
				t.Errorf("%s=%s changes nothing", name, text)
			}
			continue
		}
		if got := must[string](t)(run(t, "", "helm", "template", "basalt", "chart", "--set-json", name+"="+text)); got == plain {
			t.Errorf("%s=%s changes nothing", name, text)
		}
	}
	objects := template(t, "--set", "etcd.endpoints={https://a:2379,https://b:2379},etcd.secretName=theirs")
	if err := install.Apply(t.Context(), cluster(t).Config(local.Admin), objects, true); err != nil {
		t.Error(err)
	}
	for name, pod := range pods(t, objects) {
		flags := strings.Join(pod.Containers[0].Args, " ")
		if own := name == "basalt-certs"; !own && (!strings.Contains(flags, "--etcd=https://a:2379,https://b:2379 ") || !strings.Contains(flags, "--etcd-cert=/etc/basalt/etcd/tls.crt ")) || name == "basalt-etcd" {
			t.Errorf("%s with an etcd of others: %s", name, flags)
		}
		for _, file := range ourFile.FindAllString(flags, -1) {
			if !slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == filepath.Dir(file) }) {
				t.Errorf("%s: nothing mounts %s", name, file)
			}
		}
	}
}

// Release and namespace are the user's to name; objects have the same names, in that namespace.
func TestChartInAnotherNamespace(t *testing.T) {
	for _, overlays := range [][]string{{}, {"volcano", "cert-manager"}, {"small", "volcano-observe"}} {
		here := must[string](t)(run(t, "", "helm", append([]string{"template", "basalt", "chart", "--namespace", namespace}, valuesOf(overlays)...)...))
		there := must[string](t)(run(t, "", "helm", append([]string{"template", "prod", "chart", "--namespace", "batch"}, valuesOf(overlays)...)...))
		if strings.Contains(there, namespace) {
			t.Errorf("%v: %s is in what is for the namespace batch", overlays, namespace)
		}
		a, b := byName(t, parse(t, strings.ReplaceAll(here, namespace, "batch"))), byName(t, parse(t, there))
		if len(a) != len(b) {
			t.Errorf("%v: %d objects and %d", overlays, len(a), len(b))
		}
		for name, o := range a {
			if b[name] == nil {
				t.Errorf("%v: there is no %s", overlays, name)
				continue
			}
			for _, d := range differences(name, o.Object, b[name].Object) {
				t.Error(d)
			}
		}
	}
}

// The chart is as secure as the base is, and its flags are known to the program.
// It takes 22 s to render the chart so often.
func TestChartIsSecure(t *testing.T) {
	podsWaitForTheirKeys(t, template(t))
	podsWaitForTheirKeys(t, template(t, valuesOf([]string{"small", "volcano"})...))
	restricted := parse(t, `{apiVersion: v1, kind: Namespace, metadata: {name: restricted, labels: {pod-security.kubernetes.io/enforce: restricted}}}`)
	if err := install.Apply(t.Context(), cluster(t).Config(local.Admin), restricted, false); err != nil {
		t.Fatal(err)
	}
	admin := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(cluster(t).Config(local.Admin)))
	program, helps := localtest.Basalt(t), map[string]string{}
	for _, args := range [][]string{nil, valuesOf([]string{"small", "volcano"}), {"--values", "testdata/all-values.yaml"}} {
		for name, pod := range pods(t, template(t, args...)) {
			pod.PriorityClassName = "" // theirs may be missing here
			if name == "basalt-etcd" { // its claim is the StatefulSet's
				pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "data"})
			}
			_, err := admin.CoreV1().Pods("restricted").Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: pod}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil || !*pod.Containers[0].SecurityContext.ReadOnlyRootFilesystem {
				t.Errorf("%s: %v", name, err)
			}
			if name == "basalt-etcd" {
				continue
			}
			command := pod.Containers[0].Args[0]
			if helps[command] == "" {
				helps[command] = string(must[[]byte](t)(exec.CommandContext(t.Context(), program, command, "--help").Output()))
			}
			for _, arg := range pod.Containers[0].Args[1:] {
				if flag, _, _ := strings.Cut(arg, "="); !strings.Contains(helps[command], flag+" ") {
					t.Errorf("%s: basalt %s has no flag %s", name, command, flag)
				}
			}
		}
	}
}

// meant is Helm's answer to a name that is none.
func meant(at, names string) string {
	return fmt.Sprintf("at '%s': value must be 'removed or renamed: did you mean %s?'", at, names)
}

// Mistakes are refused, with their place and, where one is near, the right name.
func TestChartRefuses(t *testing.T) {
	for _, row := range []struct{ set, says string }{
		{"image.tg=x", meant("/image/tg", "tag")},
		{"config.log.lvl=info", meant("/config/log/lvl", "level")},
		{"config.log.verbosity=1", meant("/config/log/verbosity", "format or level")},
		{"shards.replica=1", meant("/shards/replica", "replicas")},
		{"shards.replicaCount=1", meant("/shards/replicaCount", "replicas")},
		{"shard.replicas=1", meant("/shard", "shards")},
		{"imge.tag=x", meant("/imge", "image or imagePullSecrets")},
		{"etcd.storage.class=x", meant("/etcd/storage/class", "className")},
		{"shards.resources.request.cpu=1", meant("/shards/resources/request", "requests")},
		{"shards.resources.requests.cpus=1", meant("/shards/resources/requests/cpus", "cpu")},
		{"rootQueue.namespaceSelector.matchLabel.a=b", meant("/rootQueue/namespaceSelector/matchLabel", "matchLabels")},
		{"shards.tolerations[0].efect=NoSchedule", "at '/shards/tolerations/0/efect': value must be"},
		{"config.placment=pack", meant("/config/placment", "placement")},
		{"config.log.levels=info", meant("/config/log/levels", "level")},
		{"config.log.level=loud", "at '/config/log/level': value must be one of 'debug', 'info', 'warn', 'error'"},
		{"config.apiVersion=v1", "at '/config/apiVersion': value must be 'config.basalt.dev/v1alpha1'"},
		{"config.nodeTiers[0].pod=true", meant("/config/nodeTiers/0/pod", "pods")},
		{"config.nodeTier=x", meant("/config/nodeTier", "nodeTiers")},
		{"config.podEvents=often", "at '/config/podEvents': got string, want boolean"},
		{"config=null", "missing property 'config'"},
		{"config.placement=pack,shards.placement=spread", "config.placement: shards.placement is set, too, and would win over it: set one of them"},
		{"config.volcano=observe,volcano=write", "config.volcano: volcano is set, too"},
		{"config.otlp=a:1,otlp=b:1", "config.otlp: otlp is set, too"},
		{"config.schedulerNames={a},schedulerNames={b}", "config.schedulerNames: schedulerNames is set, too"},
		{"config.ignoredResources={a},shards.ignoredResources={b}", "config.ignoredResources: shards.ignoredResources is set, too"},
		{"zone=a", "at '': additional properties 'zone' not allowed"},
		{"shards=3", "at '/shards': got number, want object"},
		{"shards.replicas=0", "at '/shards/replicas': minimum: got 0, want 1"},
		{"shards.replicas=many", "at '/shards/replicas': got string, want integer"},
		{"shards.replicas=1001", "at '/shards/replicas': maximum: got 1,001, want 1,000"},
		{"coordinators.replicas=0", "at '/coordinators/replicas': minimum: got 0, want 1"},
		{"etcd.replicas=2", "at '/etcd/replicas': value must be one of 1, 3, 5"},
		{"etcd.endpoints={http://a:2379}", "at '/etcd/endpoints/0': 'http://a:2379' does not match"},
		{"etcd.endpoints={https://a:2379}", "etcd.secretName: with etcd.endpoints it names the Secret"},
		{"shards.resources.limits.memory=4G", "at '/shards/resources/limits/memory': '4G' does not match pattern '^[1-9][0-9]*(Mi|Gi)$'"},
		{"shards.tolerations.key=a", "at '/shards/tolerations': got object, want array"},
		{"shards.extraArgs={-v}", "at '/shards/extraArgs/0': '-v' does not match"},
		{"volcano=on", "at '/volcano': value must be one of 'off', 'observe', 'write'"},
		{"tls=none", "at '/tls': value must be one of 'basalt', 'cert-manager'"},
		{"image.tag=a b", "at '/image/tag': 'a b' does not match"},
		{"monitoring.enable=true", meant("/monitoring/enable", "enabled")},
		{"monitoring.runbooks=deploy/docs/operate.md", "at '/monitoring/runbooks': 'deploy/docs/operate.md' does not match"},
		{"podAnnotations.a=1", "at '/podAnnotations/a': got number, want string"},
		{"networkPolicies=yes", "at '/networkPolicies': got string, want boolean"},
		{"networkPolicies=null", "missing property 'networkPolicies'"},
		{"shards=null", "missing property 'shards'"},
		{"shards.resources=null", "at '/shards': missing property 'resources'"},
	} {
		if _, err := run(t, "", "helm", "template", "basalt", "chart", "--set", row.set); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %q is missing in: %v", row.set, row.says, err)
		}
	}
	for _, policies := range []string{"gangPolicies", "userPolicies"} {
		_, err := run(t, "", "helm", "template", "basalt", "chart", "--set", policies+"=true", "--kube-version", "1.35.0")
		if words := policies + ": a MutatingAdmissionPolicy needs Kubernetes 1.36 or later"; err == nil ||
			!strings.Contains(err.Error(), words) {
			t.Errorf("%s for Kubernetes 1.35: %v", policies, err)
		}
	}
}

// The value config is the configuration file: it has its fields and no others, and says what it says.
func TestChartConfig(t *testing.T) {
	var schema struct {
		Properties struct {
			Config struct {
				Properties map[string]struct {
					Properties map[string]any
					Items      struct{ Properties map[string]any }
				}
			}
		}
	}
	if err := json.Unmarshal(must[[]byte](t)(os.ReadFile("chart/values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	fields := func(of reflect.Type) (out []string) {
		for i := range of.NumField() {
			out = append(out, of.Field(i).Tag.Get("json"))
		}
		slices.Sort(out)
		return out
	}
	in := schema.Properties.Config.Properties
	if got, want := slices.Sorted(maps.Keys(in)), fields(reflect.TypeFor[config.Configuration]()); !slices.Equal(got, want) {
		t.Errorf("the schema has the fields %q, the file %q", got, want)
	}
	inClasses := slices.Sorted(maps.Keys(in["nodeTiers"].Items.Properties))
	if got, want := inClasses, fields(reflect.TypeFor[tiers.Class]()); !slices.Equal(got, want) {
		t.Errorf("nodeTiers: the schema has the fields %q, the file %q", got, want)
	}
	if got, want := slices.Sorted(maps.Keys(in["log"].Properties)), fields(reflect.TypeFor[config.Log]()); !slices.Equal(got, want) {
		t.Errorf("log: the schema has the fields %q, the file %q", got, want)
	}
	for _, row := range []struct {
		set  string
		want func(*config.Configuration)
	}{
		{`{}`, func(*config.Configuration) {}},
		{`{"log":{"level":"debug","format":"json"},"otlp":"a:1","volcano":"observe","schedulerNames":["basalt","batch"],
			"placement":"spread","ignoredResources":["example.com/fpga"],"topologyLevels":["zone","rack"],
			"nodeTiers":[{"name":"a","pods":"true","nodes":"\"a: b\" in labels ? 0 : 1"}],"podEvents":true}`,
			func(c *config.Configuration) {
				*c = config.Configuration{APIVersion: config.APIVersion, Kind: config.Kind,
					Log: config.Log{Level: "debug", Format: "json"}, OTLP: "a:1", Volcano: "observe",
					SchedulerNames: []string{"basalt", "batch"}, Placement: "spread",
					IgnoredResources: []string{"example.com/fpga"}, TopologyLevels: []string{"zone", "rack"},
					NodeTiers: []tiers.Class{{Name: "a", Pods: "true", Nodes: `"a: b" in labels ? 0 : 1`}}, PodEvents: true}
			}},
		{`{"volcano":false,"apiVersion":"config.basalt.dev/v1alpha1","kind":"Configuration"}`, func(*config.Configuration) {}},
	} {
		objects := template(t, "--set-json", "config="+row.set)
		want := config.Default()
		row.want(&want)
		for _, o := range objects {
			if o.GetKind() != "ConfigMap" {
				continue
			}
			text, _, _ := unstructured.NestedString(o.Object, "data", "config.yaml")
			if got, err := config.Parse([]byte(text)); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %v\n%s", row.set, err, text)
			}
		}
		if files := configFiles(t, objects); !slices.Equal(files, []string{"config.yaml"}) {
			t.Errorf("%s: the files are %q", row.set, files)
		}
	}
	// A change restarts nothing: the pods are the same.
	if before, after := pods(t, template(t)), pods(t, template(t, "--set", "config.log.level=debug")); !reflect.DeepEqual(before, after) {
		t.Error("another log level replaces pods")
	}
}

// live returns the workloads that the API server has.
func live(t *testing.T, c *kubernetes.Clientset) map[string]corev1.PodSpec {
	t.Helper()
	out := map[string]corev1.PodSpec{}
	for _, d := range must[*appsv1.DeploymentList](t)(c.AppsV1().Deployments(namespace).List(t.Context(), metav1.ListOptions{})).Items {
		out[d.Name] = d.Spec.Template.Spec
	}
	for _, s := range must[*appsv1.StatefulSetList](t)(c.AppsV1().StatefulSets(namespace).List(t.Context(), metav1.ListOptions{})).Items {
		out[s.Name] = s.Spec.Template.Spec
	}
	return out
}

// binds creates a pod for Basalt and waits until it has a node.
func (w *installed) binds(name string) {
	w.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{SchedulerName: "basalt", Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
	must[*corev1.Pod](w.T)(w.admin.CoreV1().Pods("default").Create(w.Context(), pod, metav1.CreateOptions{}))
	w.bound(name)
}

func (w *installed) bound(name string) {
	w.Helper()
	localtest.Wait(w, time.Minute, "the Binding of "+name, func(ctx context.Context) error {
		p, err := w.admin.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err == nil && p.Spec.NodeName == "" {
			err = fmt.Errorf("it has no node: %v", p.Status.Conditions)
		}
		return err
	})
}

// follow carries out the commands that the notes give below a line, with some text replaced.
func (w *installed) follow(kubeconfig, notes, line string, replace ...string) {
	w.Helper()
	_, commands, found := strings.Cut(notes, line)
	if commands, _, _ = strings.Cut(commands, "\n\n"); !found {
		w.Fatalf("%q is missing in %s", line, notes)
	}
	commands = strings.NewReplacer(replace...).Replace(strings.ReplaceAll("\n"+commands, "\n  ", "\n"))
	cmd := exec.CommandContext(w.Context(), "bash", "-euo", "pipefail", "-c", commands)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	if out, err := cmd.CombinedOutput(); err != nil {
		w.Fatalf("%v\n%s\n%s", err, commands, out)
	}
}

// ended returns what a process said each time that it ended with an error.
func ended(t *testing.T, log string) (errors []string) {
	for line := range strings.Lines(string(must[[]byte](t)(os.ReadFile(log)))) {
		if strings.HasPrefix(line, "basalt: ") {
			errors = append(errors, strings.TrimSpace(line))
		}
	}
	return errors
}

// From nothing to a pod that is bound, with Helm: the control store and the processes run with the flags and keys
// that the chart's objects have. Then upgrades, a second release, and the end.
func TestChartInstalls(t *testing.T) {
	w := &installed{T: t, dir: t.TempDir()}
	program := localtest.Basalt(t)
	w.cluster = localtest.Bare(t, local.Options{Basalt: program})
	w.admin = must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(w.cluster.Config(local.Admin)))
	kubeconfig := must[string](t)(w.cluster.Kubeconfig(local.Admin))
	must[string](t)(run(t, "", "helm", "version")) // built before the clock runs
	helm := func(args ...string) (string, error) { t.Helper(); return run(t, kubeconfig, "helm", args...) }
	refused := func(says string, args ...string) {
		t.Helper()
		if out, err := helm(args...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q is missing in: %v\n%s", says, err, out)
		}
	}
	small := []string{"prod", "chart", "--namespace", namespace, "--values", "chart/values/small.yaml"}

	refused("rootQueue.namespaceSelector: the API server does not serve Queues yet", append([]string{"install", "--create-namespace", "--set", "rootQueue.namespaceSelector.matchLabels.batch=allowed"}, small...)...)

	begin := time.Now()
	notes := must[string](t)(helm(append([]string{"install", "--create-namespace"}, small...)...))
	for _, text := range []string{"shards: 1, coordinators: 1", "kubectl -n basalt-system rollout status statefulset/basalt-shard", `"schedulerName":"basalt"`, "queues.scheduling.basalt.dev root"} {
		if !strings.Contains(notes, text) {
			t.Errorf("%q is missing in %s", text, notes)
		}
	}
	w.pods = live(t, w.admin)
	w.apply = func() { t.Helper(); must[string](t)(helm(append([]string{"upgrade"}, small...)...)) }
	w.issues()
	w.mount()
	w.startStore()
	all := []*local.Basalt{w.start("basalt-coordinator", w.cluster.StartCoordinator), w.start("basalt-shard", w.cluster.StartShard)}
	if err := local.WaitReady(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-0"}, Status: corev1.NodeStatus{
		Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		Allocatable: corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("16Gi"), "pods": resource.MustParse("110")}}}
	node.Status.Capacity = node.Status.Allocatable
	must[*corev1.Node](t)(w.admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}))
	if _, err := exec.LookPath("kubectl"); err == nil {
		w.follow(kubeconfig, notes, "Make a queue, and place a pod in it:\n")
		w.bound("first")
	} else {
		w.binds("first")
	}
	t.Logf("the first pod was bound %s after helm install began", time.Since(begin).Round(10*time.Millisecond))

	if _, err := exec.LookPath("kubectl"); err == nil {
		w.follow(kubeconfig, notes, "Any namespace may use any queue until the Queue root says which may:\n")
		w.follow(kubeconfig, notes, "Any namespace may use any queue until the Queue root says which may:\n", `{"matchLabels":{"example.com/batch":"allowed"}}`, "null")
	}

	// The control store does not grow by an upgrade; everything else does.
	standard := []string{"upgrade", "prod", "chart", "--namespace", namespace, "--values", "chart/values/standard.yaml"}
	refused("etcd.replicas: the control store was made with 1, and cannot have 3: set etcd.replicas=1", standard...)
	must[string](t)(helm(append(standard, "--set", "etcd.replicas=1")...))
	shards := must[*appsv1.StatefulSet](t)(w.admin.AppsV1().StatefulSets(namespace).Get(t.Context(), "basalt-shard", metav1.GetOptions{}))
	if got := w.pods["basalt-shard"].Containers[0].Args; *shards.Spec.Replicas != 3 || !slices.Equal(shards.Spec.Template.Spec.Containers[0].Args, got) {
		t.Errorf("after the upgrade there are %d shards with %q, before with %q", *shards.Spec.Replicas, shards.Spec.Template.Spec.Containers[0].Args, got)
	}
	w.binds("second")

	// What processes decide by is upgraded in place.
	must[string](t)(helm(append(standard, "--set", "etcd.replicas=1,config.log.level=debug")...))
	if got := must[*appsv1.StatefulSet](t)(w.admin.AppsV1().StatefulSets(namespace).Get(t.Context(), "basalt-shard", metav1.GetOptions{})); got.Generation != shards.Generation {
		t.Error("another log level replaces pods")
	}
	w.mount()
	localtest.Wait(t, time.Minute, "another log level", func(context.Context) error {
		log, err := os.ReadFile(all[1].Log())
		if err == nil && !bytes.Contains(log, []byte("field=log.level value=debug")) {
			err = errors.New("the log does not say so")
		}
		return err
	})
	if all[0].Starts() != 1 || all[1].Starts() != 1 {
		t.Errorf("the coordinator was started %d times, the shard %d times", all[0].Starts(), all[1].Starts())
		for _, b := range all {
			t.Logf("%s ended with: %q", b.Name(), ended(t, b.Log()))
		}
	}

	// An upgrade brings new definitions along.
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "deploy/crds/scheduling.basalt.dev_queues.yaml")
	text := must[[]byte](t)(os.ReadFile(file))
	if err := os.WriteFile(file, bytes.Replace(text, []byte("    categories:\n"), []byte("    categories:\n    - next\n"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	next := slices.Clone(standard)
	next[2] = filepath.Join(dir, "deploy/chart")
	must[string](t)(helm(append(next, "--set", "etcd.replicas=1")...))
	if got := must[[]byte](t)(w.admin.Discovery().RESTClient().Get().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/queues.scheduling.basalt.dev").DoRaw(t.Context())); !bytes.Contains(got, []byte(`"next"`)) {
		t.Errorf("the upgrade left the definition as it was: %s", got)
	}

	// In place of Volcano's scheduler, and back beside it: the policies that keep others from its objects go.
	if err := install.Apply(t.Context(), w.cluster.Config(local.Admin), parse(t, `{apiVersion: v1, kind: Namespace, metadata: {name: volcano-system}}`), false); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"volcano-observe", "volcano", "volcano-observe"} {
		must[string](t)(helm(append([]string{"upgrade"}, append(small, valuesOf([]string{mode})...)...)...))
		_, err := w.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), "basalt-volcano-queues", metav1.GetOptions{})
		if there := err == nil; there != (mode == "volcano") || err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("after an upgrade to %s, its policy: %v", mode, err)
		}
	}

	// One Basalt serves a cluster.
	refused("cannot be imported into the current release", "install", "second", "chart", "--namespace", "other", "--create-namespace")

	// Queues outlive the release.
	must[string](t)(helm("uninstall", "prod", "--namespace", namespace))
	if left := live(t, w.admin); len(left) > 0 {
		t.Errorf("uninstalled, and there are %v", slices.Collect(maps.Keys(left)))
	}
	if err := basaltOf(t, w.cluster).Get().Resource("queues").Name("root").Do(t.Context()).Error(); err != nil {
		t.Errorf("after the release: %v", err)
	}
	// So does the store, with as many members as it had.
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-basalt-etcd-0"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("16Gi")}}}}
	must[*corev1.PersistentVolumeClaim](t)(w.admin.CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{}))
	refused("etcd.replicas: the control store was made with 1, and cannot have 3: set etcd.replicas=1", append([]string{"install"}, standard[1:]...)...)
	must[string](t)(helm(append([]string{"install"}, small...)...))
}

// A cluster that was installed with kustomize can be given to Helm.
func TestChartTakesOver(t *testing.T) {
	c := localtest.Bare(t, local.Options{})
	admin := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(c.Config(local.Admin)))
	kubeconfig := must[string](t)(c.Kubeconfig(local.Admin))
	objects := append(must[[]*unstructured.Unstructured](t)(deploy.CRDs()), base(t)...)
	rank := map[string]int{"Namespace": -1}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank[a.GetKind()] - rank[b.GetKind()] })
	if err := install.Apply(t.Context(), c.Config(local.Admin), objects, false); err != nil {
		t.Fatal(err)
	}
	args := []string{"install", "prod", "chart", "--namespace", namespace}
	if _, err := run(t, kubeconfig, "helm", args...); err == nil || !strings.Contains(err.Error(), "cannot be imported into the current release") {
		t.Errorf("without --take-ownership: %v", err)
	}
	before := live(t, admin)
	selector := []string{"--set", "rootQueue.namespaceSelector.matchLabels.batch=allowed"}
	must[string](t)(run(t, kubeconfig, "helm", slices.Concat(args, selector, []string{"--take-ownership", "--force-conflicts"})...))
	if after := live(t, admin); len(after) != 5 || !reflect.DeepEqual(before, after) {
		t.Error("pods would be replaced")
	}
	if q := must[[]byte](t)(basaltOf(t, c).Get().Resource("queues").Name("root").DoRaw(t.Context())); !bytes.Contains(q, []byte(`"matchLabels":{"batch":"allowed"}`)) {
		t.Errorf("the Queue root is %s", q)
	}
}
