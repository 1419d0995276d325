package node

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	scripts "basalt.dev/basalt/bench/prove/script"
	"basalt.dev/basalt/shard/event"
)

// TestScripts runs testdata/*.txt. A line that starts with a letter is a command, lines indented by two spaces are what
// it made the core put out; # begins a comment. The words of each command are at its case in script.run.
func TestScripts(t *testing.T) {
	scripts.Run(t, func(t *testing.T) scripts.Player {
		s := newScript(t)
		return s.checked(func(err error) { t.Fatalf("%s: %v", s.line, err) })
	})
}

// checked plays a script, and calls broken when an invariant of the core does not hold after a command.
func (s *script) checked(broken func(error)) scripts.Player {
	return func(where, command string) []string {
		s.line = where
		out := s.run(command)
		if err := s.core.Check(); err != nil {
			broken(err)
		}
		return out
	}
}

// logged is a core that has seen the log of intents, whatever will be written.
func logged(c *Core) *Core {
	c.Step(epoch0, event.LogRead{Revision: math.MaxInt64})
	return c
}

type script struct {
	t     *testing.T
	core  *Core
	now   time.Time
	table *api.Table
	line  string
}

var epoch0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newScript(t *testing.T) *script {
	return &script{t: t, now: epoch0, core: logged(New(Config{Self: "a", Strict: true, SummaryEvery: time.Hour}))}
}

// words of a command: plain ones, and those with a value.
type words struct {
	t     *testing.T
	line  string
	plain []string
	value map[string]string
}

func (s *script) parse(line string) (string, words) {
	w := words{t: s.t, line: s.line, value: map[string]string{}}
	fields := strings.Fields(line)
	for _, f := range fields[1:] {
		if k, v, ok := strings.Cut(f, "="); ok && !strings.ContainsAny(k, "@:/") {
			w.value[k] = v
		} else {
			w.plain = append(w.plain, f)
		}
	}
	return fields[0], w
}

func (w words) num(name string) int64 {
	if w.value[name] == "" {
		return 0
	}
	return w.toNum(w.value[name])
}

func (w words) toNum(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		w.t.Fatalf("%s: %v", w.line, err)
	}
	return n
}

func (w words) or(name, def string) string { return cmp.Or(w.value[name], def) }

func (w words) has(name string) bool { return slices.Contains(w.plain, name) }

// amounts are cpu=N (cores) and pods (1 unless given).
func (w words) amounts(pods int64) api.Resources {
	m := map[string]int64{"pods": pods}
	for k, v := range w.value {
		switch k {
		case "cpu":
			m["cpu"] = 1000 * w.toNum(v)
		case "gpu":
			m["nvidia.com/gpu"] = w.toNum(v)
		}
	}
	return api.FromMap(m)
}

func (w words) class() *api.Class {
	var constraints []byte
	spec := &v1.PodSpec{}
	if n := w.num("weight"); n > 0 { // bytes of constraints
		spec.Tolerations = []v1.Toleration{{Key: strings.Repeat("w", int(n))}}
		constraints, _ = spec.Marshal()
	}
	if k, v, ok := strings.Cut(w.value["selector"], ":"); ok {
		spec.NodeSelector = map[string]string{k: v}
		constraints, _ = spec.Marshal()
	}
	if plugin := w.value["migrated"]; plugin != "" { // where a plugin is migrated
		spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{{Key: api.UnmigratedMark(plugin), Operator: v1.NodeSelectorOpDoesNotExist}}}}}}}
		constraints, _ = spec.Marshal()
	}
	if disk, how, _ := strings.Cut(w.value["disk"], ":"); disk != "" { // NAME or NAME:ro
		spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: disk, ReadOnly: how == "ro"}}}}
		constraints, _ = spec.Marshal()
	}
	if port := w.num("port"); port > 0 {
		spec.Containers = []v1.Container{{Ports: []v1.ContainerPort{{HostPort: int32(port), Protocol: v1.ProtocolTCP}}}}
		constraints, _ = spec.Marshal()
	}
	class := api.Class{Requests: w.amounts(1), Attach: w.attach(), Constraints: constraints, Labels: w.labels(), Labelled: w.value["app"] != ""}
	if w.value["repels"] != "" {
		class.Repels, _ = (&v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{w.term()}}).Marshal()
	}
	if text := w.value["prefers"]; text != "" { // KEY:VALUE,... of equal weight
		wishes := &v1.Affinity{NodeAffinity: &v1.NodeAffinity{}}
		for pair := range strings.SplitSeq(text, ",") {
			k, v, _ := strings.Cut(pair, ":")
			wishes.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(wishes.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution, v1.PreferredSchedulingTerm{
				Weight: 1, Preference: v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: k, Operator: v1.NodeSelectorOpIn, Values: []string{v}}}}})
		}
		class.Wishes, _ = (&v1.PodSpec{Affinity: wishes}).Marshal()
	}
	class.Leanings = w.leanings()
	class.Joins = w.joins()
	return api.MakeClass(class)
}

// attach is volumes=N, of one driver.
func (w words) attach() api.Resources {
	if n := w.num("volumes"); n > 0 {
		return api.Resources{{Resource: "ebs", Value: n}}
	}
	return nil
}

// leanings are near=KEY:APP and apart=KEY:APP, terms of weight 1, and anyway=KEY:APP, a spread.
func (w words) leanings() []byte {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.or("namespace", "ns")}, Spec: v1.PodSpec{SchedulerName: api.SchedulerName, Affinity: &v1.Affinity{PodAffinity: &v1.PodAffinity{}, PodAntiAffinity: &v1.PodAntiAffinity{}}}}
	term := func(word string) []v1.WeightedPodAffinityTerm {
		key, app, ok := strings.Cut(w.value[word], ":")
		if !ok {
			return nil
		}
		return []v1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: v1.PodAffinityTerm{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}}
	}
	p.Spec.Affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = term("near")
	p.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = term("apart")
	if key, app, ok := strings.Cut(w.value["anyway"], ":"); ok {
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: v1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}
	}
	return api.FromPod(p, nil, api.Rules{}).Class.Leanings
}

// joins are spread=KEY:APP, a spread with a maxSkew of 1, and beside=KEY:APP.
func (w words) joins() []byte {
	return scripts.Joins(w.or("namespace", "ns"), w.value["spread"], w.value["beside"])
}

// labels are app=NAME; "-" for none.
func (w words) labels() *api.Labels {
	if app := w.value["app"]; app != "" && app != "-" {
		return api.NewLabels(map[string]string{"app": app})
	}
	return nil
}

// seen is the class of a pod that is seen: its labels are the pod's.
func (w words) seen() *api.Class {
	c := w.class()
	return api.MakeClass(api.Class{Requests: c.Requests, Constraints: c.Constraints, Repels: c.Repels})
}

// term is repels=APP, over nodes or topology=KEY, of the namespace or of those that in=KEY:VALUE selects.
func (w words) term() v1.PodAffinityTerm {
	t := v1.PodAffinityTerm{TopologyKey: w.or("topology", api.LabelHostname), LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": w.value["repels"]}}}
	if k, v, ok := strings.Cut(w.value["in"], ":"); ok {
		t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{k: v}}
	} else {
		t.Namespaces = []string{w.or("namespace", "ns")}
	}
	return t
}

// list is words between commas.
func list(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
}

func (w words) gang() *wire.GangRef {
	return &wire.GangRef{Uid: w.plain[0], Namespace: w.or("namespace", "ns"), Name: w.plain[0], Queue: w.or("queue", "q")}
}

func wireClass(c *api.Class) []*wire.PodClass {
	return []*wire.PodClass{wire.FromClass(c)}
}

func (s *script) step(ev event.Event) []string {
	s.core.Step(s.now, ev)
	var out []string
	for _, o := range s.core.Outputs() {
		out = append(out, printOutput(o))
	}
	return out
}

func (s *script) run(line string) []string {
	name, w := s.parse(line)
	message := func(body *wire.Envelope) []string {
		return s.step(event.Message{From: api.Incarnation(w.or("from", "home")), Body: body})
	}
	key := func(text string) (api.Incarnation, uint64) {
		inc, n, _ := strings.Cut(text, "/")
		return api.Incarnation(inc), uint64(w.toNum(n))
	}
	row := func(text string) event.RowID { // a/1/p1
		parts := strings.Split(text, "/")
		return event.RowID{Incarnation: api.Incarnation(parts[0]), N: uint64(w.toNum(parts[1])), PodUID: parts[2]}
	}
	record := func(rows []string) *wire.IntentsRecord { // p1@n1:gang
		r := &wire.IntentsRecord{Demands: []*wire.Demand{wire.FromDemand(w.class())}}
		for _, text := range rows {
			pod, rest, _ := strings.Cut(text, "@")
			node, gang, _ := strings.Cut(rest, ":")
			i := slices.IndexFunc(r.Gangs, func(g *wire.GangRef) bool { return g.Uid == gang })
			if i < 0 {
				i = len(r.Gangs)
				r.Gangs = append(r.Gangs, &wire.GangRef{Uid: gang, Queue: "q"})
			}
			r.Rows = append(r.Rows, &wire.IntentRow{PodUid: pod, PodResourceVersion: "7", Namespace: "ns", Name: pod, Node: node, Gang: uint32(i)})
		}
		return r
	}
	switch name {
	case "config": // trace, lax, and limits
		cfg := Config{Self: "a", Strict: !w.has("lax"), SummaryEvery: time.Hour, Tracing: w.has("trace")}
		cfg.MaxFences, cfg.MaxDeletes, cfg.MaxClasses, cfg.MaxResolving = int(w.num("fences")), int(w.num("deletes")), int(w.num("classes")), int(w.num("resolving"))
		cfg.MaxRewrites, cfg.MaxNamed, cfg.MaxRoom = int(w.num("rewrites")), int(w.num("named")), int(w.num("room"))
		cfg.MaxRows, cfg.MaxBytes, cfg.MaxClassBytes = int(w.num("rows")), int(w.num("bytes")), int(w.num("classbytes"))
		cfg.WriteEvery = time.Duration(w.num("every")) * time.Millisecond
		s.core = logged(New(cfg))
		return nil

	case "table": // REVISION a:n1,n2 home:q ... : buckets of keys; all others are nobody's; "again" marks a's as changed
		t := &api.Table{Epoch: api.Epoch(w.toNum(w.plain[0])), Revision: w.toNum(w.plain[0])}
		for b := range t.Owners {
			t.Owners[b] = api.Nobody
		}
		again := w.has("again")
		for _, member := range w.plain[1:] {
			if member == "again" {
				continue
			}
			who, list, _ := strings.Cut(member, ":")
			t.Members = append(t.Members, api.Member{Incarnation: api.Incarnation(who), Name: "shard-" + who})
			for _, k := range strings.Split(list, ",") {
				if k != "" {
					t.Owners[api.BucketOf(k)] = uint16(len(t.Members) - 1)
				}
			}
		}
		for b := range api.BucketID(api.Buckets) {
			if s.table == nil || again && t.Owner(b) == "a" || s.table.Owner(b) != t.Owner(b) {
				t.Changed[b] = t.Epoch
			} else {
				t.Changed[b] = s.table.Changed[b]
			}
		}
		s.table = t
		return s.step(event.TableSeen{Table: t})

	case "store": // SEQUENCE REVISION [INC/N@REV then its rows p1@n1:gang ...] cpu=
		ev := event.StoreRead{Sequence: uint64(w.toNum(w.plain[0])), Revision: w.toNum(w.plain[1])}
		var rows []string
		for i := len(w.plain) - 1; i >= 2; i-- {
			if !strings.Contains(w.plain[i], "/") {
				rows = append([]string{w.plain[i]}, rows...)
				continue
			}
			at, rev, _ := strings.Cut(w.plain[i], "@")
			in := event.StoredIntents{ModRevision: w.toNum(rev), Record: record(rows)}
			in.Incarnation, in.N = key(at)
			if w.has("corrupt") {
				in.Record = nil
			}
			ev.Intents = append(ev.Intents, in)
			rows = nil
		}
		return s.step(ev)

	case "pods": // SEQUENCE p1 p2@n1 ... cpu=
		ev := event.PodsReplaced{Sequence: uint64(w.toNum(w.plain[0]))}
		for _, text := range w.plain[1:] {
			uid, node, _ := strings.Cut(text, "@")
			ev.Pods = append(ev.Pods, &api.Pod{UID: uid, Namespace: w.or("namespace", "ns"), Name: uid, Node: node, Class: w.seen(), Labels: w.labels(), Ours: true})
		}
		return s.step(ev)

	case "coordinator": // a new term
		return s.step(event.CoordinatorSeen{Term: 2, Incarnation: "c"})

	case "pod": // p1[@n1] [finished started deleting foreign] cpu= grace= age= until=SECONDS version= [bound=GANG]
		uid, node, _ := strings.Cut(w.plain[0], "@")
		until := s.until(w)
		return s.step(event.PodSeen{Pod: &api.Pod{UID: uid, Ours: !w.has("foreign"), Namespace: w.or("namespace", "ns"), Name: uid, Node: node,
			ResourceVersion: w.value["version"], Nominated: w.value["nominated"], Finished: w.has("finished"),
			Started: w.has("started"), Deleting: w.has("deleting"),
			Runs:    api.Runs{GraceSeconds: int32(w.num("grace")), Until: until},
			Created: s.now.Add(-time.Duration(w.num("age")) * time.Second), Gang: w.value["bound"], Class: w.seen(),
			Labels: w.labels(), Unlisted: w.has("unlisted")}})

	case "namespace": // NAME [KEY:VALUE]
		labels := map[string]string{}
		for _, text := range w.plain[1:] {
			k, v, _ := strings.Cut(text, ":")
			labels[k] = v
		}
		return s.step(event.NamespaceSeen{Name: w.plain[0], Labels: labels})

	case "podgone": // p1
		return s.step(event.PodGone{UID: w.plain[0], Namespace: "ns", Name: w.plain[0]})

	case "attachable": // n1 [LIMIT USED], or n1 missing, or n1 unmigrated=PLUGIN
		switch {
		case w.value["unmigrated"] != "":
			return s.step(event.NodeVolumes{Name: w.plain[0], Unmigrated: []string{w.value["unmigrated"]}})
		case len(w.plain) == 1:
			return s.step(event.NodeVolumes{Name: w.plain[0]})
		case w.plain[1] == "missing":
			return s.step(event.NodeVolumes{Name: w.plain[0], Attachable: []api.Attachable{{Driver: "ebs", Missing: true}}})
		}
		return s.step(event.NodeVolumes{Name: w.plain[0], Attachable: []api.Attachable{{Driver: "ebs", Limit: w.toNum(w.plain[1]), Used: w.toNum(w.plain[2])}}})

	case "node": // n1 cpu= [gpu=] [label=k:v,...] [taint=k] [soft=k], a taint that prefers no pods, [unreadable=words] [cordoned]
		n := &api.Node{Name: w.plain[0], UID: "uid-" + w.plain[0], Allocatable: w.amounts(110), Unschedulable: w.has("cordoned")}
		n.Labels = map[string]string{api.LabelHostname: w.or("host", w.plain[0])}
		for label := range strings.SplitSeq(w.value["label"], ",") {
			if k, v, ok := strings.Cut(label, ":"); ok {
				n.Labels[k] = v
			}
		}
		if w.has("nameless") {
			delete(n.Labels, api.LabelHostname)
		}
		if k := w.value["taint"]; k != "" {
			n.Taints = []v1.Taint{{Key: k, Effect: v1.TaintEffectNoSchedule}}
		}
		if k := w.value["soft"]; k != "" {
			n.Taints = append(n.Taints, v1.Taint{Key: k, Effect: v1.TaintEffectPreferNoSchedule})
		}
		n.Unreadable = w.value["unreadable"]
		return s.step(event.NodeSeen{Node: n})

	case "nodegone":
		return s.step(event.NodeGone{Name: w.plain[0]})

	// hold also takes drawn=N, an order of its pods (HoldRequest.order)
	case "hold": // gang p1 p2 ... serial= cpu= [priority=] [order=] [ttl=ms] [grade=] [in=KEY:VALUE,...] [slices=KEY]: p1/VALUE is of one [awaits=g1,g2] [patient] [claimed]
		m := &wire.HoldRequest{Gang: w.gang(), Serial: uint64(w.num("serial")), Rank: &wire.Rank{Priority: w.num("priority"), Order: uint64(w.num("order")), GangUid: w.plain[0]},
			Classes: wireClass(w.class()), TtlMs: w.num("ttl"), Patient: w.has("patient"), Claimed: w.has("claimed"), Awaits: list(w.value["awaits"]), Grade: uint32(w.num("grade"))}
		m.Order = uint32(w.num("drawn"))
		for label := range strings.SplitSeq(w.value["in"], ",") {
			if k, v, ok := strings.Cut(label, ":"); ok {
				m.Within = append(m.Within, &wire.Label{Key: k, Value: v})
			}
		}
		for _, uid := range w.plain[1:] {
			if uid == "patient" || uid == "claimed" {
				continue
			}
			uid, value, sliced := strings.Cut(uid, "/")
			want := &wire.PodWant{PodUid: uid}
			if sliced {
				i := slices.IndexFunc(m.Domains, func(l *wire.Label) bool { return l.Value == value })
				if i < 0 {
					i = len(m.Domains)
					m.Domains = append(m.Domains, &wire.Label{Key: w.value["slices"], Value: value})
				}
				want.Domain = uint32(i + 1)
			}
			m.Pods = append(m.Pods, want)
		}
		return message(&wire.Envelope{Body: &wire.Envelope_HoldRequest{HoldRequest: m}})

	case "probe": // SERIAL KEY ... cpu= selector= pinned=VALUE from=
		var pinned []*wire.Domain
		if value := w.value["pinned"]; value != "" {
			pinned = append(pinned, &wire.Domain{Values: []string{value}})
		}
		return message(&wire.Envelope{Body: &wire.Envelope_Probe{Probe: &wire.Probe{Namespace: w.or("namespace", "ns"), Classes: wireClass(w.class()), Keys: w.plain[1:], Serial: uint64(w.toNum(w.plain[0])), Pinned: pinned}}})

	case "rooms": // SERIAL gang candidate ... cpu= selector= from=
		return message(&wire.Envelope{Body: &wire.Envelope_RoomProbe{RoomProbe: &wire.RoomProbe{Namespace: w.or("namespace", "ns"), Classes: wireClass(w.class()), Serial: uint64(w.toNum(w.plain[0])), GangUid: w.plain[1], Candidates: w.plain[2:]}}})

	case "promises": // what was promised, and for which pods it waits
		var out []string
		for _, name := range api.SortedKeys(s.core.rooms.promised) {
			for _, r := range s.core.rooms.promised[name] {
				line := fmt.Sprintf("%s: %s waits for %v:", name, r.gang.ref.GetUid(), r.awaits)
				for _, p := range r.promises {
					line += fmt.Sprintf(" %s(%s)", p.uid, p.part)
				}
				out = append(out, line)
			}
		}
		return out

	case "explain": // SERIAL cpu= selector= from=
		return message(&wire.Envelope{Body: &wire.Envelope_Explain{Explain: &wire.Explain{Namespace: w.or("namespace", "ns"), PodClass: wireClass(w.class())[0], Serial: uint64(w.toNum(w.plain[0]))}}})

	case "commit": // gang p1@n1[:resourceVersion] ... serial= table= [reservation=] cpu= [priority=] [norank] [bind] [unbound=p1,p2]
		// until=SECONDS
		m := &wire.Commit{Gang: w.gang(), Serial: uint64(w.num("serial")), TableRevision: w.num("table"), ReservationRevision: w.toNum(w.or("reservation", "50")),
			Classes: wireClass(w.class()), Bind: w.has("bind"), Rank: &wire.Rank{Priority: w.num("priority"), GangUid: w.plain[0]},
			Trace: &wire.Trace{TraceId: []byte("trace-0123456789"), SpanId: []byte("span-of-")}, UntilUnixMs: 1000 * s.until(w)}
		if w.has("norank") {
			m.Rank = nil
		}
		for _, text := range w.plain[1:] {
			if text == "bind" || text == "norank" {
				continue
			}
			uid, rest, _ := strings.Cut(text, "@")
			node, rv, _ := strings.Cut(rest, ":")
			unbound := slices.Contains(strings.Split(w.value["unbound"], ","), uid)
			m.Pods = append(m.Pods, &wire.PodRef{Uid: uid, ResourceVersion: cmp.Or(rv, "7"), Namespace: w.or("namespace", "ns"), Name: uid, Node: node, Unbound: unbound})
		}
		return message(&wire.Envelope{Body: &wire.Envelope_Commit{Commit: m}})

	case "bind": // gang serial=
		return message(&wire.Envelope{Body: &wire.Envelope_Bind{Bind: &wire.Bind{GangUid: w.plain[0], Serial: uint64(w.num("serial"))}}})

	case "prepare": // gang serial=
		return message(&wire.Envelope{Body: &wire.Envelope_Prepare{Prepare: &wire.Prepare{GangUid: w.plain[0], Serial: uint64(w.num("serial"))}}})

	case "volumes": // a/1/p1 [WORDS]: they are bound, or why not
		return s.step(event.VolumesBound{Row: row(w.plain[0]), Failed: strings.Join(w.plain[1:], " ")})

	case "withdraw": // gang serial= [epoch=] [keep]
		return message(&wire.Envelope{Body: &wire.Envelope_Withdraw{Withdraw: &wire.Withdraw{Gang: w.gang(), Serial: uint64(w.num("serial")), TableEpoch: uint64(w.num("epoch")), PodUids: list(w.value["asks"]), Keep: w.has("keep")}}})

	case "empty": // messages and events with nothing in them
		var out []string
		for _, body := range []*wire.Envelope{nil, {},
			{Body: &wire.Envelope_HoldRequest{}}, {Body: &wire.Envelope_Commit{}}, {Body: &wire.Envelope_Bind{}}, {Body: &wire.Envelope_Prepare{}}, {Body: &wire.Envelope_Withdraw{}}, {Body: &wire.Envelope_Summary{}},
			{Body: &wire.Envelope_RoomProbe{}}, {Body: &wire.Envelope_RoomProbe{RoomProbe: &wire.RoomProbe{Classes: []*wire.PodClass{nil}, Candidates: []string{"", "x"}}}}, {Body: &wire.Envelope_Rooms{}},
			{Body: &wire.Envelope_Withdraw{Withdraw: &wire.Withdraw{Keep: true}}},
			{Body: &wire.Envelope_HoldRequest{HoldRequest: &wire.HoldRequest{Gang: w.gang(), Serial: 1 << 40, Classes: []*wire.PodClass{nil}, Pods: []*wire.PodWant{nil, {PodUid: "x", PodClass: 9}}}}},
			{Body: &wire.Envelope_Commit{Commit: &wire.Commit{Gang: w.gang(), Serial: 1 << 40, TableRevision: s.revision(), Pods: []*wire.PodRef{nil, {Uid: "x", ResourceVersion: "1", Name: "x", Node: "n1", PodClass: 9}}}}},
			{Body: &wire.Envelope_Commit{Commit: &wire.Commit{Gang: w.gang(), Serial: 1<<40 + 1, TableRevision: s.revision(),
				ReservationRevision: 50, Classes: wireClass(w.class()), Pods: []*wire.PodRef{
					{ResourceVersion: "1", Name: "noid", Node: "n1"},
					{Uid: "nonode", ResourceVersion: "1", Name: "nonode"}, {Uid: "noname", ResourceVersion: "1", Node: "n1"},
					{Uid: "noversion", Name: "noversion", Node: "n1"}}}}},
		} {
			out = append(out, message(body)...)
		}
		for _, ev := range []event.Event{nil, event.TableSeen{}, event.StoreRead{}, event.PodsReplaced{Pods: []*api.Pod{nil, {}}}, event.PodSeen{}, event.PodSeen{Pod: &api.Pod{UID: "nothing", Node: "n1"}}, event.PodGone{}, event.PodGone{UID: "nothing"},
			event.NodeSeen{}, event.NodeSeen{Node: &api.Node{}}, event.NodeGone{}, event.IntentsWritten{N: 99}, event.BindDone{}, event.VolumesBound{}, event.ResolveDone{}, event.IntentsDeleted{}, event.IntentsRewritten{}} {
			out = append(out, s.step(ev)...)
		}
		return append(out, s.step(event.PodSeen{Pod: &api.Pod{Node: "n1", Class: w.class()}})...)

	case "due": // time goes to when the core is to be stepped
		at := s.core.Due()
		if at.IsZero() {
			return []string{"nothing"}
		}
		waited := max(0, at.Sub(s.now))
		s.now = s.now.Add(waited)
		return append([]string{fmt.Sprintf("at +%v", waited)}, s.step(event.Drained{})...)

	case "written": // N REVISION
		return s.step(event.IntentsWritten{N: uint64(w.toNum(w.plain[0])), Outcome: event.Written, ModRevision: w.toNum(w.plain[1])})

	case "log": // a/N REVISION p1@n1:gang ...: the log of intents shows a key
		inc, n := key(w.plain[0])
		revision := w.toNum(w.plain[1])
		return s.step(event.LogSeen{Revision: revision, Intents: []event.LoggedIntents{{Incarnation: inc, N: n, Place: revision, Record: record(w.plain[2:])}}})

	case "notwritten": // N table|reservation|session|unwritable [gangs]
		ev := event.IntentsWritten{N: uint64(w.toNum(w.plain[0])), Moved: w.plain[2:]}
		ev.Outcome = map[string]event.WriteOutcome{"table": event.TableMoved, "reservation": event.ReservationMoved, "session": event.SessionLost, "unwritable": event.Unwritable}[w.plain[1]]
		return s.step(ev)

	case "bound": // a/1/p1 ok|conflict|notfound|unknown
		return s.step(event.BindDone{Row: row(w.plain[0]), Outcome: map[string]event.BindOutcome{
			"ok": event.BindOK, "conflict": event.BindConflict, "notfound": event.BindNotFound,
			"unknown": event.BindUnknown, "rejected": event.BindRejected}[w.plain[1]],
			Why: strings.ReplaceAll(w.value["why"], "_", " ")})

	case "resolved": // a/1/p1 free|gone|retry|NODE version=
		ev := event.ResolveDone{Row: row(w.plain[0]), Outcome: event.ResolvedBound, Node: w.plain[1]}
		if o, ok := map[string]event.ResolveOutcome{"free": event.ResolvedFree, "gone": event.ResolvedGone, "retry": event.ResolveRetry}[w.plain[1]]; ok {
			ev.Outcome, ev.Node, ev.Version = o, "", w.value["version"]
		}
		return s.step(ev)

	case "deleted": // N@REVISION ...: 0 is gone
		var ev event.IntentsDeleted
		for _, text := range w.plain {
			n, rev, _ := strings.Cut(text, "@")
			ev.Keys = append(ev.Keys, event.IntentKey{N: uint64(w.toNum(n)), ModRevision: w.toNum(rev)})
		}
		return s.step(ev)

	case "rewritten": // INC/N REVISION [done|unwritable] [rows p1@n1:gang, when not done]
		ev := event.IntentsRewritten{ModRevision: w.toNum(w.plain[1]), Done: w.has("done"), Unwritable: w.has("unwritable")}
		ev.Incarnation, ev.N = key(w.plain[0])
		if !ev.Done && !ev.Unwritable && ev.ModRevision != 0 {
			ev.Record = record(w.plain[2:])
		}
		return s.step(ev)

	case "tick": // [DURATION]
		if len(w.plain) > 0 {
			d, err := time.ParseDuration(w.plain[0])
			if err != nil {
				s.t.Fatalf("%s: %v", s.line, err)
			}
			s.now = s.now.Add(d)
		}
		return s.step(event.Tick{})

	case "stats": // what is counted
		st := s.core.Stats()
		return []string{fmt.Sprintf("ready=%t bindings=%d broken=%d ignored=%d out of sync=%d", st.Ready, st.Bindings, st.Broken, st.Ignored, st.OutOfSync)}

	case "memory": // what is remembered
		c := s.core
		rows, commits, results := 0, 0, 0
		for _, g := range c.gangs {
			rows, commits, results = rows+len(g.rows), commits+len(g.commits), results+len(g.results)
		}
		return []string{fmt.Sprintf("gangs=%d queues=%d rows=%d commits=%d results=%d ended=%d requesters=%d",
			len(c.gangs), len(c.queues), rows, commits, results, len(c.ended[0])+len(c.ended[1]), len(c.said.requesters))}

	case "show": // what there is
		st := s.core.Stats()
		out := []string{fmt.Sprintf("holds=%d rows=%d keys=%d waiting=%d", st.Holds, st.Rows, st.Keys, st.Waiting)}
		for _, name := range api.SortedKeys(s.core.nodes) {
			view, ok := s.core.cache.Node(name)
			if !ok {
				continue
			}
			line := fmt.Sprintf("%s: free %s", name, view.Free)
			for _, p := range view.Pods {
				line += fmt.Sprintf(" %s(%s)", p.UID, strings.ToLower(p.Kind.String()))
			}
			out = append(out, line)
		}
		return out
	}
	s.t.Fatalf("%s: unknown command %q", s.line, name)
	return nil
}

func printOutput(o event.Output) string {
	switch o := o.(type) {
	case event.Send:
		return fmt.Sprintf("to %s: %s", o.To, printMessage(o.Body))
	case event.ReadStore:
		return fmt.Sprintf("read store %d from revision %d", o.Sequence, o.MinRevision)
	case event.ListPods:
		return fmt.Sprintf("list pods %d", o.Sequence)
	case event.WriteIntents:
		var fences []string
		for _, f := range o.Reservations {
			fences = append(fences, fmt.Sprintf("%s/%s@%d", f.Bucket.Label(), f.GangUID, f.Revision))
		}
		return fmt.Sprintf("write intents %d if table@%d %s: %s", o.N, o.TableRevision, strings.Join(fences, " "), printRecord(o.Record))
	case event.BindPod:
		out := fmt.Sprintf("bind %s to %s: %s/%s version %s", printRow(o.Row), o.Node, o.Namespace, o.Name, o.ResourceVersion)
		if o.Until > 0 {
			out += " until +" + time.Unix(o.Until, 0).Sub(epoch0).String()
		}
		return out
	case event.BindVolumes:
		return fmt.Sprintf("bind volumes %s for %s: %s/%s", printRow(o.Row), o.Node, o.Namespace, o.Name)
	case event.EndVolumes:
		return fmt.Sprintf("end volumes %s undo=%t", printRow(o.Row), o.Undo)
	case event.ResolveBinding:
		out := fmt.Sprintf("resolve %s: %s/%s with %s", printRow(o.Row), o.Namespace, o.Name, o.Value)
		if o.Answered {
			out += ", answered"
		}
		return out
	case event.DeleteIntents:
		var keys []string
		for _, k := range o.Keys {
			keys = append(keys, fmt.Sprintf("%d@%d", k.N, k.ModRevision))
		}
		return "delete intents " + strings.Join(keys, " ")
	case event.RewriteIntents:
		return fmt.Sprintf("rewrite intents %s/%d@%d if table@%d: %s", o.Incarnation, o.N, o.ModRevision, o.TableRevision, printRecord(o.Record))
	case event.ObjectEvent:
		return fmt.Sprintf("event on %s warning=%t %s: %s", o.About.Name, o.Warning, o.Reason, o.Message)
	case event.Span:
		return fmt.Sprintf("span %s parent=%s %v..%v failed=%q %v", o.Name, o.Parent, o.Start.Sub(epoch0), o.End.Sub(epoch0), o.Failed, o.Attributes)
	case event.Log:
		return fmt.Sprintf("log %s %s %v", o.Level, o.Message, o.Attrs)
	}
	return fmt.Sprintf("%T %+v", o, o)
}

func printRow(r event.RowID) string { return fmt.Sprintf("%s/%d/%s", r.Incarnation, r.N, r.PodUID) }

func printRecord(r *wire.IntentsRecord) string {
	if r == nil {
		return "nothing"
	}
	var rows []string
	for _, row := range r.Rows {
		rows = append(rows, fmt.Sprintf("%s@%s:%s", row.PodUid, row.Node, r.Gangs[row.Gang].Uid))
	}
	return strings.Join(rows, " ")
}

func printMessage(e *wire.Envelope) string {
	switch b := e.Body.(type) {
	case *wire.Envelope_HoldReply:
		m := b.HoldReply
		out := fmt.Sprintf("HoldReply %s %d", m.GangUid, m.Serial)
		for _, h := range m.Held {
			out += fmt.Sprintf(" %s@%s", h.PodUid, h.Node)
		}
		for _, h := range m.Promised {
			out += fmt.Sprintf(" promised=%s@%s", h.PodUid, h.Node)
		}
		for _, r := range m.Refused {
			out += fmt.Sprintf(" refused=%d never=%t", r.Pods, r.Never)
			if r.Grade > 0 {
				out += fmt.Sprintf(" grade=%d", r.Grade)
			}
		}
		return out
	case *wire.Envelope_Probed:
		out := fmt.Sprintf("Probed %d:", b.Probed.Serial)
		if b.Probed.Unlabelled {
			out += " unlabelled"
		}
		for _, d := range b.Probed.Domains {
			out += fmt.Sprintf(" %s has room for %d and spare %d", strings.Join(d.Values, " "), d.Pods[0], d.Spare)
		}
		return out
	case *wire.Envelope_Rooms:
		m := b.Rooms
		out := fmt.Sprintf("Rooms %d:", m.Serial)
		for _, n := range m.Nodes {
			free, _ := wire.ToResources(n.Free)
			out += fmt.Sprintf(" %s(%s)", n.Node, free)
			for _, l := range n.Leaves {
				amounts, _ := wire.ToResources(l.Amounts)
				out += fmt.Sprintf(" %s=%d(%s)", l.GangUid, l.Pods, amounts)
				if l.Anyway {
					out += " anyway"
				}
				if len(l.GetBars()) > 0 {
					out += " bars"
				}
			}
		}
		if m.Later {
			out += " later"
		}
		if m.More {
			out += " more"
		}
		return out
	case *wire.Envelope_Explained:
		out := fmt.Sprintf("Explained %d: %d of %d nodes fit", b.Explained.Serial, b.Explained.Fit, b.Explained.Nodes)
		for _, r := range b.Explained.Reasons {
			out += fmt.Sprintf(", %d %s", r.Nodes, r.Reason)
		}
		for _, by := range b.Explained.By {
			if by.UnixMs == 0 {
				out += fmt.Sprintf(", room for %d now", by.Pods)
				continue
			}
			out += fmt.Sprintf(", for %d more by +%s", by.Pods, time.UnixMilli(by.UnixMs).Sub(epoch0))
		}
		return out
	case *wire.Envelope_HoldsLost:
		return fmt.Sprintf("HoldsLost %s %d %v", b.HoldsLost.GangUid, b.HoldsLost.Serial, b.HoldsLost.PodUids)
	case *wire.Envelope_CommitReply:
		m := b.CommitReply
		return fmt.Sprintf("CommitReply %s %d %s %v %s", m.GangUid, m.Serial, strings.TrimPrefix(m.Outcome.String(), "COMMIT_"), m.PodUids, m.Message)
	case *wire.Envelope_Withdrawn:
		line := fmt.Sprintf("Withdrawn %s %d sent=%v", b.Withdrawn.GangUid, b.Withdrawn.Serial, b.Withdrawn.SentPodUids)
		for _, p := range b.Withdrawn.Bound {
			line += fmt.Sprintf(" %s is bound to %s", p.PodUid, p.Node)
		}
		return line
	case *wire.Envelope_Ready:
		out := fmt.Sprintf("Ready %s %d", b.Ready.GangUid, b.Ready.Serial)
		for _, f := range b.Ready.Failed {
			out += fmt.Sprintf(" %s(%s)", f.PodUid, f.Why)
		}
		return out
	case *wire.Envelope_BindResults:
		out := fmt.Sprintf("BindResults %s %d", b.BindResults.GangUid, b.BindResults.Serial)
		for _, r := range b.BindResults.Results {
			out += fmt.Sprintf(" %s:%s@%s", r.PodUid, strings.TrimPrefix(r.Outcome.String(), "BIND_"), r.Node)
			if r.Rejected != "" {
				out += " rejected: " + r.Rejected
			}
			if r.ResourceVersion != "" {
				out += " version " + r.ResourceVersion
			}
		}
		return out
	case *wire.Envelope_Supply:
		m := b.Supply
		free, _ := wire.ToResources(m.Free)
		own, _ := wire.ToResources(m.Own)
		return fmt.Sprintf("Supply epoch=%d free=%s own=%s", m.TableEpoch, free, own)
	case *wire.Envelope_Summary:
		m := b.Summary
		free, _ := wire.ToResources(m.Free)
		out := fmt.Sprintf("Summary nodes=%d free=%s out of sync=%d", m.Nodes, free, m.OutOfSync)
		for _, r := range m.Room {
			out += fmt.Sprintf(" room=%d", r.Pods)
			if r.Grade > 0 {
				out += fmt.Sprintf(" grade=%d", r.Grade)
			}
		}
		return out
	}
	return fmt.Sprintf("%T", e.Body)
}

// until is a time so many seconds from now, 0 if the command does not say.
func (s *script) until(w words) int64 {
	if w.value["until"] == "" {
		return 0
	}
	return s.now.Unix() + w.num("until")
}

func (s *script) revision() int64 {
	if s.table == nil {
		return 0
	}
	return s.table.Revision
}
