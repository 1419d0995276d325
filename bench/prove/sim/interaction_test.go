package sim

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/prove/script"
)

// TestInteraction plays the scripts of testdata/interaction: conversations with a whole Basalt, and what its processes said and
// wrote. They are what a newcomer reads first. A cluster of two shards, two coordinators and nine nodes is up when a script begins,
// and nothing goes wrong unless the script says so; the judge of the simulator looks on. The commands:
//
//	gang NAME COUNT QUEUE          a PodGroup with minCount COUNT, and its pods
//	run DURATION                   lets time pass
//	until TEXT                     lets time pass until a line with TEXT is logged, and stops right there
//	stabilize                      lets time pass until nothing has been logged for 5 s
//	lose answer|request PROC SERVER  the next answer or request between a process and store or api is lost
//	status                         what queues are charged, where the pods of PodGroups are, and the PodGroups' conditions
//	quiet COMMAND                  prints nothing of what COMMAND brings about
//
// and every line of a script of the simulator (act.go): queue, limits, pod, finish, delete, crash, pause, cut, split, ...
func TestInteraction(t *testing.T) {
	script.RunIn(t, "testdata/interaction", func(t *testing.T) script.Player {
		p := newConversation()
		return func(where, command string) (out []string) {
			defer func() {
				if failed := recover(); failed != nil {
					t.Fatalf("%s: %v\n%s", where, failed, strings.Join(p.lines, "\n"))
				}
			}()
			return p.play(command)
		}
	})
}

// TestEvictUnread plays a script without the read before an eviction: the judge sees pods evicted that an heir has bound. It
// needs -tags faults.
func TestEvictUnread(t *testing.T) {
	if !fault.Built {
		t.Skip("built without bugs: go test -tags faults")
	}
	const want = "of gang wide#13, which is not closing"
	text, err := os.ReadFile("testdata/interaction/7_lagging_home_evicts_nothing.txt")
	if err != nil {
		t.Fatal(err)
	}
	fault.Set(fault.EvictUnread)
	defer fault.Set()
	defer func() {
		if failed := fmt.Sprint(recover()); !strings.Contains(failed, want) {
			t.Errorf("the judge found %q, want an eviction %q", failed, want)
		}
	}()
	p := newConversation()
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "#") {
			p.play(strings.TrimSpace(line))
		}
	}
}

// conversation is a world, and the lines that it logged since the last command.
type conversation struct {
	w     *world
	lines []string
}

// Write takes a line of the log, without its step and its time.
func (p *conversation) Write(line []byte) (int, error) {
	p.lines = append(p.lines, strings.TrimRight(string(line[17:]), " \n"))
	return len(line), nil
}

// newConversation begins with a cluster that is up.
func newConversation() *conversation {
	p := &conversation{w: newWorld(Config{Script: &Script{Jitter: 6}, Tail: 10})}
	p.w.cfg.Out = p
	p.w.begin()
	for _, name := range []string{"s0", "s1"} {
		p.w.act("shard " + name)
	}
	p.quietFor(5 * time.Second)
	return p
}

// play carries a command out and returns what was logged, nothing for a quiet one.
func (p *conversation) play(command string) []string {
	p.lines = nil
	rest, quiet := strings.CutPrefix(command, "quiet ")
	if p.do(rest); quiet {
		return nil
	}
	return p.lines
}

func (p *conversation) do(command string) {
	w, f := p.w, strings.Fields(command)
	switch f[0] {
	case "gang":
		var least int
		if _, err := fmt.Sscan(f[2], &least); err != nil {
			w.fail("%q: %v", command, err)
		}
		w.act(fmt.Sprintf("podgroup %s queue %s least %d", f[1], f[3], least))
		for i := range least {
			w.act(fmt.Sprintf("pod %s-%d group %s", f[1], i, f[1]))
		}
	case "run":
		d, err := time.ParseDuration(f[1])
		if err != nil {
			w.fail("%q: %v", command, err)
		}
		p.run(d, func() bool { return false })
	case "until":
		text := strings.TrimPrefix(command, "until ")
		if !p.run(2*time.Minute, func() bool {
			return slices.ContainsFunc(p.lines, func(l string) bool { return strings.Contains(l, text) })
		}) {
			w.fail("%q did not happen", text)
		}
	case "stabilize":
		p.quietFor(5 * time.Second)
	case "lose":
		w.script.waits[f[1]+"-lost "+string(w.named(f[2]).inc)+" "+f[3]] = []wait{{at: w.now.Sub(w.start) - 1}} // the next
	case "status":
		p.status()
	default:
		w.act(command)
	}
}

// run lets time pass until done says so, and reports whether it did.
func (p *conversation) run(most time.Duration, done func() bool) bool {
	for until := p.w.now.Add(most); len(p.w.events) > 0 && !p.w.events[0].at.After(until); {
		if p.w.next(); done() {
			return true
		}
	}
	return false
}

// quietFor lets time pass until nothing has been logged for so long.
func (p *conversation) quietFor(d time.Duration) {
	for most := 100; most > 0; most-- {
		before := len(p.lines)
		p.run(d, func() bool { return false })
		if len(p.lines) == before {
			return
		}
	}
	p.w.fail("it does not become quiet")
}

func (p *conversation) status() {
	w := p.w
	say := func(format string, args ...any) { p.lines = append(p.lines, fmt.Sprintf(format, args...)) }
	for _, r := range w.store.reservations() {
		say("queue %s is charged %v for gang %s", r.Gang.Queue, amounts(r.Demand), r.Gang.Uid)
	}
	for _, name := range slices.Sorted(maps.Keys(w.api.groups.objects)) {
		g := w.api.groups.objects[name].Object.(*v1beta1.PodGroup)
		where := map[string]int{}
		for _, o := range w.api.pods.objects {
			if pod := o.Object.(*corev1.Pod); w.check.groupName(pod) == g.Name {
				where[pod.Spec.NodeName]++
			}
		}
		var on []string
		for _, node := range slices.Sorted(maps.Keys(where)) {
			on = append(on, fmt.Sprintf("%d on %s", where[node], cmp.Or(node, "no node")))
		}
		say("gang %s: %s", g.UID, strings.Join(on, ", "))
		if g.Status != nil {
			for _, c := range g.Status.Conditions {
				say("  %s %s %s: %s", c.Type, c.Status, c.Reason, c.Message)
			}
		}
	}
}
