package topology

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// judged is a View with nodes a1 and a2 in zone a, and b1 in zone b.
type judged struct {
	*View
	pods map[string]*api.Pod
}

func newJudged() *judged {
	j := &judged{New(), map[string]*api.Pod{}}
	j.step(event.LogRead{Revision: 1})
	for _, name := range []string{"a1", "a2", "b1"} {
		j.node(name)
	}
	return j
}

func (j *judged) step(ev event.Event) { j.Step(time.Unix(1000, 0), ev) }

func (j *judged) node(name string) { j.move(name, "1", name[:1]) }

func (j *judged) move(name, version, zone string) {
	j.step(event.NodeSeen{Node: api.FromNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version, Labels: map[string]string{"zone": zone}}}, nil)})
}

// pod makes one: apart keeps away from those of its app in its zone, beside goes only where they are, even is spread;
// or from those of another app (apart y).
func (j *judged) pod(uid, version, app, kind, node string) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: uid, UID: types.UID(uid), ResourceVersion: version, Labels: map[string]string{"app": app}}, Spec: v1.PodSpec{SchedulerName: api.SchedulerName, NodeName: node}}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	if word, other, of := strings.Cut(kind, " "); of && word != "claim" {
		kind, selector.MatchLabels["app"] = word, other
	}
	terms := []v1.PodAffinityTerm{{TopologyKey: "zone", LabelSelector: selector}}
	switch kind {
	case "apart":
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
	case "beside":
		p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
	case "even":
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: selector}}
	}
	if claim, uses := strings.CutPrefix(kind, "claim "); uses { // that one pod at a time may use
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	}
	j.pods[uid] = api.FromPod(p, oncePod{}, api.Rules{})
	j.step(event.PodSeen{Pod: j.pods[uid]})
}

// unseen is a pod of app x that the pod watch has not shown.
func unseen(uid, kind string) *api.Pod {
	j := newJudged()
	j.pod(uid, "20", "x", kind, "")
	return j.pods[uid]
}

// oncePod has all claims used by one pod at a time.
type oncePod struct{}

func (oncePod) Volumes(p *v1.Pod) (reach api.Reach, why string) {
	for i := range p.Spec.Volumes {
		reach.OnePod = append(reach.OnePod, p.Spec.Volumes[i].PersistentVolumeClaim.ClaimName)
	}
	return reach, ""
}

func (oncePod) DeviceClass(string) string { return "" }

// rows writes a key: pod@version>node of each, and perhaps @ and the version of the node.
func (j *judged) rows(revision int64, rows ...string) {
	record := &wire.IntentsRecord{}
	for _, text := range rows {
		var uid, version, node, nodeVersion string
		fmt.Sscanf(strings.NewReplacer("@", " ", ">", " ").Replace(text), "%s %s %s %s", &uid, &version, &node, &nodeVersion)
		demand := &wire.Demand{}
		if p := j.pods[uid]; p != nil {
			demand.Repels = p.Class.Repels
		}
		record.Rows = append(record.Rows, &wire.IntentRow{PodUid: uid, PodResourceVersion: version, Namespace: "ns", Name: uid, Node: node, NodeResourceVersion: nodeVersion, Demand: uint32(len(record.Demands))})
		record.Demands = append(record.Demands, demand)
	}
	j.log(revision, record)
}

func (j *judged) log(revision int64, record *wire.IntentsRecord) {
	j.step(event.LogSeen{Revision: revision, Intents: []event.LoggedIntents{{Incarnation: "s", N: uint64(revision), Place: revision, Record: record}}})
}

// says is what a judgement of pods comes to, each written as in rows: ok, wait, or what is in the way.
func (j *judged) says(revision int64, rows ...string) string {
	var members []Member
	for _, text := range rows {
		m := Member{Namespace: "ns"}
		fmt.Sscanf(strings.NewReplacer("@", " ", ">", " ").Replace(text), "%s %s %s", &m.UID, &m.Version, &m.Node)
		m.Class = j.pods[m.UID].Class
		members = append(members, m)
	}
	switch v := j.Judge(revision, members); {
	case !v.Behind.None() && !v.Behind.Rises():
		return "wait in vain"
	case v.Wait:
		return "wait"
	case len(v.Against) > 0:
		return fmt.Sprint(v.Against, " ", v.Obstacle)
	}
	return "ok"
}

// TestUnfitTooEarly: where the log was not seen yet, those that may have relied on pods that were given up are not
// bound, and no others.
func TestUnfitTooEarly(t *testing.T) {
	j := newJudged()
	var left []Member
	for _, kind := range []string{"", "apart", "beside", "even"} {
		uid := "p-" + kind
		j.pod(uid, "10", "x", kind, "")
		left = append(left, Member{UID: uid, Namespace: "ns", Version: "10", Node: "a1", Class: j.pods[uid].Class})
	}
	if got, want := slices.Sorted(maps.Keys(j.Unfit(5, left))), []string{"p-beside", "p-even"}; !slices.Equal(got, want) {
		t.Errorf("%q are not to be bound, want %q", got, want)
	}
}

func TestJudge(t *testing.T) {
	for name, run := range judgements() {
		t.Run(name, func(t *testing.T) {
			if got, want := run(newJudged()); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

// judgements are the cases: what is said, and what is to be said.
func judgements() map[string]func(j *judged) (got, want string) {
	const avoids, avoided = "node(s) didn't match pod anti-affinity rules", "node(s) didn't satisfy existing pods anti-affinity rules"
	const inUse = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
	return map[string]func(j *judged) (got, want string){
		"the log was not seen up to the row": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "", "")
			return j.says(5, "p@10>a1"), "wait"
		},
		"an earlier row excludes": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "apart", "")
			j.pod("q", "11", "x", "", "")
			j.rows(5, "p@10>a1")
			j.rows(6, "q@11>a2")
			return j.says(6, "q@11>a2"), "[q] " + avoided
		},
		"a later row does not": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "apart", "")
			j.pod("q", "11", "x", "", "")
			j.rows(5, "q@11>a2")
			j.rows(6, "p@10>a1")
			return j.says(5, "q@11>a2") + ", " + j.says(6, "p@10>a1"), "ok, [p] " + avoids
		},
		"a later row does not, also if there is no other": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "apart", "")
			j.pod("q", "11", "x", "", "")
			j.rows(6, "q@11>a2")
			return j.says(5, "p@10>a1"), "ok"
		},
		"nor one whose pod is not known": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "apart", "")
			j.rows(5, "p@10>a1")
			j.rows(6, "z@20>a2")
			return j.says(5, "p@10>a1"), "ok"
		},
		"of two rows for one claim the earlier goes": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "claim c", "")
			j.pod("q", "11", "y", "claim c", "")
			j.rows(5, "p@10>a1")
			j.rows(6, "q@11>b1")
			return j.says(5, "p@10>a1") + ", " + j.says(6, "q@11>b1"), "ok, [q] " + inUse
		},
		"in one key as well": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "claim c", "")
			j.pod("q", "11", "y", "claim c", "")
			j.rows(5, "p@10>a1", "q@11>b1")
			return j.says(5, "p@10>a1") + ", " + j.says(5, "q@11>b1") + ", " + j.says(5, "p@10>a1", "q@11>b1"), "ok, [q] " + inUse + ", [q] " + inUse
		},
		"other claims do not matter": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "claim c", "")
			j.pod("q", "11", "x", "claim d", "")
			j.rows(5, "p@10>a1")
			j.rows(6, "q@11>a1")
			return j.says(6, "q@11>a1"), "ok"
		},
		"a claim is in use by whoever has a node, also one that is gone": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "claim c", "nowhere")
			j.pod("q", "11", "y", "claim c", "")
			j.rows(6, "q@11>b1")
			first := j.says(6, "q@11>b1")
			j.step(event.PodGone{UID: "p", Namespace: "ns", Name: "p"})
			return first + ", " + j.says(6, "q@11>b1"), "[q] " + inUse + ", ok"
		},
		"a row for the claim that is given up does not count": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "claim c", "")
			j.pod("q", "11", "y", "claim c", "")
			j.rows(5, "p@10>a1")
			j.rows(6, "q@11>b1")
			j.pod("p", "12", "x", "claim c", "")
			return j.says(6, "q@11>b1"), "ok"
		},
		"an earlier row of a pod that was not seen may be for the claim": func(j *judged) (string, string) {
			j.pod("q", "11", "y", "claim c", "")
			j.rows(5, "p@12>a1")
			j.rows(6, "q@11>b1")
			first := j.says(6, "q@11>b1")
			j.pod("p", "10", "x", "claim c", "") // an older version: its claims are the same
			return first + ", " + j.says(6, "q@11>b1"), "wait, [q] " + inUse
		},
		"of two rows in one key the first goes": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "apart", "")
			j.pod("q", "11", "x", "apart", "")
			j.rows(5, "p@10>a1", "q@11>a2")
			return j.says(5, "p@10>a1") + ", " + j.says(5, "q@11>a2"), "ok, [q] " + avoids
		},
		"a row that was deleted may have bound its pod": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "apart", "")
			j.pod("q", "11", "x", "", "")
			j.rows(5, "p@10>a1")
			j.log(5, nil)
			j.rows(6, "q@11>a2")
			return j.says(6, "q@11>a2"), "[q] " + avoided
		},
		"one that was given up may not": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "apart", "")
			j.pod("q", "11", "x", "", "")
			j.rows(5, "p@10>a1")
			j.log(5, &wire.IntentsRecord{GivenUp: []string{"p"}})
			j.rows(6, "q@11>a2")
			return j.says(6, "q@11>a2"), "ok"
		},
		"nor one whose pod is at another version": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "apart", "")
			j.pod("q", "11", "x", "", "")
			j.rows(5, "p@10>a1")
			j.pod("p", "12", "x", "apart", "")
			j.rows(6, "q@11>a2")
			return j.says(6, "q@11>a2"), "ok"
		},
		"of two rows of a pod the one at its version counts": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "apart", "")
			j.pod("q", "11", "x", "", "")
			j.rows(5, "p@10>a1")
			j.rows(6, "p@12>b1")
			j.pod("p", "12", "x", "apart", "")
			j.rows(7, "q@11>a2", "q@11>b1")
			return j.says(7, "q@11>a2") + ", " + j.says(7, "q@11>b1"), "ok, [q] " + avoided
		},
		"terms are known before the pod": func(j *judged) (string, string) {
			j.pod("q", "11", "x", "", "")
			j.pods["p"] = api.FromPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: v1.PodSpec{Affinity: &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{TopologyKey: "zone"}}}}}}, nil, api.Rules{})
			j.rows(5, "p@20>a1")
			j.rows(6, "q@11>a2")
			return j.says(6, "q@11>a2"), "wait"
		},
		"terms of pods of another namespace that are about their own do not matter": func(j *judged) (string, string) {
			apart := []v1.PodAffinityTerm{{TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{}}}
			z := api.FromPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other"}, Spec: v1.PodSpec{Affinity: &v1.Affinity{
				PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: apart}}}}, nil, api.Rules{})
			j.pod("q", "11", "x", "", "")
			j.log(5, &wire.IntentsRecord{Demands: []*wire.Demand{{Repels: z.Class.Repels}},
				Rows: []*wire.IntentRow{{PodUid: "z", PodResourceVersion: "20", Namespace: "other", Name: "z", Node: "a1"}}})
			j.rows(6, "q@11>a2")
			return j.says(6, "q@11>a2"), "ok"
		},
		"nor do those of a pod whose node is in no zone": func(j *judged) (string, string) {
			j.pods["z"] = unseen("z", "apart x")
			j.step(event.NodeSeen{Node: &api.Node{Name: "bare", ResourceVersion: "1"}})
			j.pod("q", "11", "x", "", "")
			j.rows(5, "z@20>bare")
			j.rows(6, "q@11>a2")
			return j.says(6, "q@11>a2"), "ok"
		},
		"nor do those of its own earlier row": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "apart", "")
			j.rows(5, "p@10>b9")
			j.rows(6, "p@10>a1")
			return j.says(6, "p@10>a1"), "ok"
		},
		"a pod that no constraint is about need not be seen as its row names it": func(j *judged) (string, string) {
			j.pod("r", "10", "y", "", "")
			j.rows(5, "r@20>a1")
			return j.says(5, "r@20>a1"), "ok"
		},
		"one with a constraint has to be seen": func(j *judged) (string, string) {
			j.pods["p"] = unseen("p", "apart")
			j.rows(5, "p@20>a1")
			return j.says(5, "p@20>a1"), "wait"
		},
		"one that is gone is not judged, for its Binding will be refused": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "apart", "")
			j.pod("q", "11", "x", "", "a2")
			j.step(event.PodGone{Namespace: "ns", UID: "p"})
			return j.says(1, "p@10>a1"), "ok"
		},
		"one with more labels than are read may be matched": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "apart", "a1")
			j.pod("u", "11", "y", "", "")
			u := *j.pods["u"]
			u.Unlisted, u.Labels = true, nil
			j.step(event.PodSeen{Pod: &u})
			j.rows(5, "u@11>a2")
			return j.says(5, "u@11>a2"), "[u] " + avoided
		},
		"labels of an earlier row's pod are waited for by who has terms": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "apart", "")
			j.pod("r", "10", "y", "", "")
			j.rows(5, "q@20>a1")
			j.rows(6, "p@10>a2", "r@10>b1")
			return j.says(6, "p@10>a2") + ", " + j.says(6, "r@10>b1"), "wait, ok"
		},
		"a node that was never seen may be in any zone": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "apart", "")
			j.pod("q", "11", "x", "", "")
			j.rows(5, "q@11>b2")
			j.pod("q", "12", "x", "", "b2")
			j.rows(6, "p@10>b1")
			before := j.says(6, "p@10>b1")
			j.node("b2")
			return before + ", " + j.says(6, "p@10>b1"), "wait, [p] " + avoids
		},
		"its own node, if it was never seen, may be in any zone": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "apart", "")
			j.pod("q", "11", "x", "", "")
			j.rows(5, "p@10>a1")
			j.rows(6, "q@11>b2")
			before := j.says(6, "q@11>b2")
			j.node("b2")
			return before + ", " + j.says(6, "q@11>b2"), "wait, ok"
		},
		"its own node, though no row of it is known": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "apart", "")
			return j.says(1, "p@10>b9"), "wait"
		},
		"a node that was not seen as a row's shard knew it may be in another zone": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "apart", "")
			j.pod("q", "11", "x", "", "")
			j.rows(5, "q@11>b1@30")
			j.rows(6, "p@10>a1@1")
			before := j.says(6, "p@10>a1")
			j.pod("q", "12", "x", "", "b1")
			bound := j.says(6, "p@10>a1")
			j.move("b1", "30", "a")
			return before + ", " + bound + ", " + j.says(6, "p@10>a1"), "wait, wait, [p] " + avoids
		},
		"its own node, too": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "apart", "")
			j.pod("q", "11", "x", "", "")
			j.rows(5, "p@10>a1@1")
			j.rows(6, "q@11>b1@30")
			before := j.says(6, "q@11>b1")
			j.move("b1", "31", "a")
			return before + ", " + j.says(6, "q@11>b1"), "wait, [q] " + avoided
		},
		"a row on such a node whose pod is gone is over": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "apart", "")
			j.pod("q", "11", "x", "", "")
			j.rows(5, "q@11>b1@30")
			j.pod("q", "12", "x", "", "b1")
			j.rows(6, "p@10>a1@1")
			before := j.says(6, "p@10>a1")
			j.step(event.PodGone{Namespace: "ns", UID: "q"})
			return before + ", " + j.says(6, "p@10>a1"), "wait, ok"
		},
		"a pod that was not seen as its row names it may have other labels": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "apart", "")
			j.pod("q", "11", "y", "", "")
			j.rows(5, "p@10>a1")
			j.rows(6, "q@20>a2")
			before := j.says(6, "q@20>a2")
			j.pod("q", "20", "x", "", "")
			return before + ", " + j.says(6, "q@20>a2"), "wait, [q] " + avoided
		},
		"a row supports nobody, a bound pod does": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "beside", "")
			j.pod("q", "11", "x", "", "")
			j.rows(5, "q@11>a1")
			j.rows(6, "p@10>a2")
			before := j.says(6, "p@10>a2")
			j.pod("q", "12", "x", "", "a1")
			return before + ", " + j.says(6, "p@10>a2"), "[p] node(s) didn't match pod affinity rules, ok"
		},
		"pods of one gang support each other, but not away from those that are there": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "beside", "")
			j.pod("q", "11", "x", "beside", "")
			j.rows(5, "p@10>b1", "q@11>b1")
			before := j.says(5, "p@10>b1", "q@11>b1")
			j.pod("r", "12", "x", "", "a1")
			return before + ", " + j.says(5, "p@10>b1", "q@11>b1"), "ok, [p q] node(s) didn't match pod affinity rules"
		},
		"two cannot both be the first of their app in different zones": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "beside", "")
			j.pod("q", "11", "x", "beside", "")
			j.rows(5, "p@10>a1")
			j.rows(6, "q@11>b1")
			return j.says(5, "p@10>a1") + ", " + j.says(6, "q@11>b1"), "ok, [q] node(s) didn't match pod affinity rules"
		},
		"a pod without constraints beside one that is spread": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "even", "")
			j.pod("r", "10", "y", "", "")
			j.rows(5, "p@10>a1", "r@10>b1")
			return j.says(5, "p@10>a1", "r@10>b1"), "ok"
		},
		"pods with more labels than are read are counted by a spread": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "even", "")
			j.pod("u", "11", "y", "", "a1")
			u := *j.pods["u"]
			u.Unlisted, u.Labels = true, nil
			j.step(event.PodSeen{Pod: &u})
			j.rows(5, "p@10>a2")
			return j.says(5, "p@10>a2"), "wait in vain"
		},
		"pods that fit one after another, and not in the end": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "even y", "")
			j.pod("q", "10", "y", "", "")
			j.pod("r", "10", "y", "", "")
			j.rows(5, "p@10>a1")
			j.rows(6, "q@10>a1", "r@10>a2")
			return j.says(6, "p@10>a1", "q@10>a1", "r@10>a2"), "ok"
		},
		"the minimum of a spread counts bound pods": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "even", "")
			j.pod("q", "11", "x", "even", "")
			j.pod("r", "12", "x", "even", "a1")
			j.rows(5, "q@11>b1")
			j.rows(6, "p@10>a2")
			before := j.says(6, "p@10>a2")
			j.Bound("ns", "q", "b1")
			return before + ", " + j.says(6, "p@10>a2"), "wait, ok"
		},
		"a row of a spread waits for those behind it, too": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "even", "")
			j.pod("q", "11", "x", "even", "")
			j.pod("r", "12", "x", "even", "a1")
			j.rows(5, "p@10>a2")
			before := j.says(5, "p@10>a2")
			j.rows(6, "q@11>b1")
			behind := j.says(5, "p@10>a2") + ", " + j.says(6, "q@11>b1")
			j.Bound("ns", "q", "b1")
			return before + ", " + behind + ", " + j.says(5, "p@10>a2"), "wait in vain, wait, ok, ok"
		},
		"also if they let in others first": func(j *judged) (string, string) {
			for _, uid := range []string{"p", "q", "s"} {
				j.pod(uid, "10", "x", "even", "")
			}
			j.pod("r", "12", "x", "even", "a1")
			j.rows(5, "q@10>b1")
			j.rows(6, "s@10>a1")
			j.rows(7, "p@10>a2")
			before := j.says(6, "s@10>a1") + ", " + j.says(7, "p@10>a2")
			j.Bound("ns", "q", "b1")
			return before + ", " + j.says(6, "s@10>a1") + ", " + j.says(7, "p@10>a2"), "wait, wait, ok, wait in vain"
		},
		"in vain, once they are given up": func(j *judged) (string, string) {
			j.pod("p", "10", "x", "even", "")
			j.pod("q", "11", "x", "even", "")
			j.pod("r", "12", "x", "even", "a1")
			j.rows(5, "q@11>b1")
			j.rows(6, "p@10>a2")
			before := j.says(6, "p@10>a2")
			j.log(5, &wire.IntentsRecord{GivenUp: []string{"q"}})
			return before + ", " + j.says(6, "p@10>a2"), "wait, wait in vain"
		},
		"of a Commit in two keys none waits": func(j *judged) (string, string) {
			for _, uid := range []string{"p", "q", "s"} {
				j.pod(uid, "10", "x", "even", "")
			}
			j.pod("r", "12", "x", "even", "a1")
			j.rows(5, "q@10>b1")
			j.rows(6, "p@10>a2")
			j.rows(7, "s@10>a2")
			return j.says(7, "p@10>a2", "s@10>a2"), "[p s] node(s) didn't match pod topology spread constraints"
		},
		"a gang is judged in the end": func(j *judged) (string, string) {
			for _, uid := range []string{"p", "q", "r", "s"} {
				j.pod(uid, "10", "x", "even", "")
			}
			j.rows(5, "p@10>a1", "q@10>a2", "r@10>b1", "s@10>b1")
			return j.says(5, "p@10>a1", "q@10>a2", "r@10>b1", "s@10>b1"), "ok"
		},
	}
}

// TestLogReadAnew: when the log is read again, nothing is judged until pods were listed after that: rows of pods that
// are bound now may have come and gone in between.
func TestLogReadAnew(t *testing.T) {
	j := logReadAnew()
	if got := j.says(8, "q@11>a2"); got != "wait" {
		t.Errorf("before the list: %s", got)
	}
	list := []*api.Pod{j.pods["p"], j.pods["q"]}
	j.step(event.PodsReplaced{Pods: list})
	if got := j.says(8, "q@11>a2"); got != "wait" {
		t.Errorf("after a list that was begun before: %s", got)
	}
	j.step(event.PodsReplaced{Pods: list, AfterLog: true})
	if got := j.says(8, "q@11>a2"); got != "ok" {
		t.Errorf("after the list: %s", got)
	}
}

// logReadAnew has q judged, whom p excludes, when the log has been read once more, and the row of p was not in it.
func logReadAnew() *judged {
	j := newJudged()
	j.pod("p", "10", "x", "apart", "")
	j.pod("q", "11", "x", "", "")
	j.rows(5, "p@10>a1")
	j.step(event.LogRead{Revision: 7})
	j.rows(8, "q@11>a2")
	return j
}

// Pods of one namespace that only wait here, with more different terms than are counted, do not keep a term from
// being heeded that a pod carries which another shard bound.
func TestTermsOfBoundPodsAreHeeded(t *testing.T) {
	j := newJudged()
	refused := 0
	for i := range 2 * countedByNamespace {
		uid := fmt.Sprint("w", i)
		j.pod(uid, "10", uid, "apart", "")
		if _, ok := j.RulesOf("ns", j.pods[uid].Class.With(j.pods[uid].Labels)); !ok {
			refused++
		}
	}
	j.pod("p", "11", "x", "apart", "a1")
	j.pod("q", "12", "x", "", "")
	j.rows(5, "q@12>a2@1")
	if got := j.says(5, "q@12>a2"); refused == 0 || got != "[q] node(s) didn't satisfy existing pods anti-affinity rules" || len(j.Excess) > 0 {
		t.Errorf("%d terms are refused, and the pod is judged: %s", refused, got)
	}
}
