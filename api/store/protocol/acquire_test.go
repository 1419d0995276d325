package protocol

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"basalt.dev/basalt/api/wire"
)

// The steps of a campaign and of a registration: each line of a script is what became of the last step, with the step that follows.
func TestAcquire(t *testing.T) {
	names := map[AcquireStep]string{AwaitAbsent: "await", GrantLease: "grant", CreateKey: "create", RevokeLease: "revoke", WaitAgain: "wait", Acquired: "acquired", NotAcquired: "failed"}
	for _, c := range []struct{ name, script string }{
		{"campaign: won at once", `
			absent -> grant
			granted -> create
			created -> acquired`},
		{"campaign: another was faster", `
			absent -> grant
			granted -> create
			theirs -> revoke
			revoked -> await
			absent -> grant
			granted -> create
			created -> acquired`},
		{"campaign: an earlier try of ours landed", `
			absent -> grant
			granted -> create
			ours -> acquired`},
		{"campaign: the lease ran out", `
			absent -> grant
			granted -> create
			gone -> revoke
			revoked -> wait
			waited -> await`},
		{"campaign: the fate of the try is open", `
			absent -> grant
			granted -> create
			error -> revoke
			revoked -> wait
			waited -> await`},
		{"campaign: an error that stays", `
			absent -> grant
			granted -> create
			final -> revoke
			revoked -> failed "bad"`},
		{"registration: at once", `
			granted -> create
			created -> acquired`},
		{"registration: the lease ran out before its first use", `
			granted -> create
			gone -> grant
			granted -> create
			created -> acquired`},
		{"registration: somebody else's", `
			granted -> create
			theirs -> failed "this incarnation is registered already: a"`},
		{"registration: an error", `
			granted -> create
			final -> failed "bad"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := NewCampaign("", &wire.LeaderRecord{Incarnation: "c"})
			if strings.HasPrefix(c.name, "registration") {
				m, err = NewRegistration("", &wire.ShardRecord{Incarnation: "a"})
			}
			if err != nil {
				t.Fatal(err)
			}
			id := int64(0)
			for line := range strings.SplitSeq(strings.TrimSpace(c.script), "\n") {
				what, want, _ := strings.Cut(strings.TrimSpace(line), " -> ")
				switch what {
				case "absent":
					m.Absent()
				case "granted":
					id++
					m.Granted(id, time.Second, time.Time{})
				case "created":
					m.Create().Answered(Result{Succeeded: true, Revision: 7})
					m.Created(nil, false)
				case "ours":
					m.Create().Answered(Result{Reads: []Read{{Keys: []KV{{Key: m.Key(), Create: 6, Lease: id}}}}})
					m.Created(nil, false)
				case "theirs":
					m.Create().Answered(Result{Reads: []Read{{Keys: []KV{{Key: m.Key(), Create: 6, Lease: id + 1}}}}})
					m.Created(nil, false)
				case "gone":
					m.Create().Answered(Result{Failure: LeaseGone})
					m.Created(nil, false)
				case "error", "final":
					m.Created(errors.New("bad"), what == "final")
				case "revoked":
					m.Revoked()
				case "waited":
					m.Waited()
				default:
					t.Fatalf("%q is not known", what)
				}
				got := names[m.Step()]
				if m.Step() == NotAcquired {
					got += fmt.Sprintf(" %q", m.Err())
				}
				if got != want {
					t.Fatalf("after %s: %s, want %s", what, got, want)
				}
			}
		})
	}
	if _, err := NewRegistration("", &wire.ShardRecord{}); err == nil {
		t.Error("a shard without an incarnation is registered")
	}
}

// Only the store's word ends the lease of a session; that of a term ends, too, when it was not confirmed for as long as it lasts.
func TestLease(t *testing.T) {
	campaign, err := NewCampaign("", &wire.LeaderRecord{Incarnation: "c"})
	if err != nil {
		t.Fatal(err)
	}
	registration, err := NewRegistration("", &wire.ShardRecord{Incarnation: "a"})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Unix(0, 0)
	for _, m := range []*Acquire{campaign, registration} {
		l := m.Granted(3, 3*time.Second, began)
		if l.ID() != 3 || l.Every() != time.Second {
			t.Errorf("lease %d, every %s", l.ID(), l.Every())
		}
		for _, c := range []struct {
			asked, now time.Duration
			answer     KeepAlive
			want       error // of a term
		}{
			{time.Second, 2 * time.Second, Unanswered, nil},
			{2 * time.Second, 3*time.Second - 1, Unanswered, nil},
			{2 * time.Second, 3 * time.Second, Unanswered, errLeaseUnconfirmed},
			{3 * time.Second, 10 * time.Second, KeptAlive, nil},
			{4 * time.Second, 6*time.Second - 1, Unanswered, nil},
			{5 * time.Second, 6 * time.Second, Unanswered, errLeaseUnconfirmed}, // confirmed as of when it was asked
		} {
			want := c.want
			if m == registration {
				want = nil
			}
			if over := l.Kept(began.Add(c.asked), began.Add(c.now), c.answer); !errors.Is(over, want) || want == nil && over != nil {
				t.Errorf("%+v: %v", c, over)
			}
		}
		if over := l.Kept(began, began, LeaseOver); !errors.Is(over, errLeaseGone) {
			t.Errorf("a lease that the store does not have: %v", over)
		}
	}
}

// A store that finds a transaction too large has not written it; whether it wrote one whose answer was lost before nobody knows.
func TestTooLarge(t *testing.T) {
	x := NewSession("", "a", 1, 2, Value{})
	m, err := x.WriteIntents(3, &wire.IntentsRecord{Rows: []*wire.IntentRow{{PodUid: "p"}}}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	refused := errors.New("request is too large")
	var record *RecordError
	if err := m.TooLarge(refused); !errors.As(err, &record) || record.Key != "intents/a/0000000000000003" || !errors.Is(err, ErrTooLarge) || !errors.Is(err, refused) {
		t.Errorf("at once: %v", err)
	}
	m.Lost()
	if err := m.TooLarge(refused); errors.As(err, &record) || !errors.Is(err, ErrUnsettled) || !errors.Is(err, refused) {
		t.Errorf("after a lost try: %v", err)
	}
	if err := m.TooLarge(nil); err != nil {
		t.Errorf("not refused: %v", err)
	}
}
