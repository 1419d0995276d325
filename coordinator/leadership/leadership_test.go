package leadership

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/coordinator"
)

// The steps of a process: each line of a script is what became of the last step, and how long it took, with the step that follows.
func TestTerms(t *testing.T) {
	for _, c := range []struct{ name, script string }{
		{"a term ends by an error", `
			won -> lead
			runs -> lead
			failed -> resign
			resigned -> pause 250ms
			paused -> campaign`},
		{"the key cannot be given back", `
			won -> lead
			failed -> resign
			not-resigned -> pause 250ms`},
		{"terms go on to end early", `
			won -> lead
			failed -> resign
			resigned -> pause 250ms
			paused -> campaign
			won -> lead
			failed 4.9s -> resign
			resigned -> pause 500ms
			paused -> campaign
			won -> lead
			failed -> resign
			resigned -> pause 1s
			paused -> campaign
			won -> lead
			failed -> resign
			resigned -> pause 2s
			paused -> campaign
			won -> lead
			failed -> resign
			resigned -> pause 4s
			paused -> campaign
			won -> lead
			failed -> resign
			resigned -> pause 5s
			paused -> campaign
			won -> lead
			failed -> resign
			resigned -> pause 5s
			paused -> campaign
			won -> lead
			failed 5s -> resign
			resigned -> pause 250ms`},
		{"a campaign fails", `
			not-elected -> pause 500ms
			paused -> campaign
			not-elected -> pause 500ms`},
		{"the store is replaced while it campaigns", `
			replaced -> stop "start over: replaced"`},
		{"the store is replaced while it leads", `
			won -> lead
			runs -> lead
			replaced -> stop "start over: replaced"`},
		{"stopped while it campaigns", `
			stopped -> stop`},
		{"stopped as it wins", `
			won-stopping -> resign
			resigned -> stop`},
		{"stopped while it leads", `
			won -> lead
			stopped -> resign
			resigned -> stop`},
		{"stopped, and the key cannot be given back", `
			won -> lead
			stopped -> resign
			not-resigned -> stop "away"`},
		{"stopped while it pauses", `
			not-elected -> pause 500ms
			paused-stopping -> stop`},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, now, number := New(), time.Unix(0, 0), int64(0)
			for line := range strings.SplitSeq(strings.TrimSpace(c.script), "\n") {
				what, want, _ := strings.Cut(strings.TrimSpace(line), " -> ")
				what, took, _ := strings.Cut(what, " ")
				if d, err := time.ParseDuration(took); err == nil {
					now = now.Add(d)
				}
				end := func(e End) {
					if m.Step() == Campaign {
						m.NotElected(e)
					} else {
						m.Ended(now, e)
					}
				}
				switch what {
				case "won", "won-stopping":
					number++
					m.Won(now, number, what == "won-stopping")
				case "runs":
					m.Runs()
				case "failed", "not-elected":
					end(End{Err: errors.New("bad")})
				case "replaced":
					end(End{Err: errors.New("replaced"), Replaced: true})
				case "stopped":
					end(End{Err: errors.New("canceled"), Stopping: true})
				case "resigned":
					m.Resigned(nil)
				case "not-resigned":
					m.Resigned(errors.New("away"))
				case "paused", "paused-stopping":
					m.Paused(what == "paused-stopping")
				default:
					t.Fatalf("%q is not known", what)
				}
				got := m.Step().String()
				if m.Step() == Pause {
					got += " " + m.Wait().String()
				}
				if m.Step() == Stop && m.Err() != nil {
					got += fmt.Sprintf(" %q", m.Err())
				}
				if got != want {
					t.Fatalf("after %s: %s, want %s", what, got, want)
				}
			}
		})
	}
}

// A process is stuck when it keeps the leader key alive and no term runs, for longer than loading or resigning may take.
func TestStuck(t *testing.T) {
	m, now := New(), time.Unix(0, 0)
	is := func(what string, kept, stuck bool) {
		t.Helper()
		if err := m.Stuck(now, kept); (err != nil) != stuck || stuck && !errors.Is(err, ErrIdle) {
			t.Errorf("%s: %v", what, err)
		}
	}
	is("a standby", false, false)
	m.Won(now, 7, false)
	now = now.Add(LoadWithin)
	is("a term that loads its state", true, false)
	now = now.Add(IdleAtMost)
	is("a term that never begins", true, true)
	is("a term that never begins and has lost its lease", false, false)
	m.Runs()
	now = now.Add(time.Hour)
	is("a term", true, false)
	m.Ended(now, End{})
	now = now.Add(IdleAtMost - 1)
	is("a term that is over", true, false)
	now = now.Add(1)
	is("the leader key is kept alive without a term", true, true)
	is("a standby again", false, false)
}

func TestSuspicions(t *testing.T) {
	s := NewSuspicions()
	unanswered := func(who api.Incarnation) (down bool) {
		t.Helper()
		for call := 1; ; call++ {
			if !s.Called(who, false) {
				t.Fatalf("%s answered", who)
			}
			if s.Waited(who) {
				return call == calls
			}
		}
	}
	if !s.Suspect("a") || s.Suspect("a") {
		t.Error("a shard that is being called is called once")
	}
	s.Called("a", false)
	if s.Waited("a") {
		t.Error("down after one call")
	}
	if s.Called("a", true) || len(s.Down()) > 0 {
		t.Error("a shard that answers in the end is down")
	}
	for _, who := range []api.Incarnation{"b", "a"} {
		if !s.Suspect(who) || !unanswered(who) {
			t.Errorf("%s is not down after %d calls", who, calls)
		}
	}
	if got := fmt.Sprint(s.Down()); got != "[a b]" {
		t.Errorf("down: %s", got)
	}
	if s.Suspect("a") {
		t.Error("a shard that is down is called as a suspect, too")
	}
	for _, c := range []struct {
		who                      api.Incarnation
		registered, answered, up bool
		left                     string
	}{
		{"a", true, false, false, "[a b]"},
		{"a", true, true, true, "[b]"},
		{"b", false, false, false, "[]"},
	} {
		if up := s.Revised(c.who, c.registered, c.answered); up != c.up || fmt.Sprint(s.Down()) != c.left {
			t.Errorf("%+v: up %t, down %v", c, up, s.Down())
		}
	}
	s.Suspect("a")
	unanswered("a")
	s.TermBegins()
	if len(s.Down()) > 0 {
		t.Error("another term begins with shards that are down")
	}
}

// What the core hears of a list of shards: those that are new, have another address or are being drained, and those that are
// gone. Nothing of those that are as they were.
func TestMembers(t *testing.T) {
	shard := func(name, address string, draining bool) *wire.ShardRecord {
		return &wire.ShardRecord{Incarnation: name, Address: address, Draining: draining}
	}
	a, b := shard("a", "1", false), shard("b", "1", false)
	m := NewMembers([]*wire.ShardRecord{a, b})
	for _, c := range []struct {
		now  []*wire.ShardRecord
		want string
	}{
		{[]*wire.ShardRecord{a, b}, ""},
		{[]*wire.ShardRecord{b, a, shard("c", "1", false)}, "up c"},
		{[]*wire.ShardRecord{shard("a", "2", false), b, shard("c", "1", true)}, "up a, up c"},
		{[]*wire.ShardRecord{shard("a", "2", false), b, shard("c", "1", true)}, ""},
		{[]*wire.ShardRecord{shard("a", "2", false), shard("c", "1", false)}, "up c, down b"},
		{[]*wire.ShardRecord{b}, "up b, down a, down c"},
		{nil, "down b"},
		{nil, ""},
	} {
		var got []string
		for _, ev := range m.Changed(c.now) {
			switch ev := ev.(type) {
			case coordinator.ShardUp:
				got = append(got, "up "+ev.Record.Incarnation)
			case coordinator.ShardDown:
				got = append(got, "down "+string(ev.Incarnation))
			}
		}
		if got := strings.Join(got, ", "); got != c.want {
			t.Errorf("%v: %q, want %q", c.now, got, c.want)
		}
	}
}
