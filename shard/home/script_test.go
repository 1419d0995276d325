package home

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	scripts "basalt.dev/basalt/bench/prove/script"
	"basalt.dev/basalt/shard/event"
)

// TestScripts runs testdata/*.txt. A line that starts with a letter is a command, lines indented by two spaces are what
// it made the core put out; # begins a comment. The words of each command are at its case in script.run. Answers name the
// gang and take serial and attempt from the last message of that kind, so that scripts read like a conversation.
func TestScripts(t *testing.T) {
	scripts.Run(t, func(t *testing.T) scripts.Player {
		s := newScript(t, Config{})
		return func(where, command string) []string {
			s.line = where
			out := s.run(command)
			if err := s.core.Check(); err != nil {
				t.Fatalf("%s: %v", where, err)
			}
			return out
		}
	})
}

type script struct {
	t     *testing.T
	core  *Core
	now   time.Time
	line  string
	table *api.Table
	pods  map[string]*api.Pod
	last  map[string]*wire.Envelope // "reserve g1", "hold b g1", ...: what was sent last
	open  []uint64
}

var epoch0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newScript(t *testing.T, cfg Config) *script {
	cfg.Self, cfg.Strict = "a", true
	return &script{t: t, now: epoch0, core: logged(New(cfg)), pods: map[string]*api.Pod{}, last: map[string]*wire.Envelope{}}
}

// words of a command: plain ones, and those with a value.
type words struct {
	t     *testing.T
	line  string
	plain []string
	value map[string]string
}

func (w words) or(name, def string) string { return cmp.Or(w.value[name], def) }
func (w words) has(name string) bool       { return slices.Contains(w.plain, name) }
func (w words) num(name string) int64      { return w.toNum(w.or(name, "0")) }
func (w words) toNum(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		w.t.Fatalf("%s: %v", w.line, err)
	}
	return n
}

func (w words) duration(name string) *metav1.Duration {
	if w.value[name] == "" {
		return nil
	}
	d, err := time.ParseDuration(w.value[name])
	if err != nil {
		w.t.Fatalf("%s: %v", w.line, err)
	}
	return &metav1.Duration{Duration: d}
}

// joins are spread=KEY:APP and beside=KEY:APP.
func (w words) joins() []byte {
	return scripts.Joins(w.or("namespace", "ns"), w.value["spread"], w.value["beside"])
}

func cores(n, pods int64) api.Resources {
	m := map[string]int64{}
	if n != 0 {
		m["cpu"] = 1000 * n
	}
	if pods != 0 {
		m["pods"] = pods
	}
	return api.FromMap(m)
}

// devices are one of each of the resources r100, r101, ... of a range.
func devices(span string) api.Resources {
	m := map[string]int64{}
	var from, to int
	if _, err := fmt.Sscanf(span, "%d-%d", &from, &to); err == nil {
		for i := from; i <= to; i++ {
			m[fmt.Sprintf("r%d", i)] = 1
		}
	}
	return api.FromMap(m)
}

func (s *script) step(ev event.Event) []string {
	s.core.Step(s.now, ev)
	var out []string
	for _, o := range s.core.Outputs() {
		s.remember(o)
		out = append(out, s.print(o))
	}
	return out
}

func (s *script) remember(o event.Output) {
	switch o := o.(type) {
	case event.Send:
		key := ""
		switch b := o.Body.Body.(type) {
		case *wire.Envelope_Reserve:
			key = "reserve " + b.Reserve.Gang.Uid
		case *wire.Envelope_Unreserve:
			key = "unreserve " + b.Unreserve.Gang.Uid
		case *wire.Envelope_Close:
			key = "close " + b.Close.Gang.Uid
		case *wire.Envelope_HoldRequest:
			key = fmt.Sprintf("hold %s %s", o.To, b.HoldRequest.Gang.Uid)
		case *wire.Envelope_Explain:
			key = "explain " + string(o.To)
		case *wire.Envelope_Probe:
			key = "probe " + string(o.To)
		case *wire.Envelope_RoomProbe:
			key = "rooms " + string(o.To)
		case *wire.Envelope_Stuck:
			key = "stuck " + b.Stuck.Gang.Uid
		case *wire.Envelope_Claim:
			key = "claim " + b.Claim.Gang.Uid
		case *wire.Envelope_Commit:
			key = fmt.Sprintf("commit %s %s", o.To, b.Commit.Gang.Uid)
		case *wire.Envelope_Withdraw:
			key = fmt.Sprintf("withdraw %s %s", o.To, b.Withdraw.Gang.Uid)
		}
		s.last[key] = o.Body
	case event.WriteQueueStatus:
		s.open = append(s.open, o.ID)
	case event.WritePodGroupStatus:
		s.open = append(s.open, o.ID)
	case event.WriteGroupStatus:
		s.open = append(s.open, o.ID)
	case event.WritePodCondition:
		s.open = append(s.open, o.ID)
	case event.EvictPod:
		s.open = append(s.open, o.ID)
	}
}

func (s *script) find(key string) *wire.Envelope {
	m := s.last[key]
	if m == nil {
		s.t.Fatalf("%s: nothing was sent that this answers (%s)", s.line, key)
	}
	return m
}

func (s *script) run(line string) []string {
	w := words{t: s.t, line: s.line, value: map[string]string{}}
	fields := strings.Fields(line)
	for _, f := range fields[1:] {
		if k, v, ok := strings.Cut(f, "="); ok {
			w.value[k] = v
		} else {
			w.plain = append(w.plain, f)
		}
	}
	from := func(who api.Incarnation, body *wire.Envelope) []string {
		return s.step(event.Message{From: who, Body: body})
	}
	coordinator := func(body *wire.Envelope) []string { return from(event.ToCoordinator, body) }

	switch fields[0] {
	// config: [trace] and numbers: inflight= budget= events= statuses= holdpods= commitpods= volumes=SECONDS
	case "config": // and levels=LABEL,...
		s.core = logged(New(Config{Self: "a", Strict: true, Tracing: w.has("trace"), InFlight: int(w.num("inflight")), Levels: slices.DeleteFunc(strings.Split(w.value["levels"], ","), func(key string) bool { return key == "" }),
			VolumesWithin: time.Duration(w.num("volumes")) * time.Second, HoldPods: int(w.num("holdpods")), CommitPods: int(w.num("commitpods")),
			ConditionBudget: int(w.num("budget")), EventBudget: int(w.num("events")), StatusBudget: int(w.num("statuses"))}))
		return nil

	// table: other buckets go round, and that of `default` to the first; the last idle=N members own none
	case "table": // EPOCH MEMBER[:QUEUE,QUEUE] ...
		t := &api.Table{Epoch: api.Epoch(w.toNum(w.plain[0])), Revision: 10 * w.toNum(w.plain[0])}
		members := w.plain[1:]
		for b := range t.Owners {
			t.Owners[b] = uint16(b % (len(members) - int(w.num("idle"))))
		}
		t.Owners[api.BucketOf("default")] = 0
		for i, member := range members {
			who, list, _ := strings.Cut(member, ":")
			t.Members = append(t.Members, api.Member{Incarnation: api.Incarnation(who), Name: "shard-" + who})
			for _, queue := range strings.Split(list, ",") {
				if queue != "" {
					t.Owners[api.BucketOf(queue)] = uint16(i)
				}
			}
		}
		for b := range api.BucketID(api.Buckets) {
			if t.Changed[b] = t.Epoch; s.table != nil && s.table.Owner(b) == t.Owner(b) {
				t.Changed[b] = s.table.Changed[b]
			}
		}
		s.table = t
		return s.step(event.TableSeen{Table: t})

	case "store": // SEQUENCE REVISION UID:QUEUE:ATTEMPT:CPU:NAME[:single|closing|open[:POD+POD]] ... [started] intents=GANG:POD,... awaits=UID,... within=KEY:VALUE claim=NUMBER yields=UID least=MIN condemned=POD+POD (of 1 core); NAME with a / is of an implied group
		ev := event.StoreRead{Sequence: uint64(w.toNum(w.plain[0])), Revision: w.toNum(w.plain[1])}
		for text := range strings.SplitSeq(w.value["intents"], ",") {
			if gang, pod, ok := strings.Cut(text, ":"); ok {
				ev.Intents = append(ev.Intents, event.StoredIntents{Incarnation: "z", N: 1, ModRevision: 1, Record: &wire.IntentsRecord{
					Gangs: []*wire.GangRef{{Uid: gang}}, Rows: []*wire.IntentRow{{PodUid: pod}}}})
			}
		}
		for i, text := range w.plain[2:] {
			f := strings.Split(text, ":")
			if len(f) == 1 {
				continue // started: all of them have
			}
			r := &wire.ReservationRecord{Gang: &wire.GangRef{Uid: f[0], Namespace: "ns", Name: f[4], Queue: f[1]}, Attempt: uint64(w.toNum(f[2])),
				Demand: wire.FromResources(cores(w.toNum(f[3]), w.toNum(f[3]))), Rank: &wire.Rank{Order: 1, GangUid: f[0]}, State: wire.ReservationState_RESERVATION_OPEN}
			if len(f) > 5 && f[5] == "closing" {
				r.State = wire.ReservationState_RESERVATION_CLOSING
			}
			r.Gang.Single = len(f) > 5 && f[5] == "single"
			if strings.Contains(f[4], "/") {
				r.Gang.Kind = uint32(api.ImpliedGroup)
			}
			r.Started = slices.Contains(w.plain[2:], "started")
			if uid := w.value["awaits"]; uid != "" { // all of them
				r.Awaits = strings.Split(uid, ",")
			}
			if key, value, ok := strings.Cut(w.value["within"], ":"); ok {
				r.Within = &wire.Label{Key: key, Value: value}
			}
			if number := w.num("claim"); number > 0 {
				r.Claim = &wire.ClaimRecord{Mandate: uint64(number), Victims: []*wire.Victim{{Gang: &wire.GangRef{Namespace: "ns", Name: "v"}}}}
			}
			if uid := w.value["yields"]; uid != "" {
				r.Yields = &wire.Yielding{To: &wire.GangRef{Uid: uid}, Why: "evicted so that gang ns/" + uid + " can start"}
			}
			if pods := w.value["condemned"]; pods != "" {
				r.Condemned, r.Shrinks = surplusPods(pods, 1), &wire.Yielding{Why: "evicted so that gang ns/h can start"}
			}
			r.Least = uint32(w.num("least"))
			if runs := w.num("runs"); runs > 0 {
				r.RunsMs, r.GrantedUnixMs = 1000*runs, epoch0.UnixMilli()
			}
			if len(f) > 6 {
				for pod := range strings.SplitSeq(f[6], "+") {
					r.Pods = append(r.Pods, api.PodID(pod))
				}
				slices.Sort(r.Pods)
			}
			ev.Reservations = append(ev.Reservations, event.StoredReservation{ModRevision: int64(100 + i), Record: r})
		}
		return s.step(ev)

	case "pods": // SEQUENCE: the list is of the pods shown so far
		ev := event.PodsReplaced{Sequence: uint64(w.toNum(w.plain[0]))}
		for _, uid := range slices.Sorted(maps.Keys(s.pods)) {
			ev.Pods = append(ev.Pods, s.pods[uid])
		}
		return s.step(ev)

	case "pod", "listed": // NAME [finished deleting gated lent owned foreign started nonode volcano percontroller unbound tied] note= least=MIN, of an implied group, role= volcanoqueue= uid= cpu= group= queue= gang= node= refused= priority= version= devices=FROM-TO wishes= leanings= spread=KEY:APP with a maxSkew of 1 unheeded= cost= age=SECONDS app= claims=NAME,... scarce=CLAIM:CLASS:ASKS:FREE,...; listed: only in the next list
		// elsewhere=WORDS of another system in which alone it names its queue
		p := &api.Pod{Namespace: w.or("namespace", "ns"), Name: w.plain[0], UID: w.or("uid", w.plain[0]), ResourceVersion: w.or("version", "7"), Created: epoch0.Add(-time.Minute),
			Ours: !w.has("foreign"), Node: w.value["node"], Deleting: w.has("deleting"), Gated: w.has("gated"),
			Finished: w.has("finished") || w.has("failed"), End: api.End{Succeeded: w.has("finished")},
			PreemptionNever: w.has("never"), Lent: w.has("lent"),
			Runs: api.Runs{GraceSeconds: int32(w.num("grace")), LimitSeconds: int32(w.num("limit"))},
			Maker: api.Maker{Owner: max(uint64(flag01(w.has("owned"))), uint64(w.num("owner"))), User: w.value["user"],
				Group: strings.ReplaceAll(w.value["groups"], "+", "\n")},
			Group: w.value["group"], Queue: w.value["queue"], Priority: w.num("priority"), Class: api.NewClass(cores(w.toNum(w.or("cpu", "1")), 1).Add(devices(w.value["devices"])), nil),
			Condition: api.Refusal{Reason: w.value["shows"]}, Gang: w.value["gang"], Unbound: w.has("unbound"),
			Note: strings.ReplaceAll(w.value["note"], "_", " ")}
		p.DeletionCost = int32(w.num("cost"))
		if names := w.value["claims"]; names != "" {
			p.Claims = strings.Split(names, ",")
		}
		if w.value["created"] != "" {
			p.Created = epoch0.Add(time.Duration(w.num("created")) * time.Second)
		}
		if w.value["ended"] != "" {
			p.End.At = epoch0.Add(time.Duration(w.num("ended")) * time.Second).Unix()
		}
		for text := range strings.SplitSeq(w.value["scarce"], ",") {
			if f := strings.Split(text, ":"); len(f) == 4 {
				p.Scarce = append(p.Scarce, api.ScarceClaim{Claim: f[0], Class: f[1], Asks: f[2], Free: int(w.toNum(f[3]))})
			}
		}
		if age := w.num("age"); age > 0 {
			p.Created = epoch0.Add(-time.Duration(age) * time.Second)
		}
		if w.has("tied") {
			p.Tied = api.ToOne
		}
		if joins := w.joins(); joins != nil {
			p.Class = api.MakeClass(api.Class{Requests: p.Class.Requests, Joins: joins})
		}
		if wishes := w.value["wishes"]; wishes != "" {
			p.Class = p.Class.Wishing([]byte(wishes))
		}
		if leanings := w.value["leanings"]; leanings != "" {
			p.Class = p.Class.Leaning([]byte(leanings))
		}
		p.Unheeded, p.QueueElsewhere = w.value["unheeded"], w.value["elsewhere"]
		if key := w.value["repels"]; key != "" { // everybody, by a label of nodes
			term := v1.PodAffinityTerm{TopologyKey: key, LabelSelector: &metav1.LabelSelector{}}
			term.NamespaceSelector = &metav1.LabelSelector{}
			terms := []v1.PodAffinityTerm{term}
			repels, _ := (&v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}).Marshal()
			p.Class = api.MakeClass(api.Class{Requests: p.Class.Requests, Repels: repels})
		}
		if app := w.value["app"]; app != "" {
			p.Labels = api.NewLabels(map[string]string{"app": app})
		}
		if w.has("new") {
			p.Created = s.now
		}
		if r := w.value["refused"]; r != "" {
			p.Refused = &api.Refusal{Reason: "UnsupportedConstraint", Message: r + " is not supported yet"}
		}
		p.Started = w.has("started")
		if p.Role = w.value["role"]; w.has("volcano") {
			p.GroupKind = api.VolcanoGroup
		}
		p.PerController, p.VolcanoQueue = w.has("percontroller"), w.value["volcanoqueue"]
		if least := w.value["least"]; least != "" {
			p.GroupKind, p.GroupMin = api.ImpliedGroup, int(w.num("least"))
		}
		s.pods[p.UID] = p
		if s.core.census.clusterNodes[p.Node] == nil && p.Node != "" && !w.has("nonode") {
			s.core.Step(s.now, event.NodeSeen{Node: &api.Node{Name: p.Node, Allocatable: cores(1000, 110)}})
		}
		if fields[0] == "listed" {
			return nil
		}
		return s.step(event.PodSeen{Pod: p})

	case "node": // NAME [silent] taint=KEY cpu= pods= labels=KEY:VALUE,...
		n := &api.Node{Name: w.plain[0], Allocatable: cores(w.num("cpu"), w.toNum(w.or("pods", "110"))), Labels: map[string]string{}}
		for label := range strings.SplitSeq(w.value["labels"], ",") {
			if k, v, ok := strings.Cut(label, ":"); ok {
				n.Labels[k] = v
			}
		}
		if w.has("silent") {
			w.value["taint"] = v1.TaintNodeUnreachable
		}
		if key := w.value["taint"]; key != "" {
			n.Taints = []v1.Taint{{Key: key, Effect: v1.TaintEffectNoExecute}}
		}
		return s.step(event.NodeSeen{Node: n})

	case "nodegone": // NAME
		return s.step(event.NodeGone{Name: w.plain[0]})

	case "podgone": // UID
		delete(s.pods, w.plain[0])
		return s.step(event.PodGone{UID: w.plain[0], Namespace: "ns", Name: w.plain[0]})

	// group also takes stale=DURATION, labels=KEY:VALUE,... and annotations=KEY:VALUE,...
	case "group": // NAME [whole deleting scheduled evicted volcano started admitted] roles=NAME:MIN,... floor=CPU refused= uid= min= queue= class= timeout= generation= require=LABEL prefer=LABEL slice=LABEL:SIZE mode=
		g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: w.or("namespace", "ns"), Name: w.plain[0], UID: types.UID(w.or("uid", w.plain[0])), Generation: w.toNum(w.or("generation", "1")), CreationTimestamp: metav1.NewTime(epoch0.Add(-time.Minute))}}
		g.Spec.Queue = w.value["queue"]
		g.Spec.PriorityClassName = w.value["class"]
		g.Spec.SchedulingPolicy.Gang.MinCount = int32(w.toNum(w.or("min", "1")))
		g.Spec.SchedulingConstraints = &v1beta1.SchedulingConstraints{}
		for mode, key := range map[v1beta1.TopologyMode]string{v1beta1.TopologyMode(w.or("mode", "Required")): w.value["require"], v1beta1.TopologyPreferred: w.value["prefer"]} {
			if key != "" {
				g.Spec.SchedulingConstraints.Topology = append(g.Spec.SchedulingConstraints.Topology, v1beta1.TopologyConstraint{Key: key, Mode: mode})
			}
		}
		if key, size, ok := strings.Cut(w.value["slice"], ":"); ok {
			g.Spec.SchedulingConstraints.Topology = append(g.Spec.SchedulingConstraints.Topology, v1beta1.TopologyConstraint{Key: key, SliceSize: int32(w.toNum(size))})
		}
		if w.value["timeout"] != "" {
			seconds := int32(w.num("timeout"))
			g.Spec.ScheduleTimeoutSeconds = &seconds
		}
		g.Spec.StaleAfter = w.duration("stale")
		g.Annotations = map[string]string{api.AnnotationUser: w.value["user"],
			api.AnnotationGroups: strings.ReplaceAll(w.value["groups"], "+", "\n")}
		maps.Copy(g.Annotations, w.pairs("annotations"))
		g.Labels = w.pairs("labels")
		if w.value["limit"] != "" {
			seconds := int32(w.num("limit"))
			g.Spec.MaxRuntimeSeconds = &seconds
		}
		for name := range strings.SplitSeq(w.value["gates"], ",") {
			if name != "" {
				g.Spec.Gates = append(g.Spec.Gates, v1beta1.Gate(name))
			}
		}
		if w.has("whole") {
			g.Spec.DisruptionMode = v1beta1.DisruptPodGroup
		}
		if w.has("deleting") {
			now := metav1.NewTime(s.now)
			g.DeletionTimestamp = &now
		}
		if w.has("scheduled") {
			g.Status = &v1beta1.PodGroupStatus{Stamp: v1beta1.Stamp{Writer: "z"}, Conditions: []metav1.Condition{{Type: v1beta1.ConditionPodGroupInitiallyScheduled, Status: metav1.ConditionTrue}}}
		}
		if w.has("evicted") {
			g.Status = &v1beta1.PodGroupStatus{Stamp: v1beta1.Stamp{Writer: "z"}, Conditions: []metav1.Condition{{Type: v1beta1.ConditionDisruptionTarget, Status: metav1.ConditionTrue, Message: "evicted so that gang ns/h can start"}}}
		}
		foreign := &api.ForeignGroup{Kind: api.VolcanoGroup, Status: api.GroupStatus{Scheduled: api.Verdict{Yes: w.has("started")}, Reserved: api.Verdict{Yes: w.has("started") || w.has("admitted")}}}
		for role := range strings.SplitSeq(w.value["roles"], ",") {
			if name, least, ok := strings.Cut(role, ":"); ok {
				foreign.Roles = append(foreign.Roles, api.Role{Name: name, Min: int(w.toNum(least))})
			}
		}
		if floor := w.num("floor"); floor > 0 {
			foreign.Floor = api.Resources{{Resource: "cpu", Value: 1000 * floor}, {Resource: "pods", Value: int64(g.Spec.SchedulingPolicy.Gang.MinCount)}}
		}
		if !w.has("volcano") && len(foreign.Floor) == 0 {
			return s.step(event.PodGroupSeen{PodGroup: g})
		} else if !w.has("volcano") {
			return s.step(event.PodGroupSeen{PodGroup: g, Foreign: &api.ForeignGroup{Floor: foreign.Floor}})
		}
		if field := w.value["refused"]; field != "" {
			foreign.Refused = &api.Refusal{Reason: v1beta1.ReasonUnsupportedConstraint, Message: field + " is not supported yet"}
		}
		return s.step(event.PodGroupSeen{PodGroup: g, Foreign: foreign})

	case "writer": // volcano [not]: whether statuses of Volcano's PodGroups are Basalt's to write
		return s.step(event.GroupWriter{Kind: api.VolcanoGroup, Writes: !w.has("not")})

	case "groupgone": // NAME [volcano] uid=
		e := event.PodGroupGone{UID: w.or("uid", w.plain[0]), Namespace: "ns", Name: w.plain[0]}
		if w.has("volcano") {
			e.Kind = api.VolcanoGroup
		}
		return s.step(e)

	case "namespace": // NAME queue= [repels], if its pods may repel those of others
		seen := event.NamespaceSeen{Name: w.plain[0], Queue: w.value["queue"]}
		if w.has("repels") {
			seen.Labels = map[string]string{api.LabelRepelsOthers: "true"}
		}
		return s.step(seen)

	case "namespacegone":
		return s.step(event.NamespaceGone{Name: w.plain[0]})

	case "class": // NAME VALUE
		return s.step(event.PriorityClassSeen{Name: w.plain[0], Value: w.toNum(w.plain[1])})

	case "queue": // NAME uid= generation= written=EPOCH/WRITER/SEQUENCE repair=DURATION stale=DURATION
		// longest=DURATION usual=DURATION order=EXPRESSION
		q := &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: w.plain[0], UID: types.UID(w.or("uid", w.plain[0])), Generation: w.toNum(w.or("generation", "1"))}}
		if f := strings.Split(w.value["written"], "/"); len(f) == 3 {
			q.Status = &v1beta1.QueueStatus{Stamp: v1beta1.Stamp{Epoch: w.toNum(f[0]), Writer: f[1], Sequence: w.toNum(f[2])}}
		}
		q.Spec.RepairFor, q.Spec.StaleAfter = w.duration("repair"), w.duration("stale")
		q.Spec.MaxRuntime, q.Spec.DefaultRuntime = w.duration("longest"), w.duration("usual")
		q.Spec.Order = w.value["order"]
		return s.step(event.QueueSeen{Queue: q})

	case "queuegone":
		return s.step(event.QueueGone{Name: w.plain[0], UID: w.or("uid", w.plain[0])})

	case "usage": // QUEUE uid= charged= capability= admitted= waiting= version= term= reason=
		u := &wire.QueueUsage{Queue: w.plain[0], Uid: w.or("uid", w.plain[0]), Generation: 1, Charged: wire.FromResources(cores(w.num("charged"), 0)),
			Capability: wire.FromResources(cores(w.num("capability"), 0)), Admitted: int32(w.num("admitted")), Waiting: int32(w.num("waiting")),
			Version: uint64(w.num("version")), ReadyReason: w.or("reason", "Ready"), Message: "words"}
		return coordinator(&wire.Envelope{Body: &wire.Envelope_QueueUsages{QueueUsages: &wire.QueueUsages{Term: uint64(w.toNum(w.or("term", "1"))), Queues: []*wire.QueueUsage{u}}}})

	case "budget": // NAME ALLOWED [gone] app=VALUE: a PodDisruptionBudget of pods with that label
		if w.has("gone") {
			return s.step(event.BudgetGone{Namespace: "ns", Name: w.plain[0], UID: w.plain[0]})
		}
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: w.plain[0], UID: types.UID(w.plain[0])}}
		b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": w.value["app"]}}
		b.Status.DisruptionsAllowed = int32(w.toNum(w.plain[1]))
		return s.step(event.BudgetSeen{Budget: api.FromDisruptionBudget(b)})

	case "coordinator": // TERM
		return s.step(event.CoordinatorSeen{Term: w.toNum(w.plain[0]), Incarnation: "c"})

	case "summary": // SHARD free= allocatable= largest= room= nodes= changed= epoch= grade=ROOM:GRADE of pods with one core and the wishes w, like=POD:ROOM of pods like one
		var room []*wire.ClassRoom
		if n, grade, ok := strings.Cut(w.value["grade"], ":"); ok {
			room = []*wire.ClassRoom{{PodClass: api.NewClass(cores(1, 1), nil).Wishing([]byte("w")).Hash(), Pods: uint32(w.toNum(n)), Grade: uint32(w.toNum(grade))}}
		}
		if pod, n, ok := strings.Cut(w.value["like"], ":"); ok {
			room = append(room, &wire.ClassRoom{PodClass: s.pods[pod].Class.With(s.pods[pod].Labels).Hash(), Pods: uint32(w.toNum(n))})
		}
		return from(api.Incarnation(w.plain[0]), &wire.Envelope{Body: &wire.Envelope_Summary{Summary: &wire.Summary{
			TableEpoch: uint64(w.toNum(w.or("epoch", fmt.Sprint(s.table.Epoch)))), Nodes: uint32(w.toNum(w.or("nodes", "1"))),
			Allocatable: wire.FromResources(cores(w.num("allocatable"), 110)), Free: wire.FromResources(cores(w.num("free"), 110)),
			Largest: wire.FromResources(cores(w.toNum(w.or("largest", w.or("allocatable", "0"))), 110)), RoomVersion: uint64(w.num("room")), NodesVersion: uint64(w.num("changed")), Room: room}}})

	case "grant": // GANG [patient] revision= later=N, so many attempts
		r := s.find("reserve " + w.plain[0]).GetReserve()
		attempt := r.Attempt + uint64(w.num("later"))
		return coordinator(&wire.Envelope{Body: &wire.Envelope_Granted{Granted: &wire.Granted{GangUid: w.plain[0],
			Attempt: attempt, Serial: r.Serial,
			ReservationRevision: w.toNum(w.or("revision", "50")), Demand: r.Demand, Patient: w.has("patient"), Rank: &wire.Rank{Priority: r.Priority, Order: 3, GangUid: w.plain[0]}}}})

	case "deny": // GANG [charged] reason= elsewhere=POD: with charged, what is bound is charged
		r := s.find("reserve " + w.plain[0]).GetReserve()
		m := &wire.Denied{GangUid: w.plain[0], Attempt: r.Attempt, Serial: r.Serial,
			Reason: wire.DenyReason(wire.DenyReason_value["DENY_"+w.or("reason", "QUOTA")]), Queue: r.Gang.Queue, Resource: "cpu", Short: 2000}
		if w.has("charged") {
			m.ReservationRevision, m.Demand = 50, r.Bound
		}
		if pod := w.value["elsewhere"]; pod != "" {
			m.Elsewhere = []uint64{api.PodID(pod)}
		}
		return coordinator(&wire.Envelope{Body: &wire.Envelope_Denied{Denied: m}})

	case "unreserved": // GANG
		r := s.find("unreserve " + w.plain[0]).GetUnreserve()
		return coordinator(&wire.Envelope{Body: &wire.Envelope_Unreserved{Unreserved: &wire.Unreserved{GangUid: w.plain[0], Attempt: r.Attempt, Serial: r.Serial}}})

	case "closed": // GANG
		r := s.find("close " + w.plain[0]).GetClose()
		return coordinator(&wire.Envelope{Body: &wire.Envelope_Closed{Closed: &wire.Closed{GangUid: w.plain[0], Attempt: r.Attempt, Serial: r.Serial}}})

	case "known": // UID:QUEUE:ATTEMPT
		m := &wire.Known{}
		for _, text := range w.plain {
			f := strings.Split(text, ":")
			m.Gangs = append(m.Gangs, &wire.GangRef{Uid: f[0], Namespace: "ns", Name: f[0], Queue: f[1]})
			m.Attempts = append(m.Attempts, uint64(w.toNum(f[2])))
		}
		return coordinator(&wire.Envelope{Body: &wire.Envelope_Known{Known: m}})

	case "held": // SHARD GANG POD@NODE ... POD@NODE+ that is promised ... refused=PODS [never] grade= left=CORES of 8
		r := s.find("hold " + w.plain[0] + " " + w.plain[1]).GetHoldRequest()
		m := &wire.HoldReply{GangUid: w.plain[1], Serial: r.Serial}
		for _, text := range w.plain[2:] {
			if pod, node, ok := strings.Cut(text, "@"); ok && strings.HasSuffix(node, "+") {
				m.Promised = append(m.Promised, &wire.Held{PodUid: pod, Node: strings.TrimSuffix(node, "+")})
			} else if ok {
				m.Held = append(m.Held, &wire.Held{PodUid: pod, Node: node})
			}
		}
		if text := w.value["refused"]; text != "" {
			m.Refused = append(m.Refused, &wire.Refusal{Pods: uint32(w.toNum(text)), Never: w.has("never"), Grade: uint32(w.num("grade"))})
		}
		if w.value["left"] != "" {
			all := wire.FromResources(cores(8, 110))
			m.Left = &wire.Summary{TableEpoch: uint64(s.table.Epoch), Nodes: 1, RoomVersion: 9, Allocatable: all, Largest: all,
				Free: wire.FromResources(cores(w.num("left"), 110))}
		}
		return from(api.Incarnation(w.plain[0]), &wire.Envelope{Body: &wire.Envelope_HoldReply{HoldReply: m}})

	case "explained": // SHARD NODES:REASON_WITH_UNDERSCORES ... [later] fit= serial=: answers the last Explain to the shard
		// by=SECONDS:PODS,... or now:PODS
		m := &wire.Explained{Serial: s.find("explain " + w.plain[0]).GetExplain().Serial, Fit: uint32(w.num("fit")), Later: w.has("later")}
		m.Nodes = m.Fit
		for text := range strings.SplitSeq(w.value["by"], ",") {
			at, pods, ok := strings.Cut(text, ":")
			if !ok {
				continue
			}
			by := &wire.RoomBy{Pods: uint32(w.toNum(pods))}
			if at != "now" {
				by.UnixMs = epoch0.Add(time.Duration(w.toNum(at)) * time.Second).UnixMilli()
			}
			m.By = append(m.By, by)
		}
		for _, text := range w.plain[1:] {
			if n, reason, ok := strings.Cut(text, ":"); ok {
				m.Reasons = append(m.Reasons, &wire.NodeReason{Nodes: uint32(w.toNum(n)), Reason: strings.ReplaceAll(reason, "_", " ")})
				m.Nodes += uint32(w.toNum(n))
			}
		}
		return from(api.Incarnation(w.plain[0]), &wire.Envelope{Body: &wire.Envelope_Explained{Explained: m}})

	case "probed": // SHARD VALUE[+VALUE]:PODS[/SPARE] ... [later] [more] [unlabelled]: answers the last Probe to the shard
		q := s.find("probe " + w.plain[0]).GetProbe()
		m := &wire.Probed{Serial: q.Serial, Later: w.has("later"), More: w.has("more"), Unlabelled: w.has("unlabelled")}
		for _, text := range w.plain[1:] {
			if values, room, ok := strings.Cut(text, ":"); ok {
				pods, spare, _ := strings.Cut(room, "/")
				d := &wire.Domain{Values: strings.Split(values, "+"), Spare: w.toNum(cmp.Or(spare, "0"))}
				for range q.Classes {
					d.Pods = append(d.Pods, uint32(w.toNum(pods)))
				}
				m.Domains = append(m.Domains, d)
			}
		}
		return from(api.Incarnation(w.plain[0]), &wire.Envelope{Body: &wire.Envelope_Probed{Probed: m}})

	case "mandate": // GANG NUMBER UID:QUEUE:ATTEMPT:CPU[:LEAST[:CONDEMNED]][/STANDING] ... [stuck] [preempt] term= lack=QUEUE:CPU: candidates; stuck: it answers a Stuck, not a Reserve
		m := &wire.Mandate{GangUid: w.plain[0], Number: uint64(w.toNum(w.plain[1])), Term: w.toNum(w.or("term", "1")), Rule: wire.Rule_RULE_RECLAIM}
		if w.has("stuck") {
			r := s.find("stuck " + w.plain[0]).GetStuck()
			m.Attempt, m.Serial = r.Attempt, r.Serial
		} else {
			r := s.find("reserve " + w.plain[0]).GetReserve()
			m.Attempt, m.Serial = r.Attempt, r.Serial
		}
		if w.has("preempt") {
			m.Rule = wire.Rule_RULE_PREEMPT
		}
		if queue, n, ok := strings.Cut(w.value["lack"], ":"); ok {
			m.Lacks = []*wire.Lack{{Queue: queue, Resource: "cpu", Short: 1000 * w.toNum(n)}}
		}
		for _, text := range w.plain[2:] {
			text, standing, _ := strings.Cut(text, "/")
			f := strings.Split(text, ":")
			if len(f) < 4 {
				continue
			}
			of := &wire.Candidate{Standing: uint32(w.toNum(cmp.Or(standing, "0"))), Gang: &wire.GangRef{Uid: f[0], Namespace: "ns", Name: f[0], Queue: f[1]},
				Attempt: uint64(w.toNum(f[2])), Demand: wire.FromResources(cores(w.toNum(f[3]), w.toNum(f[3])))}
			if len(f) > 4 {
				of.Least = uint32(w.toNum(f[4]))
			}
			if len(f) > 5 {
				of.Condemned = []uint64{api.PodID(f[5])}
			}
			m.Candidates = append(m.Candidates, of)
		}
		return coordinator(&wire.Envelope{Body: &wire.Envelope_Mandate{Mandate: m}})

	case "planned": // SECONDS: plans for the namespace cost so much
		s.core.claims.plans.Spend(s.now, "ns", w.toNum(w.plain[0])*planWork)
		return nil

	case "rooms": // SHARD NODE:FREE[:GANG-CPU[-anyway][-bars]...] ... [later]: answers the last RoomProbe to the shard
		q := s.find("rooms " + w.plain[0]).GetRoomProbe()
		m := &wire.Rooms{Serial: q.Serial, Later: w.has("later")}
		for _, text := range w.plain[1:] {
			f := strings.Split(text, ":")
			if len(f) < 2 {
				continue
			}
			n := &wire.NodeRoom{Node: f[0], Free: wire.FromResources(cores(w.toNum(f[1]), 100))}
			for i := range q.Classes {
				n.Classes = append(n.Classes, uint32(i))
			}
			for _, of := range f[2:] {
				l := strings.Split(of, "-")
				leaves := &wire.Leaves{GangUid: l[0], Pods: 1, Amounts: wire.FromResources(cores(w.toNum(l[1]), 1))}
				leaves.Anyway = slices.Contains(l[2:], "anyway")
				if slices.Contains(l[2:], "bars") {
					leaves.Bars = n.Classes
				}
				n.Leaves = append(n.Leaves, leaves)
			}
			m.Nodes = append(m.Nodes, n)
		}
		return from(api.Incarnation(w.plain[0]), &wire.Envelope{Body: &wire.Envelope_Rooms{Rooms: m}})

	case "claim": // GANG accepted|refused [NUMBER] spared=UID,... awaits=UID,... revision=: answers its last Claim
		m := &wire.ClaimReply{GangUid: w.plain[0], Accepted: w.plain[1] == "accepted", ReservationRevision: w.num("revision")}
		if r := s.last["claim "+w.plain[0]].GetClaim(); r != nil {
			m.Attempt, m.Mandate = r.Attempt, r.Mandate
		}
		if len(w.plain) > 2 {
			m.Mandate = uint64(w.toNum(w.plain[2]))
			m.Attempt = s.core.gangs[w.plain[0]].charge.attempt
		}
		for uid := range strings.SplitSeq(w.value["spared"], ",") {
			if uid != "" {
				m.Spared = append(m.Spared, uid)
			}
		}
		return coordinator(&wire.Envelope{Body: &wire.Envelope_ClaimReply{ClaimReply: m}})

	case "yield": // GANG TO [preempt] attempt=
		m := &wire.Yield{Gang: &wire.GangRef{Uid: w.plain[0], Namespace: "ns", Name: w.plain[0], Queue: w.or("queue", "q")}, Attempt: uint64(w.num("attempt")),
			To: &wire.Yielding{To: &wire.GangRef{Uid: w.plain[1], Namespace: "ns", Name: w.plain[1], Queue: "q"}, Rule: wire.Rule_RULE_RECLAIM,
				Why: "evicted so that gang ns/" + w.plain[1] + " can start"}}
		if m.Attempt == 0 {
			m.Attempt = s.find("reserve " + w.plain[0]).GetReserve().Attempt
		}
		if w.has("preempt") {
			m.To.Rule = wire.Rule_RULE_PREEMPT
		}
		return coordinator(&wire.Envelope{Body: &wire.Envelope_Yield{Yield: m}})

	case "shrink": // GANG TO POD+POD [condemned] condemned=POD+POD cpu= attempt= revision=
		m := &wire.Shrink{Gang: &wire.GangRef{Uid: w.plain[0], Namespace: "ns", Name: w.plain[0], Queue: w.or("queue", "q")}, Attempt: uint64(w.num("attempt")), Mandate: 77,
			Pods: surplusPods(w.plain[2], w.toNum(w.or("cpu", "1"))), ReservationRevision: w.num("revision"),
			To: &wire.Yielding{To: &wire.GangRef{Uid: w.plain[1], Namespace: "ns", Name: w.plain[1], Queue: "q"}, Rule: wire.Rule_RULE_RECLAIM,
				Why: "evicted so that gang ns/" + w.plain[1] + " can start"}}
		if w.has("condemned") {
			m.Pods, m.Condemned = nil, m.Pods
		}
		if pods := w.value["condemned"]; pods != "" {
			m.Condemned = surplusPods(pods, 1)
		}
		if m.Attempt == 0 {
			m.Attempt = s.core.gangs[w.plain[0]].charge.attempt
		}
		return coordinator(&wire.Envelope{Body: &wire.Envelope_Shrink{Shrink: m}})

	case "lost": // SHARD GANG POD ...
		return from(api.Incarnation(w.plain[0]), &wire.Envelope{Body: &wire.Envelope_HoldsLost{HoldsLost: &wire.HoldsLost{GangUid: w.plain[1], PodUids: w.plain[2:]}}})

	case "commit": // SHARD GANG OUTCOME POD ...: the answer
		r := s.find("commit " + w.plain[0] + " " + w.plain[1]).GetCommit()
		return from(api.Incarnation(w.plain[0]), &wire.Envelope{Body: &wire.Envelope_CommitReply{CommitReply: &wire.CommitReply{GangUid: w.plain[1], Serial: r.Serial,
			Outcome: wire.CommitOutcome(wire.CommitOutcome_value["COMMIT_"+w.plain[2]]), PodUids: w.plain[3:]}}})

	case "ready": // SHARD GANG [POD:WORDS_WITH_UNDERSCORES ...] [late]: the volumes of its last commit there, late: of one before
		m := &wire.Ready{GangUid: w.plain[1], Serial: s.find("commit " + w.plain[0] + " " + w.plain[1]).GetCommit().Serial}
		for _, text := range w.plain[2:] {
			if text == "late" {
				m.Serial--
				continue
			}
			pod, why, _ := strings.Cut(text, ":")
			m.Failed = append(m.Failed, &wire.VolumeFailure{PodUid: pod, Why: strings.ReplaceAll(why, "_", " ")})
		}
		return from(api.Incarnation(w.plain[0]), &wire.Envelope{Body: &wire.Envelope_Ready{Ready: m}})

	case "bound", "free", "nopod": // SHARD GANG POD@NODE ... [heir] resolved=VERSION
		m := &wire.BindResults{GangUid: w.plain[1]}
		if !w.has("heir") {
			m.Serial = s.find("commit " + w.plain[0] + " " + w.plain[1]).GetCommit().Serial
		}
		outcome := map[string]wire.BindOutcome{"bound": wire.BindOutcome_BIND_BOUND, "free": wire.BindOutcome_BIND_FREE, "nopod": wire.BindOutcome_BIND_GONE}[fields[0]]
		for _, text := range w.plain[2:] {
			pod, node, _ := strings.Cut(text, "@")
			if pod != "heir" {
				m.Results = append(m.Results, &wire.BindResult{PodUid: pod, Outcome: outcome, Node: node,
					ResourceVersion: w.value["resolved"], Rejected: strings.ReplaceAll(w.value["rejected"], "_", " ")})
			}
		}
		return from(api.Incarnation(w.plain[0]), &wire.Envelope{Body: &wire.Envelope_BindResults{BindResults: m}})

	case "withdrawn": // SHARD GANG [POD that was sent ...] [POD@NODE that is bound ...]
		r := s.find("withdraw " + w.plain[0] + " " + w.plain[1]).GetWithdraw()
		m := &wire.Withdrawn{GangUid: w.plain[1], Serial: r.Serial}
		for _, text := range w.plain[2:] {
			if pod, node, bound := strings.Cut(text, "@"); bound {
				m.Bound = append(m.Bound, &wire.Held{PodUid: pod, Node: node})
			} else {
				m.SentPodUids = append(m.SentPodUids, text)
			}
		}
		return from(api.Incarnation(w.plain[0]), &wire.Envelope{Body: &wire.Envelope_Withdrawn{Withdrawn: m}})

	case "wrote": // [gone|conflict|failed]: answers every write that is open
		outcome := event.StatusOK
		for text, o := range map[string]event.StatusOutcome{"gone": event.StatusGone, "conflict": event.StatusConflict, "failed": event.StatusFailed} {
			if w.has(text) {
				outcome = o
			}
		}
		open := s.open
		s.open = nil
		var out []string
		for _, id := range open {
			out = append(out, s.step(event.StatusWritten{
				ID: id, Outcome: outcome, ResourceVersion: w.value["version"], Error: w.value["error"]})...)
		}
		return out

	case "tick": // [DURATION]: a Tick each 100 ms
		d := 100 * time.Millisecond
		if len(w.plain) > 0 {
			var err error
			if d, err = time.ParseDuration(w.plain[0]); err != nil {
				s.t.Fatalf("%s: %v", s.line, err)
			}
		}
		var out []string
		for until := s.now.Add(d); s.now.Before(until); {
			s.now = s.now.Add(100 * time.Millisecond)
			for _, line := range s.step(event.Tick{}) {
				out = append(out, fmt.Sprintf("%s %s", s.now.Sub(epoch0), line))
			}
		}
		return out

	case "empty": // messages and events with nothing in them, or nonsense
		var out []string
		for _, body := range []*wire.Envelope{nil, {}, {Body: &wire.Envelope_Granted{}}, {Body: &wire.Envelope_Denied{}}, {Body: &wire.Envelope_Unreserved{}},
			{Body: &wire.Envelope_Closed{}}, {Body: &wire.Envelope_QueueUsages{}}, {Body: &wire.Envelope_Known{}}, {Body: &wire.Envelope_HoldReply{}},
			{Body: &wire.Envelope_HoldsLost{}}, {Body: &wire.Envelope_CommitReply{}}, {Body: &wire.Envelope_BindResults{}}, {Body: &wire.Envelope_Withdrawn{}},
			{Body: &wire.Envelope_Mandate{}}, {Body: &wire.Envelope_ClaimReply{}}, {Body: &wire.Envelope_Yield{}}, {Body: &wire.Envelope_Shrink{}}, {Body: &wire.Envelope_Rooms{}},
			{Body: &wire.Envelope_Summary{}}, {Body: &wire.Envelope_Reserve{}}, {Body: &wire.Envelope_Commit{}},
			{Body: &wire.Envelope_Known{Known: &wire.Known{Gangs: []*wire.GangRef{nil, {Uid: "x"}}, Attempts: []uint64{1}}}},
			{Body: &wire.Envelope_QueueUsages{QueueUsages: &wire.QueueUsages{Queues: []*wire.QueueUsage{nil}}}},
			{Body: &wire.Envelope_Granted{Granted: &wire.Granted{GangUid: "nobody", Attempt: 1, Serial: 1}}},
		} {
			out = append(out, from("b", body)...)
		}
		bare := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "bare"}}
		for _, ev := range []event.Event{nil, event.TableSeen{}, event.StoreRead{}, event.StoreRead{Revision: 1, Reservations: []event.StoredReservation{{}}},
			event.PodSeen{}, event.PodSeen{Pod: &api.Pod{}}, event.PodSeen{Pod: &api.Pod{UID: "bare", Ours: true}}, event.PodGone{UID: "bare"}, event.PodGone{UID: "bare"}, event.PodGone{}, event.PodGroupSeen{},
			event.PodGroupSeen{PodGroup: bare}, event.PodGroupGone{},
			event.QueueSeen{}, event.QueueSeen{Queue: &v1beta1.Queue{}}, event.QueueGone{},
			event.NamespaceGone{Name: "nowhere"}, event.PriorityClassGone{Name: "none"}, event.CoordinatorSeen{}, event.StatusWritten{ID: 77}, event.Tick{}, event.NodeSeen{}} {
			out = append(out, s.step(ev)...)
		}
		return out

	case "status": // what operators and metrics are told
		r, n := s.core.Status(), s.core.Counts()
		out := []string{fmt.Sprintf("%s %s: term %d epoch %d buckets=%d gangs=%d reservations=%d", r.Role, r.Incarnation, r.Term, r.TableEpoch, r.Buckets, r.GangsTotal, r.Reservations)}
		for _, g := range r.Gangs {
			out = append(out, fmt.Sprintf("%s in %s: %s pods=%d bound=%d min=%d since %s %s: %s", g.Gang.Uid, g.Gang.Queue, g.State, g.Pods, g.Bound, g.MinCount,
				time.UnixMilli(g.SinceUnixMs).Sub(epoch0), g.Reason, g.Message))
		}
		return append(out, fmt.Sprintf("counts gangs=%d waiting=%d buckets=%d placed=%d gave up=%d rolled back=%d", n.Gangs, n.Waiting, n.Buckets,
			s.core.Placed, s.core.GaveUp, s.core.RolledBack))

	case "why": // GROUP or pod=UID: what users are told
		r := s.core.Why(&wire.WhyRequest{Namespace: "ns", Name: strings.Join(w.plain, ""), PodUid: w.value["pod"]})
		out := []string{fmt.Sprintf("known=%t home=%s %s in %s %s: %s: %s", r.Known, r.Home, r.Title, r.Queue, r.State, r.Reason, r.Message)}
		if r.Home == "" && r.Known {
			nodes := ""
			for _, n := range r.NodeReasons {
				nodes += fmt.Sprintf(", %d %s", n.Nodes, n.Reason)
			}
			out = append(out, fmt.Sprintf("  pods=%d bound=%d min=%d position %d of %d, short %s %s %d, %d of %d nodes%s, next: %s",
				r.Pods, r.Bound, r.MinCount, r.Position, r.Waiting, r.ShortQueue, r.ShortResource, r.Short, r.Fit, r.Nodes, nodes, r.Next))
			if r.LimitMs > 0 {
				ends := "unknown"
				if r.EndsUnixMs > 0 {
					ends = time.UnixMilli(r.EndsUnixMs).Sub(epoch0).String()
				}
				is := time.Duration(r.LimitMs) * time.Millisecond
				out = append(out, fmt.Sprintf("  limit %s (%s), past it at %s", is, r.LimitBy, ends))
			}
			if r.Order != nil {
				out = append(out, strings.TrimRight(fmt.Sprintf("  place %d %s", *r.Order, r.OrderFailed), " "))
			}
			for _, by := range r.RoomBy {
				at := "now"
				if by.UnixMs > 0 {
					at = "by " + time.UnixMilli(by.UnixMs).Sub(epoch0).String()
				}
				out = append(out, fmt.Sprintf("  room for %d of %d %s", by.Pods, r.Missing, at))
			}
			for _, words := range []string{r.Evicted, r.Note} {
				if words != "" {
					out = append(out, "  "+words)
				}
			}
		}
		return out

	case "observed": // durations for metrics, and gangs by state and by reason
		var out []string
		bound, takeovers := s.core.Observed()
		for _, b := range bound {
			out = append(out, fmt.Sprintf("bound in %s: %s since seen, %s since complete", b.Queue, b.SinceSeen, b.SinceComplete))
		}
		for _, took := range takeovers {
			out = append(out, fmt.Sprintf("took over in %s", took))
		}
		n := s.core.Counts()
		for _, of := range []map[string]int{n.ByState, n.ByReason} {
			line := fmt.Sprintf("epoch %d gangs:", n.Epoch)
			for _, name := range api.SortedKeys(of) {
				if of[name] > 0 {
					line += fmt.Sprintf(" %s=%d", name, of[name])
				}
			}
			out = append(out, line)
		}
		if s.core.Preempted > 0 {
			out = append(out, fmt.Sprintf("preempted: %d gangs", s.core.Preempted))
		}
		if s.core.Disrupted > 0 {
			out = append(out, fmt.Sprintf("evicted though a PodDisruptionBudget does not allow it: %d pods", s.core.Disrupted))
		}
		return out

	case "show": // gangs, and what is not as it should be
		var out []string
		for _, uid := range api.SortedKeys(s.core.gangs) {
			g := s.core.gangs[uid]
			line := fmt.Sprintf("%s in %s: %s placed=%d", uid, g.queue, g.state, g.tally.placed)
			if g.charge.reserved() {
				line += " charged " + g.charge.amounts.String()
			}
			if w := g.words(); !w.None() {
				line += fmt.Sprintf(" %s: %s", w.Code, w.Message)
			}
			out = append(out, line)
		}
		return append(out, fmt.Sprintf("in flight %d", s.core.searchers.inFlight))
	}
	s.t.Fatalf("%s: unknown command %q", s.line, fields[0])
	return nil
}

// surplusPods are pods of a gang, POD+POD, of so many cores.
func surplusPods(text string, cpu int64) (out []*wire.SurplusPod) {
	for uid := range strings.SplitSeq(text, "+") {
		out = append(out, &wire.SurplusPod{Uid: uid, Amounts: wire.FromResources(cores(cpu, 1))})
	}
	return out
}

func printSerial(n uint64) string { return fmt.Sprintf("%d/%d", n>>32, uint32(n)) }

func printAmounts(in []*wire.Amount) string {
	r, _ := wire.ToResources(in)
	return r.String()
}

func (s *script) print(o event.Output) string {
	switch o := o.(type) {
	case event.Send:
		return fmt.Sprintf("to %s: %s", o.To, printMessage(o.Body))
	case event.WritePodGroupStatus:
		out := fmt.Sprintf("status of PodGroup %s/%s (%s) %d/%s/%d generation %d queue %q pods=%d bound=%d", o.Namespace, o.Name, o.UID,
			o.Status.Epoch, o.Status.Writer, o.Status.Sequence, o.Status.ObservedGeneration, o.Status.Queue, o.Status.Pods, o.Status.Bound)
		if o.Status.Position > 0 {
			out += fmt.Sprintf(" position=%d", o.Status.Position)
		}
		for _, cond := range o.Status.Conditions {
			out += fmt.Sprintf("; %s=%s %s: %s", cond.Type, cond.Status, cond.Reason, cond.Message)
		}
		return out
	case event.WriteGroupStatus:
		out := fmt.Sprintf("status of %s %s/%s (%s)", o.Kind, o.Namespace, o.Name, o.UID)
		for _, part := range []struct {
			word string
			yes  bool
		}{{" admitted", o.Status.Reserved.Yes}, {" started", o.Status.Scheduled.Yes}, {" ended", o.Status.Ended}, {" " + o.Status.Reserved.Reason, o.Status.Reserved.Reason != ""}, {": " + o.Status.Reserved.Message, o.Status.Reserved.Message != ""}, {"; " + o.Status.Scheduled.Reason + ": " + o.Status.Scheduled.Message, o.Status.Scheduled.Message != ""}} {
			if part.yes {
				out += part.word
			}
		}
		return out
	case event.WriteQueueStatus:
		out := fmt.Sprintf("status of Queue %s (%s) %d/%s/%d generation %d admitted=%d waiting=%d", o.Queue, o.UID,
			o.Status.Epoch, o.Status.Writer, o.Status.Sequence, o.Status.ObservedGeneration, o.Status.AdmittedGangs, o.Status.WaitingGangs)
		for _, kind := range slices.Sorted(maps.Keys(o.Status.Charged)) {
			q := o.Status.Charged[kind]
			out += fmt.Sprintf(" %s=%s", kind, q.String())
		}
		for _, cond := range o.Status.Conditions {
			out += fmt.Sprintf("; %s=%s %s: %s", cond.Type, cond.Status, cond.Reason, cond.Message)
		}
		return out
	case event.WritePodCondition:
		return fmt.Sprintf("pod %s/%s (%s) version %s waits: %s: %s", o.Namespace, o.Name, o.UID, o.ResourceVersion, o.Reason, o.Message)
	case event.EvictPod:
		return fmt.Sprintf("evict %s/%s (%s) if %s is closed under attempt %s: %s", o.Namespace, o.Name, o.UID, o.GangUID, printSerial(o.Attempt), o.Message)
	case event.ObjectEvent:
		a := o.About
		on := map[event.ObjectKind]string{event.Group: "PodGroup", event.Pod: "pod",
			event.Controller: "the controller of pod"}[a.Kind]
		return fmt.Sprintf("event on %s %s/%s (%s) %s: %s", on, a.Namespace, a.Name, a.UID, o.Reason, o.Message)
	case event.Span:
		return fmt.Sprintf("span %q id=%x parent=%x %s..%s %v", o.Name, o.SpanID, o.Parent, o.Start.Sub(epoch0), o.End.Sub(epoch0), o.Attributes)
	case event.Log:
		return fmt.Sprintf("log %s %s %v", o.Level, o.Message, o.Attrs)
	}
	return fmt.Sprintf("%T", o)
}

// pairs reads KEY:VALUE,...
func (w words) pairs(name string) map[string]string {
	out := map[string]string{}
	for pair := range strings.SplitSeq(w.value[name], ",") {
		if key, value, is := strings.Cut(pair, ":"); is {
			out[key] = value
		}
	}
	return out
}

func printMessage(e *wire.Envelope) string {
	switch b := e.Body.(type) {
	case *wire.Envelope_Reserve:
		m := b.Reserve
		out := fmt.Sprintf("Reserve %s in %s attempt %s serial %s: %s", m.Gang.Uid, m.Gang.Queue, printSerial(m.Attempt), printSerial(m.Serial), printAmounts(m.Demand))
		if len(m.Bound) > 0 {
			out += " bound " + printAmounts(m.Bound)
		}
		if m.Started {
			out += " started"
		}
		if m.Priority != 0 {
			out += fmt.Sprintf(" priority %d", m.Priority)
		}
		if m.Rank != nil {
			out += " ranked"
		}
		if m.Order != nil {
			out += fmt.Sprintf(" place %d", *m.Order)
		}
		if m.Patient {
			out += " patient"
		}
		if m.Stays {
			out += " stays"
		}
		if m.Preemptible {
			out += " preemptible"
		}
		if m.Claims {
			out += " claims"
		}
		if m.GetUser() != "" {
			out += fmt.Sprintf(" of %s %v", m.GetUser(), m.GetGroups())
		}
		if m.GetRunsMs() > 0 {
			out += fmt.Sprintf(" runs %s", time.Duration(m.GetRunsMs())*time.Millisecond)
		}
		if m.GetMends() {
			out += " mends"
		}
		if m.GetVain() {
			out += " in vain"
		}
		if m.Least > 0 {
			out += fmt.Sprintf(" least %d", m.Least)
		}
		return out
	case *wire.Envelope_Condemn:
		m := b.Condemn
		out := fmt.Sprintf("Condemn %s attempt %s serial %s under mandate %d:", m.Gang.Uid, printSerial(m.Attempt), printSerial(m.Serial), m.Mandate)
		if m.Refused != "" {
			return out + " refused: " + m.Refused
		}
		return out + " " + strings.Join(m.Pods, " ")
	case *wire.Envelope_Stuck:
		return fmt.Sprintf("Stuck %s attempt %s serial %s", b.Stuck.Gang.Uid, printSerial(b.Stuck.Attempt), printSerial(b.Stuck.Serial))
	case *wire.Envelope_RoomProbe:
		m := b.RoomProbe
		return fmt.Sprintf("RoomProbe %d for %s: %d classes%s, candidates %s", m.Serial, m.GangUid, len(m.Classes),
			withLabels(m.Classes), strings.Join(m.Candidates, " "))
	case *wire.Envelope_Claim:
		m := b.Claim
		out := fmt.Sprintf("Claim %s attempt %s serial %s mandate %d of term %d:", m.Gang.Uid, printSerial(m.Attempt), printSerial(m.Serial), m.Mandate, m.Term)
		for _, v := range m.Victims {
			out += fmt.Sprintf(" %s/%s", v.Gang.Uid, printSerial(v.Attempt))
			for _, p := range v.Pods {
				out += fmt.Sprintf(":%s[%s]", p.Uid, printAmounts(p.Amounts))
			}
		}
		if len(m.Awaits) > 0 {
			out += " awaits " + strings.Join(m.Awaits, " ")
		}
		if m.Within != nil {
			out += fmt.Sprintf(" in %s=%s", m.Within.Key, m.Within.Value)
		}
		if m.GraceMs > 0 {
			out += fmt.Sprintf(" for %s", time.Duration(m.GraceMs)*time.Millisecond)
		}
		if m.Why != "" {
			out += " none: " + m.Why
		}
		if m.Stale {
			out += " (stale)"
		}
		return out
	case *wire.Envelope_Unreserve:
		lost := ""
		if b.Unreserve.Lost {
			lost = " lost"
		}
		return fmt.Sprintf("Unreserve %s attempt %s serial %s%s",
			b.Unreserve.Gang.Uid, printSerial(b.Unreserve.Attempt), printSerial(b.Unreserve.Serial), lost)
	case *wire.Envelope_Close:
		rule := ""
		if b.Close.Rule != 0 {
			rule = fmt.Sprintf(" by %s: %s", b.Close.Rule, b.Close.Reason)
		}
		return fmt.Sprintf("Close %s attempt %s serial %s%s",
			b.Close.Gang.Uid, printSerial(b.Close.Attempt), printSerial(b.Close.Serial), rule)
	case *wire.Envelope_HoldRequest:
		m := b.HoldRequest
		out := fmt.Sprintf("HoldRequest %s serial %s:", m.Gang.Uid, printSerial(m.Serial))
		for _, p := range m.Pods {
			out += " " + p.PodUid
			if p.Domain > 0 {
				out += "/" + m.Domains[p.Domain-1].Value
			}
		}
		if m.Patient {
			out += fmt.Sprintf(" patient for %s", time.Duration(m.TtlMs)*time.Millisecond)
		}
		if m.Grade > 0 {
			out += fmt.Sprintf(" of grade %d", m.Grade)
		}
		for _, l := range m.Within {
			out += fmt.Sprintf(" in %s=%s", l.Key, l.Value)
		}
		if len(m.Awaits) > 0 {
			out += " awaits " + strings.Join(m.Awaits, " ") + withLabels(m.Classes)
		}
		if m.Claimed {
			out += " claimed"
		}
		if m.Rank.GetPriority() == math.MinInt64 {
			out += " unranked"
		}
		return out
	case *wire.Envelope_Explain:
		requests, _ := wire.ToResources(b.Explain.PodClass.Requests)
		return fmt.Sprintf("Explain %d for %s: %s", b.Explain.Serial, b.Explain.Namespace, requests)
	case *wire.Envelope_Probe:
		out := fmt.Sprintf("Probe %d by %s: %d classes", b.Probe.Serial, strings.Join(b.Probe.Keys, " "), len(b.Probe.Classes))
		for _, d := range b.Probe.Pinned {
			out += " pinned " + strings.Join(d.Values, "+")
		}
		return out
	case *wire.Envelope_Commit:
		m := b.Commit
		out := fmt.Sprintf("Commit %s serial %s reservation %d table %d", m.Gang.Uid, printSerial(m.Serial), m.ReservationRevision, m.TableRevision)
		if m.Bind {
			out += " and bind"
		}
		out += ":"
		for _, p := range m.Pods {
			out += fmt.Sprintf(" %s@%s(%s)", p.Uid, p.Node, p.ResourceVersion)
			if p.Unbound {
				out += " unbound"
			}
		}
		if m.UntilUnixMs > 0 {
			out += " until " + time.UnixMilli(m.UntilUnixMs).Sub(epoch0).String()
		}
		return out
	case *wire.Envelope_Prepare:
		return fmt.Sprintf("Prepare %s serial %s", b.Prepare.GangUid, printSerial(b.Prepare.Serial))
	case *wire.Envelope_Bind:
		return fmt.Sprintf("Bind %s serial %s", b.Bind.GangUid, printSerial(b.Bind.Serial))
	case *wire.Envelope_Withdraw:
		line := fmt.Sprintf("Withdraw %s serial %s", b.Withdraw.Gang.Uid, printSerial(b.Withdraw.Serial))
		if b.Withdraw.Keep {
			line += " keep"
		}
		if pods := b.Withdraw.PodUids; len(pods) > 0 {
			line += " asks about " + strings.Join(pods, " ")
		}
		return line
	case *wire.Envelope_Unplaced:
		what := strings.TrimSuffix(" "+printAmounts(b.Unplaced.Demand), " ")
		if b.Unplaced.Repairs {
			what += " repairs"
		}
		return fmt.Sprintf("Unplaced %s attempt %s:%s", b.Unplaced.GangUid, printSerial(b.Unplaced.Attempt), what)
	case *wire.Envelope_Refilled:
		return fmt.Sprintf("Refilled epoch %d", b.Refilled.TableEpoch)
	}
	return fmt.Sprintf("%T", e.Body)
}

// withLabels says whether classes are asked for with labels.
func withLabels(classes []*wire.PodClass) string {
	if slices.ContainsFunc(classes, func(c *wire.PodClass) bool { return c.Labels != nil }) {
		return " with labels"
	}
	return ""
}

// logged is a core that has seen the log of intents, whatever will be written.
func logged(c *Core) *Core {
	c.Step(epoch0, event.LogRead{Revision: math.MaxInt64})
	return c
}

func flag01(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
