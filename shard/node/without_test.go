package node

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"basalt.dev/basalt/api"
)

// small is a pod of a small world: it repels those of an app, or is to be spread or requires others of its app.
type small struct {
	uid, node, app, repels, key, kind string
	cpu, port                         int
	leaves                            bool
}

func (p *small) words() string {
	w := fmt.Sprintf("cpu=%d app=%s", p.cpu, p.app)
	if p.repels != "" {
		w += " repels=" + p.repels + " topology=" + p.key
	}
	if p.port > 0 {
		w += fmt.Sprintf(" port=%d", p.port)
	}
	if p.kind != "" {
		w += " " + p.kind + "=zone:" + p.app
	}
	return w
}

// smallNodes are the nodes of a small world, with 4 CPUs each, by their zone.
var smallNodes = map[string]string{"n1": "z1", "n2": "z1", "n3": "z2"}

// naive reports whether a pod fits a node beside others, by the rules of kube-scheduler.
func (p *small) naive(node string, others []*small) bool {
	domain := func(at, key string) string {
		if key == api.LabelHostname {
			return at
		}
		return smallNodes[at]
	}
	free, in, all := 4, map[string]int{"z1": 0, "z2": 0}, 0
	for _, o := range others {
		if o.node == node {
			if free -= o.cpu; o.port > 0 && o.port == p.port {
				return false
			}
		}
		if p.repels == o.app && domain(node, p.key) == domain(o.node, p.key) ||
			o.repels == p.app && domain(node, o.key) == domain(o.node, o.key) {
			return false
		}
		if o.app == p.app {
			in[smallNodes[o.node]]++
			all++
		}
	}
	switch here := in[smallNodes[node]]; p.kind {
	case "spread":
		return free >= p.cpu && here+1-min(in["z1"], in["z2"]) <= 1
	case "beside":
		return free >= p.cpu && (here > 0 || all == 0)
	}
	return free >= p.cpu
}

// What a node shard says of room without others, and what it promises, is what kube-scheduler's rules say of each node
// without the pods there that leave.
func TestRoomWithoutOthers(t *testing.T) {
	pick := func(r *rand.Rand, of ...string) string { return of[r.IntN(len(of))] }
	draw := func(r *rand.Rand, uid, node string) *small {
		p := &small{uid: uid, node: node, app: pick(r, "a", "b"), cpu: 1 + r.IntN(2), leaves: r.IntN(3) > 0}
		if r.IntN(3) == 0 {
			p.repels, p.key = pick(r, "a", "b"), pick(r, "zone", api.LabelHostname)
		}
		if r.IntN(3) == 0 {
			p.port = 80
		}
		return p
	}
	promised, barred := 0, 0
	for seed := range uint64(600) {
		r, s := rand.New(rand.NewPCG(seed, 1)), newScript(t)
		s.run("table 5 a:n1,n2,n3 home:q")
		for _, node := range api.SortedKeys(smallNodes) {
			s.run("node " + node + " cpu=4 label=zone:" + smallNodes[node])
		}
		s.run("store 1 5")
		s.run("pods 1")
		var there []*small
		for i := range r.IntN(7) {
			p := draw(r, fmt.Sprint("v", i), pick(r, "n1", "n2", "n3"))
			if p.naive(p.node, there) {
				there = append(there, p)
				line := fmt.Sprintf("pod %s@%s %s bound=%s", p.uid, p.node, p.words(), p.uid)
				s.run(line)
			}
		}
		p := draw(r, "p", "")
		p.cpu, p.kind = 1+r.IntN(4), pick(r, "", "", "spread", "beside")
		candidates, awaits, fitsNow, wants := "", []string{"none"}, false, []string(nil)
		for _, o := range there {
			if o.leaves {
				candidates, awaits = candidates+" "+o.uid, append(awaits, o.uid)
			}
		}
		without := func(node string, gone func(*small) bool) []*small {
			return slices.DeleteFunc(slices.Clone(there), func(o *small) bool { return o.node == node && gone(o) })
		}
		for _, node := range []string{"n1", "n2", "n3"} {
			fitsNow = fitsNow || p.naive(node, there)
			if p.naive(node, without(node, func(o *small) bool { return o.leaves })) {
				wants = append(wants, node)
			}
		}
		answer := strings.Join(s.run("rooms 1 c"+candidates+" "+p.words()), "\n")
		for _, node := range []string{"n1", "n2", "n3"} {
			if got := strings.Contains(answer, node+"("); got != slices.Contains(wants, node) {
				t.Fatalf("seed %d: %+v on %s beside %s: %s", seed, p, node, listed(there), answer)
			}
		}
		// Once all who bar the pod are gone, only room can keep it from a node, and each of them does until then.
		light := *p
		light.cpu = 0
		for _, part := range strings.Split(answer, " n")[1:] {
			node, gone := "n"+part[:1], map[string]bool{}
			for _, o := range there {
				_, rest, _ := strings.Cut(part, o.uid+"=1(")
				_, rest, _ = strings.Cut(rest, ")")
				gone[o.uid] = strings.HasPrefix(rest, " bars")
			}
			if !light.naive(node, without(node, func(o *small) bool { return gone[o.uid] })) {
				t.Fatalf("seed %d: %+v on %s beside %s: without %v it does not fit: %s", seed, p, node, listed(there), gone, answer)
			}
			for uid, is := range gone {
				if !is {
					continue
				}
				barred++
				if light.naive(node, without(node, func(o *small) bool { return gone[o.uid] && o.uid != uid })) {
					t.Fatalf("seed %d: %+v on %s beside %s: %s is not in the way: %s", seed, p, node, listed(there), uid, answer)
				}
			}
		}
		line := "hold c p serial=1 " + p.words() + " awaits=" + strings.Join(awaits, ",")
		reply := strings.Join(s.run(line), "\n")
		if got, want := strings.Contains(reply, "promised="), !fitsNow && len(wants) > 0; got != want {
			t.Fatalf("seed %d: %+v beside %s: %s, want a promise: %v", seed, p, listed(there), reply, want)
		} else if !got {
			continue
		}
		promised++
		for _, o := range there { // and it is kept
			if o.leaves {
				s.run("podgone " + o.uid)
			}
		}
		if h := s.core.gangs; len(h) == 0 || strings.Contains(strings.Join(s.run("promises"), ""), "waits") {
			t.Fatalf("seed %d: %+v beside %s: the promise is no hold", seed, p, listed(there))
		}
	}
	if promised < 50 || barred < 50 {
		t.Errorf("%d promises and %d in the way: too few to tell", promised, barred)
	}
}

func listed(list []*small) (out string) {
	for _, p := range list {
		out += fmt.Sprintf("[%s@%s leaves %v %s] ", p.uid, p.node, p.leaves, p.words())
	}
	return out
}
