package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/prove/model"
)

// apiServer is what both sides can do. Kinds are pod, group and queue; names are the script's.
type apiServer interface {
	Create(kind string, o metav1.Object) error
	Get(kind, name string) (metav1.Object, error)
	Replace(kind string, o metav1.Object) error // a pod's status by way of /status
	Delete(kind, name, uid, version string, grace *int64) error
	Bind(model.Binding) error
	Annotate(name, uid, value string) error
	Resolve(name, uid, version, value string) error // a pod that is gone is not found
	Condition(name, uid, version string, c corev1.PodCondition) error
	GroupStatus(name, uid string, s *v1beta1.PodGroupStatus) error
	QueueStatus(name, uid string, s *v1beta1.QueueStatus) error
	Finalizers(name, uid, version string, finalizers []string) error
	List(kind string, s model.Selector) ([]metav1.Object, int64, error)
	Watch(kind string, s model.Selector, from int64) ([]model.Entry, error)
}

// domain is what the names of our annotations and conditions begin with.
const domain = "scheduling.basalt.dev/"

// side is one server with what was seen there: UIDs and versions are spoken of by their number.
type side struct {
	apiServer
	uids     map[string][]string // of kind/name, oldest first
	versions map[string][]string // of a UID
	marks    map[string]int64
}

func newAPIPair(t testing.TB, clients *kube.Clients) player {
	m := model.NewAPI(func() time.Time { return started })
	for _, k := range []*model.Kind{m.Pods, m.PodGroups, m.Queues} {
		m.Forget(k)
	}
	run := fmt.Sprintf("c%d", time.Now().UnixNano()%1e12)
	server := &realAPI{clients: clients, ctx: t.Context(), run: run}
	_, err := clients.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: run}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"pod", "group", "queue"} { // a server remembers a kind's history from its first use on
		for warm := false; !warm; {
			_, version, err := server.List(kind, model.Selector{})
			if err == nil {
				_, err = server.Watch(kind, model.Selector{}, version)
			}
			if warm = err == nil; !warm && !apierrors.IsResourceExpired(err) {
				t.Fatal(err)
			}
		}
	}
	say := func(s apiServer) func(string) []string {
		x := &side{apiServer: s, uids: map[string][]string{}, versions: map[string][]string{}, marks: map[string]int64{}}
		return x.command
	}
	return both(t, say(modelAPI{m}), say(server))
}

var started = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// args are the words of a command: name=value, and plain ones.
type args struct {
	plain []string
	named map[string]string
}

func parse(command string) args {
	a := args{named: map[string]string{}}
	for _, f := range strings.Fields(command) {
		if name, value, is := strings.Cut(f, "="); is {
			a.named[name] = value
		} else {
			a.plain = append(a.plain, f)
		}
	}
	return a
}

func (a args) number(name string) int64 {
	n, _ := strconv.ParseInt(a.named[name], 10, 64)
	return n
}

func (a args) list(name string) []string {
	if a.named[name] == "" {
		return nil
	}
	return strings.Split(a.named[name], ",")
}

func (a args) pairs(name string) map[string]string {
	var out map[string]string
	for _, p := range a.list(name) {
		if out == nil {
			out = map[string]string{}
		}
		k, v, _ := strings.Cut(p, ":")
		out[k] = v
	}
	return out
}

// uid is the one named: now (of the last object of that name), old (of the one before it), none, wrong.
func (x *side) uid(kind, name, which, otherwise string) string {
	if which == "" {
		which = otherwise
	}
	all := x.uids[kind+"/"+name]
	switch {
	case which == "now" && len(all) > 0:
		return all[len(all)-1]
	case which == "old" && len(all) > 1:
		return all[len(all)-2]
	case which == "none":
		return ""
	}
	return "7d3c9e1e-0000-4000-8000-000000000000"
}

// version is the one named, by number, or now, or none.
func (x *side) version(kind, name, which, otherwise string) string {
	if which == "" {
		which = otherwise
	}
	all := x.versions[x.uid(kind, name, "now", "")]
	n, _ := strconv.Atoi(which)
	switch {
	case which == "now" && len(all) > 0:
		return all[len(all)-1]
	case n > 0 && n <= len(all):
		return all[n-1]
	case which == "none":
		return ""
	}
	return "1"
}

// command carries out one line:
//
//	create pod|group|queue NAME min= queue= cpu= labels=k:v,.. finalizers= gates= node= grace=
//	bind NAME NODE uid= version= labels=       annotate NAME VALUE uid=       resolve NAME VALUE uid= version=
//	condition NAME TYPE STATUS REASON at= uid= version=
//	status group|queue NAME epoch= writer= seq= uid= bound=       finalizers NAME list= uid= version=
//	change KIND NAME min= cpu= labels= phase= gates= version=        delete KIND NAME uid= version= grace=
//	list KIND labels= fields=       mark NAME       watch KIND from=MARK labels= fields=
func (x *side) command(command string) []string {
	a := parse(command)
	kind, name := "pod", ""
	var err error
	switch a.plain[0] {
	case "create", "change", "delete", "status":
		kind, name = a.plain[1], a.plain[2]
	case "finalizers":
		kind, name = "queue", a.plain[1]
	case "bind", "annotate", "resolve", "condition":
		name = a.plain[1]
	}
	uid := x.uid(kind, name, a.named["uid"], "now")
	switch a.plain[0] {
	case "create":
		err = x.Create(kind, newObject(kind, name, a))
	case "change":
		var o metav1.Object
		if o, err = x.Get(kind, name); err == nil {
			o = change(o, a)
			o.SetResourceVersion(x.version(kind, name, a.named["version"], "now"))
			err = x.Replace(kind, o)
		}
	case "delete":
		var grace *int64
		if _, is := a.named["grace"]; is {
			grace = new(int64)
			*grace = a.number("grace")
		}
		err = x.Delete(kind, name, x.uid(kind, name, a.named["uid"], "none"), x.version(kind, name, a.named["version"], "none"), grace)
	case "bind":
		err = x.Bind(model.Binding{Namespace: "ns", Name: name, Node: a.plain[2], UID: uid, Version: x.version(kind, name, a.named["version"], "now"), Labels: a.pairs("labels")})
	case "annotate":
		err = x.Annotate(name, uid, a.plain[2])
	case "resolve":
		err = x.Resolve(name, uid, x.version(kind, name, a.named["version"], "now"), a.plain[2])
	case "condition":
		err = x.Condition(name, uid, x.version(kind, name, a.named["version"], "none"), corev1.PodCondition{Type: corev1.PodConditionType(a.plain[2]), Status: corev1.ConditionStatus(a.plain[3]), Reason: a.plain[4],
			LastTransitionTime: metav1.NewTime(started.Add(time.Duration(a.number("at")) * time.Second))})
	case "status":
		stamp := v1beta1.Stamp{Epoch: a.number("epoch"), Writer: a.named["writer"], Sequence: a.number("seq")}
		if kind == "group" {
			err = x.GroupStatus(name, uid, &v1beta1.PodGroupStatus{Stamp: stamp, Bound: int32(a.number("bound"))})
		} else {
			err = x.QueueStatus(name, uid, &v1beta1.QueueStatus{Stamp: stamp, ObservedGeneration: a.number("bound")})
		}
	case "finalizers":
		err = x.Finalizers(name, uid, x.version(kind, name, a.named["version"], "now"), a.list("list"))
	case "mark":
		_, x.marks[a.plain[1]], err = x.List("pod", model.Selector{})
		return answers(err, nil)
	case "list":
		var all []metav1.Object
		var out []string
		all, _, err = x.List(a.plain[1], selector(a))
		for _, o := range all {
			out = append(out, x.describe(a.plain[1], o))
		}
		return answers(err, out)
	case "watch":
		var entries []model.Entry
		var out []string
		from, known := x.marks[a.named["from"]]
		if !known {
			from = 1
		}
		entries, err = x.Watch(a.plain[1], selector(a), from)
		for _, e := range entries {
			out = append(out, string(e.Type)+" "+x.describe(a.plain[1], e.Object.Object))
		}
		return answers(err, out)
	default:
		panic("unknown command: " + command)
	}
	out := answers(err, nil)
	if o, err := x.Get(kind, name); err == nil {
		return append(out, x.describe(kind, o))
	} else {
		return append(out, answers(err, nil)...)
	}
}

func answers(err error, out []string) []string {
	if err == nil {
		return out
	}
	if s, is := err.(apierrors.APIStatus); is {
		return []string{fmt.Sprintf("refused: %d %s", s.Status().Code, s.Status().Reason)}
	}
	return []string{"failed: " + err.Error()}
}

func selector(a args) (s model.Selector) {
	if v := a.named["labels"]; v != "" {
		sel, err := labels.Parse(strings.NewReplacer(":", "=", "!=", "!=").Replace(v))
		if err != nil {
			panic(err)
		}
		s.Labels = sel
	}
	if v := a.named["fields"]; v != "" {
		s.Fields = fields.ParseSelectorOrDie(strings.ReplaceAll(v, ":", "="))
	}
	return s
}

// describe says of an object what Basalt looks at.
func (x *side) describe(kind string, o metav1.Object) string {
	uid := string(o.GetUID())
	if all := x.uids[kind+"/"+o.GetName()]; !slices.Contains(all, uid) {
		x.uids[kind+"/"+o.GetName()] = append(all, uid)
	}
	n := slices.Index(x.uids[kind+"/"+o.GetName()], uid) + 1
	if !slices.Contains(x.versions[uid], o.GetResourceVersion()) {
		x.versions[uid] = append(x.versions[uid], o.GetResourceVersion())
	}
	v := slices.Index(x.versions[uid], o.GetResourceVersion()) + 1
	s := fmt.Sprintf("%s uid %d version %d generation %d", o.GetName(), n, v, o.GetGeneration())
	if o.GetDeletionTimestamp() != nil {
		s += " deleting"
		if g := o.GetDeletionGracePeriodSeconds(); g != nil {
			s += fmt.Sprintf(" in %d s", *g)
		}
	}
	show := func(what string, m map[string]string) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			s += fmt.Sprintf(" %s %s=%s", what, strings.TrimPrefix(k, domain), m[k])
		}
	}
	show("label", o.GetLabels())
	show("annotation", o.GetAnnotations())
	for _, f := range o.GetFinalizers() {
		s += " finalizer " + f
	}
	switch o := o.(type) {
	case *corev1.Pod:
		s += fmt.Sprintf(" node %q %s", o.Spec.NodeName, o.Status.Phase)
		for _, g := range o.Spec.SchedulingGates {
			s += " gate " + g.Name
		}
		var conditions []string
		for _, c := range o.Status.Conditions {
			conditions = append(conditions, strings.TrimSpace(fmt.Sprintf(" %s=%s %s", c.Type, c.Status, c.Reason)))
		}
		slices.Sort(conditions) // nobody asks for their order
		for _, c := range conditions {
			s += " " + c
		}
	case *v1beta1.PodGroup:
		s += fmt.Sprintf(" queue %q min %d", o.Spec.Queue, o.Spec.SchedulingPolicy.Gang.MinCount)
		if st := o.Status; st != nil {
			s += fmt.Sprintf(" status %d/%s/%d bound %d", st.Epoch, st.Writer, st.Sequence, st.Bound)
		}
	case *v1beta1.Queue:
		s += " cpu " + o.Spec.Capability.Cpu().String()
		if st := o.Status; st != nil {
			s += fmt.Sprintf(" status %d/%s/%d of generation %d", st.Epoch, st.Writer, st.Sequence, st.ObservedGeneration)
		}
	}
	return s
}

func newObject(kind, name string, a args) metav1.Object {
	m := metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: a.pairs("labels"), Finalizers: a.list("finalizers")}
	switch kind {
	case "pod":
		p := &corev1.Pod{ObjectMeta: m, Spec: corev1.PodSpec{SchedulerName: api.SchedulerName, NodeName: a.named["node"], Containers: []corev1.Container{{Name: "main", Image: "none"}}}}
		for _, g := range a.list("gates") {
			p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: g})
		}
		if _, is := a.named["grace"]; is {
			seconds := a.number("grace")
			p.Spec.TerminationGracePeriodSeconds = &seconds
		}
		return p
	case "group":
		g := &v1beta1.PodGroup{TypeMeta: metav1.TypeMeta{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: "PodGroup"}, ObjectMeta: m}
		g.Spec.Queue, g.Spec.SchedulingPolicy.Gang.MinCount = a.named["queue"], int32(a.number("min"))
		return g
	}
	m.Namespace = ""
	q := &v1beta1.Queue{TypeMeta: metav1.TypeMeta{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: "Queue"}, ObjectMeta: m}
	if cpu := a.named["cpu"]; cpu != "" {
		q.Spec.Capability = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
	return q
}

// change makes the object that a user, a kubelet or a controller writes.
func change(o metav1.Object, a args) metav1.Object {
	o = o.(runtime.Object).DeepCopyObject().(metav1.Object)
	if _, is := a.named["labels"]; is {
		o.SetLabels(a.pairs("labels"))
	}
	if _, is := a.named["finalizers"]; is {
		o.SetFinalizers(a.list("finalizers"))
	}
	switch o := o.(type) {
	case *corev1.Pod:
		if phase := a.named["phase"]; phase != "" {
			o.Status.Phase = corev1.PodPhase(phase)
		}
		if _, is := a.named["gates"]; is {
			o.Spec.SchedulingGates = nil
		}
	case *v1beta1.PodGroup:
		if a.named["min"] != "" {
			o.Spec.SchedulingPolicy.Gang.MinCount = int32(a.number("min"))
		}
	case *v1beta1.Queue:
		if cpu := a.named["cpu"]; cpu != "" {
			o.Spec.Capability = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		}
	}
	return o
}

// ---- the model

type modelAPI struct{ *model.API }

func (m modelAPI) kind(kind string) *model.Kind {
	return map[string]*model.Kind{"pod": m.Pods, "group": m.PodGroups, "queue": m.Queues}[kind]
}

func namespace(kind string) string {
	if kind == "queue" {
		return ""
	}
	return "ns"
}

func (m modelAPI) Create(kind string, o metav1.Object) error { return m.API.Create(m.kind(kind), o) }

func (m modelAPI) Get(kind, name string) (metav1.Object, error) {
	if o, is := m.kind(kind).Objects[strings.TrimPrefix(namespace(kind)+"/"+name, "/")]; is {
		return o.Object, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource(kind), name)
}

func (m modelAPI) Replace(kind string, o metav1.Object) error { return m.API.Replace(m.kind(kind), o) }

func (m modelAPI) Delete(kind, name, uid, version string, grace *int64) error {
	return m.API.Delete(m.kind(kind), namespace(kind), name, types.UID(uid), version, grace)
}

func (m modelAPI) Annotate(name, uid, value string) error {
	_, err := m.API.Annotate("ns", name, uid, domain+"note", value)
	return err
}

func (m modelAPI) Resolve(name, uid, version, value string) error {
	_, err := m.API.Resolve("ns", name, uid, version, value)
	if apierrors.IsInvalid(err) {
		err = apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	return err
}

func (m modelAPI) Condition(name, uid, version string, c corev1.PodCondition) error {
	_, err := m.PatchCondition("ns", name, uid, version, c)
	return err
}

func (m modelAPI) GroupStatus(name, uid string, s *v1beta1.PodGroupStatus) error {
	return m.ReplacePodGroupStatus("ns", name, uid, s)
}

func (m modelAPI) QueueStatus(name, uid string, s *v1beta1.QueueStatus) error {
	return m.ReplaceQueueStatus(name, uid, s)
}

func (m modelAPI) Finalizers(name, uid, version string, finalizers []string) error {
	return m.SetFinalizers(name, uid, version, finalizers)
}

func (m modelAPI) List(kind string, s model.Selector) ([]metav1.Object, int64, error) {
	all, version := m.API.List(m.kind(kind), s)
	var out []metav1.Object
	for _, o := range all {
		out = append(out, o.Object)
	}
	return out, version, nil
}

func (m modelAPI) Watch(kind string, s model.Selector, from int64) ([]model.Entry, error) {
	return m.API.Watch(m.kind(kind), s, from)
}

// ---- a real one

// realAPI gives its run a namespace, and its queues a prefix.
type realAPI struct {
	clients *kube.Clients
	ctx     context.Context
	run     string
	ends    int
}

func (r *realAPI) rest(kind string) (rest.Interface, string) {
	if kind == "pod" {
		return r.clients.Core.CoreV1().RESTClient(), "pods"
	}
	return r.clients.Basalt, map[string]string{"group": "podgroups", "queue": "queues"}[kind]
}

// there and here translate names.
func (r *realAPI) there(kind, name string) string {
	if kind == "queue" {
		return r.run + "-" + name
	}
	return name
}

func (r *realAPI) here(o metav1.Object) metav1.Object {
	o = o.(runtime.Object).DeepCopyObject().(metav1.Object)
	if o.GetNamespace() == r.run {
		o.SetNamespace("ns")
	}
	o.SetName(strings.TrimPrefix(o.GetName(), r.run+"-"))
	return o
}

func (r *realAPI) sent(kind string, o metav1.Object) runtime.Object {
	o = o.(runtime.Object).DeepCopyObject().(metav1.Object)
	o.SetName(r.there(kind, o.GetName()))
	if namespace(kind) != "" {
		o.SetNamespace(r.run)
	}
	return o.(runtime.Object)
}

func empty(kind string) metav1.Object {
	return map[string]metav1.Object{"pod": &corev1.Pod{}, "group": &v1beta1.PodGroup{}, "queue": &v1beta1.Queue{}}[kind]
}

func (r *realAPI) Create(kind string, o metav1.Object) error {
	if kind == "pod" {
		_, err := r.clients.Core.CoreV1().Pods(r.run).Create(r.ctx, r.sent(kind, o).(*corev1.Pod), metav1.CreateOptions{})
		return err
	}
	c, resource := r.rest(kind)
	return c.Post().NamespaceIfScoped(r.run, namespace(kind) != "").Resource(resource).Body(r.sent(kind, o)).Do(r.ctx).Error()
}

func (r *realAPI) Get(kind, name string) (metav1.Object, error) {
	if kind == "pod" {
		p, err := r.clients.Core.CoreV1().Pods(r.run).Get(r.ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return r.here(p), nil
	}
	c, resource := r.rest(kind)
	o := empty(kind)
	if err := c.Get().NamespaceIfScoped(r.run, namespace(kind) != "").Resource(resource).Name(r.there(kind, name)).Do(r.ctx).Into(o.(runtime.Object)); err != nil {
		return nil, err
	}
	return r.here(o), nil
}

func (r *realAPI) Replace(kind string, o metav1.Object) error {
	sent := r.sent(kind, o)
	if p, is := sent.(*corev1.Pod); is {
		old, err := r.Get(kind, o.GetName())
		if err != nil {
			return err
		}
		pods := r.clients.Core.CoreV1().Pods(r.run)
		if old.(*corev1.Pod).Status.Phase != p.Status.Phase {
			_, err = pods.UpdateStatus(r.ctx, p, metav1.UpdateOptions{})
		} else {
			_, err = pods.Update(r.ctx, p, metav1.UpdateOptions{})
		}
		return err
	}
	c, resource := r.rest(kind)
	return c.Put().NamespaceIfScoped(r.run, namespace(kind) != "").Resource(resource).Name(r.there(kind, o.GetName())).Body(sent).Do(r.ctx).Error()
}

func (r *realAPI) Delete(kind, name, uid, version string, grace *int64) error {
	o := metav1.DeleteOptions{GracePeriodSeconds: grace}
	if uid != "" || version != "" {
		o.Preconditions = &metav1.Preconditions{}
		if uid != "" {
			u := types.UID(uid)
			o.Preconditions.UID = &u
		}
		if version != "" {
			o.Preconditions.ResourceVersion = &version
		}
	}
	if kind == "pod" {
		return r.deletePod(name, o)
	}
	c, resource := r.rest(kind)
	body, err := json.Marshal(struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		metav1.DeleteOptions
	}{"v1", "DeleteOptions", o})
	if err != nil {
		return err
	}
	return c.Delete().NamespaceIfScoped(r.run, namespace(kind) != "").Resource(resource).Name(r.there(kind, name)).Body(body).SetHeader("Content-Type", "application/json").Do(r.ctx).Error()
}

func (r *realAPI) Bind(b model.Binding) error {
	return r.clients.Bind(r.ctx, kube.Pod{Namespace: r.run, Name: b.Name, UID: b.UID}, b.Version, b.Node, b.Labels)
}

// patch sends what package kube sends, for what it does not offer by itself.
func (r *realAPI) patch(kind, name string, how types.PatchType, body any, subresources ...string) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if kind == "pod" {
		_, err = r.clients.Core.CoreV1().Pods(r.run).Patch(r.ctx, name, how, b, metav1.PatchOptions{}, subresources...)
		return err
	}
	c, resource := r.rest(kind)
	return c.Patch(how).NamespaceIfScoped(r.run, namespace(kind) != "").Resource(resource).Name(r.there(kind, name)).SubResource(subresources...).Body(b).Do(r.ctx).Error()
}

func (r *realAPI) Annotate(name, uid, value string) error {
	return r.patch("pod", name, types.MergePatchType, map[string]any{"metadata": map[string]any{"uid": uid, "annotations": map[string]string{domain + "note": value}}})
}

func (r *realAPI) Resolve(name, uid, version, value string) error {
	found, err := r.clients.Resolve(r.ctx, kube.Pod{Namespace: r.run, Name: name, UID: uid}, version, value)
	if err == nil && found.Gone {
		err = apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	return err
}

func (r *realAPI) Condition(name, uid, version string, c corev1.PodCondition) error {
	m := map[string]any{"uid": uid}
	if version != "" {
		m["resourceVersion"] = version
	}
	return r.patch("pod", name, types.StrategicMergePatchType, map[string]any{"metadata": m, "status": map[string]any{"conditions": []corev1.PodCondition{c}}}, "status")
}

func (r *realAPI) GroupStatus(name, uid string, s *v1beta1.PodGroupStatus) error {
	return unwrap(r.clients.ReplaceStatus(r.ctx, "podgroups", r.run, name, uid, s))
}

func (r *realAPI) QueueStatus(name, uid string, s *v1beta1.QueueStatus) error {
	return unwrap(r.clients.ReplaceStatus(r.ctx, "queues", "", r.there("queue", name), uid, s))
}

// unwrap takes away what package kube says for people.
func unwrap(err error) error {
	for err != nil {
		if _, is := err.(apierrors.APIStatus); is {
			return err
		}
		w, is := err.(interface{ Unwrap() error })
		if !is {
			return err
		}
		err = w.Unwrap()
	}
	return nil
}

func (r *realAPI) Finalizers(name, uid, version string, finalizers []string) error {
	return r.patch("queue", name, types.MergePatchType, map[string]any{"metadata": map[string]any{"uid": uid, "resourceVersion": version, "finalizers": finalizers}})
}

func (r *realAPI) options(s model.Selector) (o metav1.ListOptions) {
	if s.Labels != nil {
		o.LabelSelector = s.Labels.String()
	}
	if s.Fields != nil {
		o.FieldSelector = s.Fields.String()
	}
	return o
}

func (r *realAPI) lister(kind string) *rest.Request {
	c, resource := r.rest(kind)
	return c.Get().NamespaceIfScoped(r.run, namespace(kind) != "").Resource(resource)
}

func emptyList(kind string) runtime.Object {
	return map[string]runtime.Object{"pod": &corev1.PodList{}, "group": &v1beta1.PodGroupList{}, "queue": &v1beta1.QueueList{}}[kind]
}

func (r *realAPI) List(kind string, s model.Selector) ([]metav1.Object, int64, error) {
	list := emptyList(kind)
	o := r.options(s)
	if err := r.lister(kind).VersionedParams(&o, metav1.ParameterCodec).Do(r.ctx).Into(list); err != nil {
		return nil, 0, err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return nil, 0, err
	}
	var out []metav1.Object
	for _, item := range items {
		if o := item.(metav1.Object); kind != "queue" || strings.HasPrefix(o.GetName(), r.run) {
			out = append(out, r.here(o))
		}
	}
	l, err := meta.ListAccessor(list)
	if err != nil {
		return nil, 0, err
	}
	version, err := strconv.ParseInt(l.GetResourceVersion(), 10, 64)
	return out, version, err
}

// Watch reads until the watch shows an object that is made for that, after all else and so that it is selected.
func (r *realAPI) Watch(kind string, s model.Selector, from int64) ([]model.Entry, error) {
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	o := r.options(s)
	o.Watch, o.ResourceVersion = true, strconv.FormatInt(from, 10)
	w, err := r.lister(kind).VersionedParams(&o, metav1.ParameterCodec).Watch(ctx)
	if err != nil {
		return nil, err
	}
	defer w.Stop()
	r.ends++
	end := newObject(kind, fmt.Sprintf("end-%d", r.ends), args{named: map[string]string{"min": "1"}})
	if s.Labels != nil {
		wanted := map[string]string{}
		all, _ := s.Labels.Requirements()
		for _, q := range all {
			if q.Operator() == selection.In || q.Operator() == selection.Equals {
				wanted[q.Key()] = slices.Sorted(maps.Keys(q.Values()))[0]
			} else if q.Operator() == selection.Exists {
				wanted[q.Key()] = "end"
			}
		}
		end.SetLabels(wanted)
	}
	if p, is := end.(*corev1.Pod); is && s.Fields != nil {
		p.Spec.NodeName, _ = s.Fields.RequiresExactMatch("spec.nodeName")
	}
	if err := r.Create(kind, end); err != nil {
		return nil, err
	}
	defer func() {
		now := int64(0)
		_ = r.Delete(kind, end.GetName(), "", "", &now)
	}()
	var out []model.Entry
	var last int64
	for {
		select {
		case <-ctx.Done():
			return out, ctx.Err()
		case e, open := <-w.ResultChan():
			if !open {
				return out, fmt.Errorf("the watch ended after %d events", len(out))
			}
			if e.Type == watch.Error {
				return nil, apierrors.FromObject(e.Object)
			}
			o := e.Object.(metav1.Object)
			version, _ := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
			if version < last {
				return out, fmt.Errorf("version %d comes after %d", version, last)
			}
			last = version
			if kind == "queue" && !strings.HasPrefix(o.GetName(), r.run) {
				continue
			}
			here := r.here(o)
			if here.GetName() == end.GetName() {
				return out, nil
			}
			if strings.HasPrefix(here.GetName(), "end-") { // of an earlier watch
				continue
			}
			out = append(out, model.Entry{Type: e.Type, Version: version, Object: model.Object{Object: here}})
		}
	}
}
