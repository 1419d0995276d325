package migrate

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"basalt.dev/basalt/api/page"
)

// plain is a cluster of a user who has changed nothing of Volcano's defaults.
const plain = `
apiVersion: v1
kind: List
items:
- {apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: root}, spec: {weight: 1}}
- {apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: default}, spec: {weight: 1, parent: root, reclaimable: false}}
- {apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: team}, spec: {weight: 1, capability: {cpu: 8}, guarantee: {resource: {cpu: 2}}}, status: {state: Closed}}
- apiVersion: scheduling.volcano.sh/v1beta1
  kind: PodGroup
  metadata: {namespace: ns, name: g}
  spec: {minMember: 3, queue: team, minTaskMember: {master: 1, worker: 2}, minResources: {cpu: 3, count/pods: 3}, priorityClassName: high}
- apiVersion: batch.volcano.sh/v1alpha1
  kind: Job
  metadata: {namespace: ns, name: job}
  spec:
    schedulerName: volcano
    tasks: [{name: worker, replicas: 2, template: {spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}]
- {apiVersion: v1, kind: Pod, metadata: {namespace: ns, name: p}, spec: {schedulerName: volcano, nodeName: n1, containers: [{name: c}]}}
- {apiVersion: v1, kind: Pod, metadata: {namespace: ns, name: other}, spec: {schedulerName: default-scheduler, hostPID: true, containers: [{name: c}]}}
---
apiVersion: v1
kind: ConfigMap
metadata: {namespace: volcano-system, name: volcano-scheduler-configmap}
data:
  volcano-scheduler.conf: |
    actions: "enqueue, allocate, backfill"
    tiers:
    - plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: conformance}]
    - plugins: [{name: overcommit}, {name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}, {name: binpack}]
`

// rich is one whose users know Volcano well.
const rich = plain + `
---
{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: child}, spec: {weight: 4, parent: team, deserved: {cpu: 2}, reclaimable: true, priority: 3}}
---
{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: lost}, spec: {parent: gone}}
---
{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {namespace: ns, name: rack1}, spec: {minMember: 1, networkTopology: {mode: hard, highestTierAllowed: 1}}}
---
{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {namespace: ns, name: rack2}, spec: {minMember: 1, networkTopology: {mode: hard}}}
---
{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {namespace: ns, name: soft, annotations: {volcano.sh/sla-waiting-time: 1h}}, spec: {minMember: 1, networkTopology: {mode: soft}, minTaskMember: {a: 2}}}
---
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {namespace: ns, name: spread}
spec:
  tasks:
  - template:
      spec:
        resourceClaims: [{name: gpu}]
        containers: [{name: c}]
---
apiVersion: v1
kind: ConfigMap
metadata: {namespace: volcano-system, name: volcano-scheduler-configmap}
data:
  volcano-scheduler.conf: |
    actions: "enqueue, allocate, reclaim, gangpreempt"
    tiers:
    - plugins: [{name: proportion}, {name: tdm}]
`

func rowsOf(t *testing.T, text string) map[string]Row {
	t.Helper()
	o, err := ReadFile(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]Row{}
	last := Refused
	for _, row := range Check(o, []string{"volcano"}, nil) {
		if row.Verdict == Refused && last != Refused {
			t.Errorf("%s %s comes after %s", row.Verdict, row.What, last)
		}
		last = row.Verdict
		if _, twice := out[row.What]; twice {
			t.Errorf("%s is there twice", row.What)
		}
		out[row.What] = row
	}
	return out
}

func TestCheck(t *testing.T) {
	for _, row := range rowsOf(t, plain) {
		if row.Verdict == Refused {
			t.Errorf("refused: %+v", row)
		}
	}
	for _, c := range []struct {
		in, what string
		verdict  Verdict
		count    int
		first    string
	}{
		{plain, "Queue", Honoured, 3, "root"},
		{plain, "Queue spec.capability", Honoured, 1, "team"},
		{plain, "Queue spec.reclaimable", Honoured, 1, "default"},
		{plain, "PodGroup spec.minMember", Honoured, 1, "ns/g"},
		{plain, "PodGroup spec.minTaskMember", Honoured, 1, "ns/g"},
		{plain, "PodGroup spec.minResources", Honoured, 1, "ns/g"},
		{plain, "Job of Volcano", Honoured, 1, "ns/job"},
		{plain, "Job, task template: that Basalt can place", Honoured, 1, "ns/job"},
		{plain, "Pod that Basalt can place", Honoured, 1, "ns/p"},
		{plain, "scheduler plugin gang", Honoured, 1, "volcano-scheduler.conf"},
		{plain, "scheduler plugin proportion", Honoured, 1, "volcano-scheduler.conf"},
		{plain, "scheduler plugin binpack", Honoured, 1, "volcano-scheduler.conf"},
		{plain, "scheduler plugin drf", Honoured, 1, "volcano-scheduler.conf"},
		{plain, "scheduler action enqueue", Honoured, 1, "volcano-scheduler.conf"},
		{rich, "Queue spec.parent", Honoured, 2, "child"},
		{rich, "Queue that cannot be mirrored", Refused, 1, "lost"},
		{rich, "Queue spec.weight", Honoured, 1, "child"},
		{rich, "Queue spec.deserved", Honoured, 1, "child"},
		{rich, "PodGroup spec.networkTopology with mode hard: topologyLevels in the configuration of Basalt has no labels for tiers", Refused, 2, "ns/rack1"},
		{rich, "PodGroup spec.networkTopology with mode soft", Ignored, 1, "ns/soft"},
		{rich, "PodGroup spec.minTaskMember above minMember", Ignored, 1, "ns/soft"},
		{rich, "PodGroup annotation volcano.sh/sla-waiting-time", Ignored, 1, "ns/soft"},
		{rich, "scheduler action reclaim", Honoured, 1, "volcano-scheduler.conf"},
		{rich, "scheduler action gangpreempt", Ignored, 1, "volcano-scheduler.conf"},
		{rich, "scheduler plugin tdm", Refused, 1, "volcano-scheduler.conf"},
	} {
		if row := rowsOf(t, c.in)[c.what]; row.Verdict != c.verdict || row.Count != c.count || row.First != c.first {
			t.Errorf("%s: %+v, want %s, %d, first %s", c.what, row, c.verdict, c.count, c.first)
		}
	}
	found := false
	for what, row := range rowsOf(t, rich) {
		found = found || row.Verdict == Refused && row.First == "ns/spread" && strings.Contains(what, "resourceClaims")
	}
	if !found {
		t.Error("the template of job ns/spread is not refused for its resourceClaims")
	}
}

// run runs `basalt migrate` on a dump.
func run(t *testing.T, text string, args ...string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "dump.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := Command()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append(args, "-f", file))
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestCommand(t *testing.T) {
	out, err := run(t, plain, "check")
	if err != nil || !strings.HasPrefix(out, "VERDICT") || !strings.Contains(out, "scheduler plugin gang") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = run(t, rich, "check", "--json")
	var inUse InUse
	if !errors.As(err, &inUse) || inUse.ExitCode() != 2 || inUse.Rows != strings.Count(out, `"verdict":"refused"`) || inUse.Rows < 4 {
		t.Errorf("%v\n%s", err, out)
	}
	out, _ = run(t, rich, "check")
	for line := range strings.Lines(out) {
		if utf8.RuneCountInString(line) > page.Widest+1 {
			t.Errorf("too wide: %s", line)
		}
	}
	if out, err = run(t, "apiVersion: v1\nitems: []\nkind: List\n", "check"); err != nil ||
		out != "nothing of Volcano's is in use\n" {
		t.Errorf("%v %q", err, out)
	}
}

// A file that is not what kubectl printed is refused in words that help.
func TestReadFileRefuses(t *testing.T) {
	for _, row := range []struct{ text, says string }{
		{"", "it has none of Volcano's Queues"},
		{"---\n---\n", "it has none of Volcano's Queues"},
		{"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: apps/v1, kind: Deployment, metadata: {name: a}}\n",
			"and no pod, but Deployment; --help says"},
		{"NAME   READY   STATUS\na      1/1     Running\n", "document 1 is no object as kubectl prints it"},
		{"{]", "document 1 is no object"},
		{"{apiVersion: v1, kind: Pod, metadata: {name: a}}\n---\n[]", "document 2 is no object"},
		{"{apiVersion: v1, kind: List, items: [1]}", "document 1"},
		{"{apiVersion: v1, kind: Pod, metadata: {name: a, labels: 7}}", "document 1: read Pod /a: "},
		{"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n" +
			"d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n" +
			"g: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nkind: Pod\n", "document 1"},
	} {
		if _, err := ReadFile(strings.NewReader(row.text)); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%.60q: %v", row.text, err)
		}
	}
	if _, err := io.ReadAll(&bounded{strings.NewReader("four"), 3}); err == nil ||
		!strings.Contains(err.Error(), "larger than 1024 MiB") {
		t.Errorf("above the bound: %v", err)
	}
}

// FuzzCheck: whatever a file has, it is read and checked, or refused with an error.
func FuzzCheck(f *testing.F) {
	f.Add([]byte(plain))
	f.Add([]byte(rich))
	f.Fuzz(func(_ *testing.T, data []byte) {
		o, err := ReadFile(bytes.NewReader(data))
		if err != nil {
			return
		}
		Check(o, []string{"volcano"}, nil)
	})
}
