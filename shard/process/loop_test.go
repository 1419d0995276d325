package process

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"basalt.dev/basalt/shard/event"
)

func TestRefusedBindings(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for _, c := range []struct {
		err     error
		refused bool
	}{
		{nil, false},
		{apierrors.NewConflict(pods, "p", errors.New("it moved")), false},
		{apierrors.NewNotFound(pods, "p"), false},
		{errors.New("connection reset"), false},
		{apierrors.NewServerTimeout(pods, "create", 1), false},
		{apierrors.NewForbidden(pods, "p", errors.New("policy denied request")), true},
		{apierrors.NewInvalid(schema.GroupKind{Kind: "Binding"}, "p", nil), true},
		{apierrors.NewInternalError(errors.New("failed calling webhook")), true},
		{apierrors.NewBadRequest("denied by a webhook"), true},
	} {
		if got := refusedBinding(c.err); got != c.refused {
			t.Errorf("%v: %t", c.err, got)
		}
	}
}

// What is posted after a pause comes then, and what comes meanwhile does not wait for it.
func TestPostAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &loop{inbox: make(chan item, 2)}
		l.postAfter(t.Context(), refusedPause, event.BindDone{Outcome: event.BindUnknown})
		l.postAfter(t.Context(), 0, event.BindDone{Outcome: event.BindOK})
		began := time.Now()
		for _, want := range []struct {
			outcome event.BindOutcome
			at      time.Duration
		}{{event.BindOK, 0}, {event.BindUnknown, refusedPause}} {
			got := (<-l.inbox).events[0].(event.BindDone)
			if at := time.Since(began); got.Outcome != want.outcome || at != want.at {
				t.Errorf("%v after %s, want %+v", got.Outcome, at, want)
			}
		}
	})
}
