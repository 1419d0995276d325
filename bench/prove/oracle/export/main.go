// Export writes the cases of kube-scheduler's own filter tests to bench/prove/oracle/testdata, one JSON file a plugin. It runs these
// tests in a copy of its source in which each plugin records what it is asked and what it says; nothing of the source is kept. Of its integration tests it
// writes the tables. Run it after a change of the version of k8s.io/kubernetes, in this folder: go run . ../testdata. It takes some minutes.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// plugin says where a plugin is, and how to list what it reads beside pods and nodes.
type plugin struct {
	folder, file, kind string
	tests              []string
	objects            string // statements of Go that append to objects
}

const root = "k8s.io/kubernetes/pkg/scheduler/framework/plugins/"

var plugins = []plugin{
	{"noderesources", "fit.go", "Fit", []string{"fit_test.go"}, ""},
	{"nodeaffinity", "node_affinity.go", "NodeAffinity", []string{"node_affinity_test.go"}, ""},
	{"tainttoleration", "taint_toleration.go", "TaintToleration", []string{"taint_toleration_test.go"}, ""},
	{"nodeports", "node_ports.go", "NodePorts", []string{"node_ports_test.go"}, ""},
	{"nodeunschedulable", "node_unschedulable.go", "NodeUnschedulable", []string{"node_unschedulable_test.go"}, ""},
	{"nodedeclaredfeatures", "nodedeclaredfeatures.go", "NodeDeclaredFeatures", []string{"nodedeclaredfeatures_test.go"}, ""},
	{"interpodaffinity", "filtering.go", "InterPodAffinity", []string{"filtering_test.go"}, "list(pl.nsLister)"},
	{"podtopologyspread", "filtering.go", "PodTopologySpread", []string{"filtering_test.go"}, ""},
	{"volumezone", "volume_zone.go", "VolumeZone", []string{"volume_zone_test.go"}, "list(pl.pvLister, pl.pvcLister, pl.scLister)"},
	{"volumerestrictions", "volume_restrictions.go", "VolumeRestrictions", []string{"volume_restrictions_test.go"}, "list(pl.pvcLister)"},
	{"nodevolumelimits", "csi.go", "CSILimits", []string{"csi_test.go"},
		"list(pl.csiManager.(*DefaultCSIManager).csiNodeLister.csiNodeLister, pl.pvLister, pl.pvcLister, pl.scLister, pl.csiDriverLister)\nfor _, o := range pl.vaIndexer.List() { objects = append(objects, recordedObject{\"VolumeAttachment\", o}) }"},
	{"volumebinding", "volume_binding.go", "VolumeBinding", []string{"volume_binding_test.go"}, `list(pl.PVCLister, pl.classLister)
		b := pl.Binder.(*volumeBinder)
		list(b.csiNodeLister, b.csiDriverLister, b.csiStorageCapacityLister)
		names := map[string]bool{"": true}
		for _, o := range objects {
			switch o := o.Object.(type) {
			case *storagev1.StorageClass:
				names[o.Name] = true
			case *v1.PersistentVolumeClaim:
				if o.Spec.StorageClassName != nil {
					names[*o.Spec.StorageClassName] = true
				}
			}
		}
		for name := range names {
			volumes, _ := b.pvCache.ListPVs(name)
			for _, v := range volumes {
				objects = append(objects, recordedObject{"PersistentVolume", v})
			}
		}`},
}

// record is the file that a plugin's package gets. What a plugin is asked and says goes to the file that ORACLE_RECORD names.
const record = `package PACKAGE

import (
	"context"
	"encoding/json"
	"os"
	"reflect"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"
)

var recordCase string

type recorded struct {
	Name    string
	Pod     *v1.Pod
	Nodes   []*v1.Node
	Pods    []*v1.Pod
	Objects []recordedObject ` + "`json:\",omitempty\"`" + `
	Refused map[string]string ` + "`json:\",omitempty\"`" + ` // node to message; "" for all
	Asked   []string
}

type recordedObject struct {
	Kind   string
	Object any
}

var current *recorded

func (c *recorded) add(infos []fwk.NodeInfo) {
	for _, info := range infos {
		node := nodeOf(info)
		known := false
		for _, n := range c.Nodes {
			known = known || n.Name == node.Name
		}
		if known {
			continue
		}
		c.Nodes = append(c.Nodes, node)
		for _, p := range info.GetPods() {
			bound := p.GetPod().DeepCopy()
			bound.Spec.NodeName = node.Name
			c.Pods = append(c.Pods, bound)
		}
	}
}

// nodeOf is a node of its own where a test has none, or one without a name.
func nodeOf(info fwk.NodeInfo) *v1.Node {
	node := &v1.Node{}
	if info.Node() != nil {
		node = info.Node().DeepCopy()
	}
	if node.Name == "" {
		node.Name = "machine"
	}
	return node
}

func (c *recorded) write() {
	if c == nil || len(c.Nodes) == 0 || c.Asked == nil && c.Refused == nil {
		return
	}
	f, err := os.OpenFile(os.Getenv("ORACLE_RECORD"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if err := json.NewEncoder(f).Encode(c); err != nil {
		panic(err)
	}
}

func recordObjects(pl *KIND) (objects []recordedObject) {
	defer func() { _ = recover() }() // a plugin that a test made without its listers
	// A lister of a test is a slice; others are asked.
	list := func(listers ...any) {
		for _, lister := range listers {
			all := reflect.ValueOf(lister)
			if !all.IsValid() {
				continue
			}
			if all.Kind() != reflect.Slice {
				method := all.MethodByName("List")
				var arguments []reflect.Value
				if method.Type().NumIn() > 0 {
					arguments = append(arguments, reflect.ValueOf(labels.Everything()))
				}
				all = method.Call(arguments)[0]
			}
			for i := range all.Len() {
				o := all.Index(i)
				if o.Kind() != reflect.Pointer {
					at := reflect.New(o.Type())
					at.Elem().Set(o)
					o = at
				}
				objects = append(objects, recordedObject{o.Type().Elem().Name(), o.Interface()})
			}
		}
	}
	_, _ = list, storagev1.SchemeGroupVersion
	OBJECTS
	return objects
}

func (pl *KIND) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	c := &recorded{Name: recordCase, Pod: pod.DeepCopy(), Objects: recordObjects(pl)}
	c.add(nodes)
	result, status := pl.recordedPreFilter(ctx, state, pod, nodes)
	if status.IsRejected() {
		c.Refused = map[string]string{"": status.Message()}
	}
	current = c
	if c.Refused != nil {
		c.write()
	}
	return result, status
}

func (pl *KIND) Filter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	status := pl.recordedFilter(ctx, state, pod, info)
	c := &recorded{Name: recordCase, Pod: pod.DeepCopy(), Objects: recordObjects(pl)}
	if current != nil && current.Name == recordCase {
		c.Nodes, c.Pods = current.Nodes, current.Pods
	}
	c.add([]fwk.NodeInfo{info})
	if status.Code() == fwk.Error {
		return status // a test of what happens without PreFilter
	}
	c.Asked = []string{nodeOf(info).Name}
	if !status.IsSuccess() {
		c.Refused = map[string]string{nodeOf(info).Name: status.Message()}
	}
	c.write()
	return status
}
`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: go run . FOLDER [PLUGIN ...]")
		os.Exit(2)
	}
	temp, err := os.MkdirTemp("", "oracle-export")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer os.RemoveAll(temp)
	if err := exportAll(temp, os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.RemoveAll(temp)
		os.Exit(1)
	}
}

// exportAll exports the plugins that are named by their folders, or all.
func exportAll(temp, to string, only []string) error {
	source, err := prepare(temp)
	if err != nil {
		return fmt.Errorf("copy kube-scheduler's source: %w", err)
	}
	for _, p := range plugins {
		if len(only) > 0 && !slices.Contains(only, p.folder) {
			continue
		}
		n, err := export(p, source, temp, filepath.Join(to, p.folder+".json"))
		if err != nil {
			return fmt.Errorf("%s: %w", p.folder, err)
		}
		fmt.Printf("%-22s %d\n", p.folder, n)
	}
	if len(only) == 0 || slices.Contains(only, "integration") {
		n, err := exportIntegration(source, temp, filepath.Join(to, "integration", "filters.json"))
		if err != nil {
			return fmt.Errorf("integration: %w", err)
		}
		fmt.Printf("%-22s %d\n", "integration", n)
	}
	return nil
}

// prepare copies the module k8s.io/kubernetes and makes a go.mod that uses the copy. An overlay may not replace files of the module cache.
func prepare(temp string) (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		return "", err
	}
	gomod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", err
	}
	module := filepath.Dir(strings.TrimSpace(string(gomod)))
	source := filepath.Join(temp, "kubernetes")
	if err := os.CopyFS(source, os.DirFS(strings.TrimSpace(string(out)))); err != nil {
		return "", err
	}
	if err := filepath.WalkDir(source, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return os.Chmod(path, 0o755)
	}); err != nil {
		return "", err
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", err
		}
		if name == "go.mod" {
			b = append(b, "\nreplace k8s.io/kubernetes => "+source+"\n"...)
		}
		if err := os.WriteFile(filepath.Join(temp, name), b, 0o644); err != nil {
			return "", err
		}
	}
	return source, nil
}

var runs = regexp.MustCompile(`(?m)^(.*\b(?:Run|SyncTest)\(.*, func\((\w+) (?:\*testing\.T|ktesting\.TContext)\) \{)$`)

// export runs the tests of one plugin and writes what it recorded.
func export(p plugin, source, temp, to string) (int, error) {
	dir := filepath.Join(source, "pkg/scheduler/framework/plugins", p.folder)
	edit := func(name string, change func(string) string) error {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil { // it cannot be written
			return err
		}
		return os.WriteFile(filepath.Join(dir, name), []byte(change(string(b))), 0o644)
	}
	method := regexp.MustCompile(`(?m)^(func \(\w+ \*` + p.kind + `\)) (Pre)?Filter\(`)
	if err := edit(p.file, func(text string) string { return method.ReplaceAllString(text, "$1 recorded${2}Filter(") }); err != nil {
		return 0, err
	}
	for _, test := range p.tests {
		if err := edit(test, func(text string) string { return runs.ReplaceAllString(text, "$1\nrecordCase = $2.Name()") }); err != nil {
			return 0, err
		}
	}
	recorder := strings.NewReplacer("PACKAGE", p.folder, "KIND", p.kind, "OBJECTS", p.objects).Replace(record)
	if err := os.WriteFile(filepath.Join(dir, "zz_record.go"), []byte(recorder), 0o644); err != nil {
		return 0, err
	}
	lines := filepath.Join(temp, "lines-"+p.folder)
	cmd := exec.Command("go", "test", "-count=1", "-p=1", "-modfile", filepath.Join(temp, "go.mod"), root+p.folder)
	cmd.Env = append(os.Environ(), "ORACLE_RECORD="+lines)
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("run its tests: %w\n%s", err, out)
	}
	raw, err := os.ReadFile(lines)
	if err != nil {
		return 0, err
	}
	// One line a case. A test records it once for each node that it asks about, and again for each setting of a feature gate.
	var kept []*recorded
	known := map[string]*recorded{}
	for line := range bytes.Lines(raw) {
		c := &recorded{}
		if err := json.Unmarshal(line, c); err != nil {
			return 0, fmt.Errorf("read a recorded case: %w", err)
		}
		for _, list := range []*json.RawMessage{&c.Nodes, &c.Pods, &c.Objects} {
			if err := sort(list); err != nil {
				return 0, fmt.Errorf("read a recorded case: %w", err)
			}
		}
		key := string(c.Pod) + string(c.Nodes) + string(c.Pods) + string(c.Objects)
		if known[key] == nil {
			known[key] = &recorded{Name: c.Name, Pod: c.Pod, Nodes: c.Nodes, Pods: c.Pods, Objects: c.Objects}
			kept = append(kept, known[key])
		}
		known[key].add(c)
	}
	var out bytes.Buffer
	for i, c := range kept {
		slices.Sort(c.Asked)
		b, err := json.Marshal(c)
		if err != nil {
			return 0, err
		}
		out.WriteString(map[bool]string{true: "[\n", false: ",\n"}[i == 0])
		out.Write(b)
	}
	out.WriteString("\n]\n")
	return len(kept), os.WriteFile(to, out.Bytes(), 0o644)
}

// sort orders the elements of a list: a test's informers and snapshots have them in any order.
func sort(list *json.RawMessage) error {
	var all []json.RawMessage
	if len(*list) == 0 {
		return nil
	}
	if err := json.Unmarshal(*list, &all); err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b json.RawMessage) int { return bytes.Compare(a, b) })
	sorted, err := json.Marshal(all)
	*list = sorted
	return err
}

// recorded is a case: what the plugin was asked about and which nodes it refused, "" for all of them.
type recorded struct {
	Name                      string
	Pod, Nodes, Pods, Objects json.RawMessage   `json:",omitempty"`
	Refused                   map[string]string `json:",omitempty"`
	Asked                     []string          `json:",omitempty"`
}

// add merges what was said of more nodes; what was said first of a node counts.
func (c *recorded) add(more *recorded) {
	if c.Refused == nil {
		c.Refused = map[string]string{}
	}
	for _, node := range more.Asked {
		if !slices.Contains(c.Asked, node) {
			c.Asked = append(c.Asked, node)
			if why, refused := more.Refused[node]; refused {
				c.Refused[node] = why
			}
		}
	}
	if why, refused := more.Refused[""]; refused && len(c.Asked) == 0 {
		c.Refused[""] = why
	}
}
