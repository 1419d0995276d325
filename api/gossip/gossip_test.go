package gossip

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"basalt.dev/basalt/api"
)

const limit = 30 * time.Second

func TestMain(m *testing.M) {
	code := m.Run()
	// A probe of memberlist's that is under way at Shutdown ends by itself.
	err := goleak.Find()
	for deadline := time.Now().Add(limit); err != nil && time.Now().Before(deadline); {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

type member struct {
	*Gossip
	t    *testing.T
	name api.Incarnation

	mu     sync.Mutex
	events []Event
}

func start(t *testing.T, name api.Incarnation, change func(*Options)) *member {
	t.Helper()
	m := &member{t: t, name: name}
	o := Options{
		Incarnation: name, Bind: "127.0.0.1:0", RejoinEvery: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Meta: Meta{Name: string(name) + "-0", Address: string(name) + ":1"},
	}
	if change != nil {
		change(&o)
	}
	var err error
	if m.Gossip, err = New(o, func(e Event) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.events = append(m.events, e)
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.stop() })
	return m
}

func (m *member) wait(what string, ok func() bool) {
	m.t.Helper()
	deadline := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(deadline) {
			m.t.Fatalf("%s waited for %s: members %+v, events %+v", m.name, what, m.Members(), m.events)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (m *member) sees(want ...api.Incarnation) bool {
	var names []api.Incarnation
	for _, o := range m.Members() {
		names = append(names, o.Incarnation)
	}
	return slices.Equal(names, want)
}

func (m *member) heard(kind Kind, who api.Incarnation) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.events, func(e Event) bool { return e.Kind == kind && e.Member.Incarnation == who })
}

func addresses(all ...*member) func() []string {
	return func() (out []string) {
		for _, m := range all {
			out = append(out, m.Address())
		}
		return out
	}
}

func TestDeathIsHeard(t *testing.T) {
	a, b, c := start(t, "a", nil), start(t, "b", nil), start(t, "c", nil)
	for _, m := range []*member{a, b, c} {
		m.Rejoin(addresses(a, b, c))
	}
	a.wait("all", func() bool { return a.sees("b", "c") })
	b.wait("all", func() bool { return b.sees("a", "c") })
	c.wait("all", func() bool { return c.sees("a", "b") })
	if m := b.Members()[0]; m.Meta != (Meta{Name: "a-0", Address: "a:1"}) || m.Gossip != a.Address() {
		t.Errorf("b knows %+v of a", m)
	}

	if err := a.announce(Meta{Name: "a-0", Address: "a:2"}); err != nil {
		t.Fatal(err)
	}
	b.wait("news of a", func() bool { return b.heard(Changed, "a") && b.Members()[0].Meta.Address == "a:2" })

	if err := c.stop(); err != nil { // without a word
		t.Fatal(err)
	}
	a.wait("the death", func() bool { return a.heard(Dead, "c") && a.sees("b") })
	b.wait("the death", func() bool { return b.heard(Dead, "c") && b.sees("a") })
	if err := b.Close(); err != nil { // in order
		t.Fatal(err)
	}
	a.wait("the leave", func() bool { return a.heard(Dead, "b") && a.sees() })
	if a.heard(Alive, "a") {
		t.Error("a heard of itself")
	}
}

// Two clusters that never heard of each other, which is what a split that healed is like.
func TestRejoinJoinsTwoHalves(t *testing.T) {
	a, b, c, d := start(t, "a", nil), start(t, "b", nil), start(t, "c", nil), start(t, "d", nil)
	a.join([]string{b.Address()})
	c.join([]string{d.Address()})
	a.wait("its half", func() bool { return a.sees("b") && b.sees("a") && c.sees("d") && d.sees("c") })
	a.Rejoin(func() []string { return append(addresses(a, b, c, d)(), "", "127.0.0.1:1", "no address") })
	for _, m := range []*member{a, b, c, d} {
		m.wait("all", func() bool { return len(m.Members()) == 3 })
	}
}

// A member that comes back under the same name is another incarnation: it is no conflict.
func TestRestartIsAnotherMember(t *testing.T) {
	a, b := start(t, "a", nil), start(t, "b-1", nil)
	at := b.Address()
	a.Rejoin(func() []string { return []string{at} })
	a.wait("the first", func() bool { return a.sees("b-1") })
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	start(t, "b-2", func(o *Options) { o.Bind = at })
	a.wait("the second", func() bool { return a.sees("b-2") && a.heard(Dead, "b-1") })
}

func TestStrangersStayOutside(t *testing.T) {
	key, other := []byte("0123456789abcdef"), []byte("fedcba9876543210")
	with := func(key []byte, label string) func(*Options) {
		return func(o *Options) {
			if o.Label = label; key != nil {
				o.KeyFile = keyFile(t, key)
			}
		}
	}
	a, b := start(t, "a", with(key, "one")), start(t, "b", with(key, "one"))
	a.Rejoin(addresses(b))
	a.wait("its like", func() bool { return a.sees("b") && b.sees("a") })
	for i, s := range []func(*Options){with(nil, "one"), with(other, "one"), with(key, "two"), with(nil, "")} {
		m := start(t, api.Incarnation(fmt.Sprint("stranger", i)), s)
		for _, to := range []*member{a, b} {
			if _, err := m.list.Join([]string{to.Address()}); err == nil {
				t.Errorf("%s joined %s", m.name, to.name)
			}
			if _, err := to.list.Join([]string{m.Address()}); err == nil {
				t.Errorf("%s joined %s", to.name, m.name)
			}
		}
		if !m.sees() || !a.sees("b") || !b.sees("a") {
			t.Errorf("%s knows %v, a knows %v, b knows %v", m.name, m.Members(), a.Members(), b.Members())
		}
	}
}

func TestNewSaysWhatIsWrong(t *testing.T) {
	for want, o := range map[string]Options{
		"no incarnation": {Bind: "127.0.0.1:0"},
		"3 bytes":        {Incarnation: "a", Bind: "127.0.0.1:0", KeyFile: keyFile(t, []byte("key"))},
		"no such file":   {Incarnation: "a", Bind: "127.0.0.1:0", KeyFile: "/nowhere/key"},
		"missing port":   {Incarnation: "a", Bind: "127.0.0.1"},
		"not a port":     {Incarnation: "a", Bind: "127.0.0.1:http"},
		"advertised":     {Incarnation: "a", Bind: "127.0.0.1:0", Advertise: "nowhere"},
		"too long":       {Incarnation: "a", Bind: "127.0.0.1:0", Meta: Meta{Name: strings.Repeat("x", 600)}},
	} {
		g, err := New(o, nil)
		if err == nil {
			err = errors.Join(errors.New("no error"), g.stop())
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not name %q", err, want)
		}
	}
}

// announce spreads new metadata.
func (m *member) announce(meta Meta) error {
	if err := m.setMeta(meta); err != nil {
		return err
	}
	return m.list.UpdateNode(limit)
}
