package conformance

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/prove/model"
)

// apiServer is what both sides can do. Kinds are pod, group, queue, claim and volume; names are the script's.
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
	SelectNode(claim api.ObjectVersion, node string) error
	KeepVolume(volume, claim api.ObjectVersion) error
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
	for _, k := range []*model.Kind{m.Pods, m.PodGroups, m.Queues, m.Claims, m.Volumes} {
		m.Forget(k)
	}
	run := fmt.Sprintf("c%d", time.Now().UnixNano()%1e12)
	server := &realAPI{clients: clients, ctx: t.Context(), run: run}
	_, err := clients.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: run}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for kind := range kinds { // a server remembers a kind's history from its first use on
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

// object names the version of an object that a write is meant for.
func (x *side) object(kind, name string, a args) api.ObjectVersion {
	return api.ObjectVersion{Namespace: namespace(kind), Name: name, UID: x.uid(kind, name, a.named["uid"], "now"),
		Version: x.version(kind, name, a.named["version"], "now")}
}

// command carries out one line:
//
//	create pod|group|queue NAME min= queue= cpu= labels=k:v,.. finalizers= gates= node= grace=
//	bind NAME NODE uid= version= labels=       annotate NAME VALUE uid=       resolve NAME VALUE uid= version=
//	condition NAME TYPE STATUS REASON at= uid= version=
//	status group|queue NAME epoch= writer= seq= uid= bound=       finalizers NAME list= uid= version=
//	create claim|volume NAME       select CLAIM NODE uid= version=       keep VOLUME CLAIM uid= version=
//	change KIND NAME min= cpu= labels= phase= gates= version=        delete KIND NAME uid= version= grace=
//	list KIND labels= fields=       mark NAME       watch KIND from=MARK labels= fields=
func (x *side) command(command string) []string {
	a := parse(command)
	kind, name := "pod", ""
	var err error
	switch a.plain[0] {
	case "create", "change", "delete", "status":
		kind, name = a.plain[1], a.plain[2]
	case "finalizers", "select", "keep":
		kind, name = map[string]string{"finalizers": "queue", "select": "claim", "keep": "volume"}[a.plain[0]], a.plain[1]
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
	case "select":
		err = x.SelectNode(x.object(kind, name, a), strings.TrimPrefix(a.plain[2], "none"))
	case "keep":
		err = x.KeepVolume(x.object(kind, name, a), x.object("claim", a.plain[2], args{}))
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

// ---- the model

type modelAPI struct{ *model.API }

func (m modelAPI) kind(kind string) *model.Kind {
	return map[string]*model.Kind{"pod": m.Pods, "group": m.PodGroups, "queue": m.Queues, "claim": m.Claims,
		"volume": m.Volumes}[kind]
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

func (m modelAPI) SelectNode(claim api.ObjectVersion, node string) error {
	_, err := m.API.SelectNode(claim, node)
	return err
}

func (m modelAPI) KeepVolume(volume, claim api.ObjectVersion) error {
	_, err := m.API.KeepVolume(volume, claim)
	return err
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
