package lab

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home"
	"basalt.dev/basalt/shard/node"
)

// TestShard: a shard alone reads the store, reserves, writes an intent, binds its pod, and deletes the intent.
func TestShard(t *testing.T) {
	x := NewShard("s", home.Config{Strict: true}, node.Config{Strict: true})
	w := Outside{Revision: 10}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	pod := &api.Pod{UID: "p", Namespace: "ns", Name: "p", ResourceVersion: "1", Created: now, Ours: true,
		Class: api.NewClass(api.Resources{{Resource: "cpu", Value: 1000}, {Resource: "pods", Value: 1}}, nil)}
	var did []string
	var todo []event.Event
	step := func(ev event.Event) {
		for todo = append(todo, ev, event.Drained{}); len(todo) > 0; {
			ev := todo[0]
			todo = todo[1:]
			err := x.Step(now, ev, func(o event.Output) {
				if b, is := o.(event.BindPod); is {
					bound := *pod
					bound.Node, bound.Gang, bound.ResourceVersion = b.Node, b.Gang, "2"
					todo = append(todo, event.PodSeen{Pod: &bound}, event.BindDone{Row: b.Row, Outcome: event.BindOK})
					did = append(did, "binds to "+b.Node)
				}
				if l, is := o.(event.ListPods); is {
					todo = append(todo, event.PodsReplaced{Sequence: l.Sequence})
				}
				answer, log, _ := w.Answer(x.Inc, o)
				if m, is := answer.(event.Message); is && m.Body.GetGranted() != nil {
					did = append(did, "is granted")
				}
				for _, seen := range log {
					did = append(did, fmt.Sprintf("logs %d rows", len(seen.Intents[0].Record.GetRows())))
					todo = append(todo, seen)
				}
				if answer != nil {
					todo = append(todo, answer)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	table := &api.Table{Epoch: 1, Revision: 10, Members: []api.Member{{Incarnation: "s", Name: "s"}}}
	for i := range table.Changed {
		table.Changed[i] = 1
	}
	for _, ev := range []event.Event{event.NamespaceSeen{Name: "ns"},
		event.NodeSeen{Node: &api.Node{Name: "n", UID: "n",
			Allocatable: api.Resources{{Resource: "cpu", Value: 4000}, {Resource: "pods", Value: 10}}}},
		event.LogRead{Revision: 10}, event.CoordinatorSeen{Term: 1, Incarnation: "c"},
		event.TableSeen{Table: table}, event.PodSeen{Pod: pod}} {
		step(ev)
	}
	for range 20 {
		now = now.Add(100 * time.Millisecond)
		step(event.Tick{})
	}
	if want := []string{"is granted", "logs 1 rows", "binds to n", "logs 0 rows"}; !slices.Equal(did, want) {
		t.Errorf("it %q, want %q", did, want)
	}
}

// TestOutside: what no shard of a quiet run asks for.
func TestOutside(t *testing.T) {
	w := Outside{Revision: 5}
	record := &wire.IntentsRecord{Rows: []*wire.IntentRow{{PodUid: "p"}}}
	_, log, _ := w.Answer("s", event.WriteIntents{N: 1, Record: record})
	if len(log) != 1 || log[0].Intents[0].Place != 6 {
		t.Errorf("a new key: %+v", log)
	}
	less := &wire.IntentsRecord{}
	answer, log, _ := w.Answer("heir", event.RewriteIntents{Incarnation: "s", N: 1, Record: less})
	if !answer.(event.IntentsRewritten).Done ||
		log[0].Revision != 7 || log[0].Intents[0].Place != 6 {
		t.Errorf("a key that is rewritten keeps its place: %+v, %+v", answer, log)
	}
	answer, log, _ = w.Answer("s", event.RewriteIntents{Incarnation: "s", N: 2})
	if answer.(event.IntentsRewritten).Done || log != nil {
		t.Errorf("a key that is not there: %+v, %+v", answer, log)
	}
	keys := []event.IntentKey{{N: 1}, {N: 2}}
	answer, log, _ = w.Answer("s", event.DeleteIntents{Keys: keys})
	if len(answer.(event.IntentsDeleted).Keys) != 2 || len(log) != 1 {
		t.Errorf("keys that are deleted, one of which is not there: %+v, %+v", answer, log)
	}
	answer, _, _ = w.Answer("s", event.ReadStore{Sequence: 3, MinRevision: 20})
	if answer.(event.StoreRead).Revision != 20 {
		t.Errorf("a read of a later revision: %+v", answer)
	}
	if answer, _, known := w.Answer("s", event.BindPod{}); known || answer != nil {
		t.Errorf("it binds pods: %+v", answer)
	}
}
