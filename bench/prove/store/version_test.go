package store

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// TestVersions: a process starts beside one of the next version, and not beside one of a version after that.
func TestVersions(t *testing.T) {
	cluster := localtest.Cluster(t, local.Options{Basalt: localtest.Basalt(t)})
	c, err := clientv3.New(clientv3.Config{Endpoints: cluster.ControlStore(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	announce := func(protocol uint32) {
		t.Helper()
		record, err := proto.Marshal(&wire.ShardRecord{Incarnation: "other", Name: "shard-9", Address: "127.0.0.1:1", Protocol: protocol, Version: "v9.9.9"})
		if err == nil {
			_, err = c.Put(t.Context(), "shards/other", string(record))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	announce(wire.Protocol + 2)
	b, err := cluster.StartShard(t.Context(), "shard-0", local.BasaltOptions{NoWait: true})
	if err != nil {
		t.Fatal(err)
	}
	localtest.Wait(t, patience, "the shard to refuse", func(context.Context) error {
		if text, _ := os.ReadFile(b.Log()); !b.Exited() || !strings.Contains(string(text), "basalt: shard-9 (v9.9.9) speaks protocol version ") {
			return fmt.Errorf("its log: %s", text)
		}
		return nil
	})
	announce(wire.Protocol + 1)
	all, err := cluster.StartBasalt(t.Context(), 1, 1, local.BasaltOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range all { // it owns nothing yet: shard-9 does not answer
		if b.Exited() {
			t.Errorf("%s does not start beside the next version: %v", b.Name(), b.Err())
		}
	}
}
