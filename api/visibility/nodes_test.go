package visibility

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// TestNodes: the answers of shards become one, and one that does not answer, or answers nonsense, is said to.
func TestNodes(t *testing.T) {
	const none, unknown = api.ShareOfNone, api.ShareUnknown
	replies := map[string]*wire.NodesReply{
		"i-a": {Resources: []string{"cpu", "example.com/gpu"}, Nodes: []string{"n2", "n1"},
			Free: []byte{50, 0, unknown, unknown}},
		"i-b": {Resources: []string{"a/b", "cpu", "memory"}, Nodes: []string{"n0"}, Free: []byte{none, 100, 7}, More: 3},
		"i-d": {Resources: []string{"cpu"}, Nodes: []string{"n8", "n9"}, Free: []byte{1}},
	}
	store := &control{}
	for _, name := range []string{"d", "c", "b", "a"} {
		store.shards = append(store.shards, record(name, false))
	}
	ask := func(_ context.Context, who api.Incarnation, _ string) (*wire.NodesReply, error) {
		if r := replies[string(who)]; r != nil {
			return r, nil
		}
		return nil, errors.New("silent")
	}
	said, err := CollectNodes(t.Context(), store, ask)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(said)
	const want = `{"resources":["cpu","memory","a/b","example.com/gpu"],"nodes":[{"name":"n0","free":[100,7,-1,-1]},` +
		`{"name":"n1","outOfSync":true},{"name":"n2","free":[50,-1,-1,0]},{"name":"n8","free":[1,-1,-1,-1]},` +
		`{"name":"n9","outOfSync":true}],"moreNodes":3,"silent":["c"]}`
	if string(text) != want {
		t.Errorf("%s\nwant\n%s", text, want)
	}

	many := &wire.NodesReply{}
	for i := range 100_000 {
		many.Nodes = append(many.Nodes, fmt.Sprintf("%s%06d", strings.Repeat("x", 247), i))
	}
	for i := range 20 {
		many.Resources = append(many.Resources, fmt.Sprintf("r%02d", i))
	}
	many.Free = make([]byte, len(many.Nodes)*len(many.Resources))
	replies = map[string]*wire.NodesReply{"i-a": many}
	if said, err = CollectNodes(t.Context(), store, ask); err != nil {
		t.Fatal(err)
	}
	text, _ = json.Marshal(said)
	if len(text) > MaxAnswer || said.MoreNodes == 0 || len(said.Resources) != maxNodeResources {
		t.Errorf("%d bytes, %d nodes more, %d resources", len(text), said.MoreNodes, len(said.Resources))
	}
}
