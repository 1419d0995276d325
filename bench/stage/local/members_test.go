package local_test

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/bench/stage/local/network"
)

// A store of three members, in namespaces where the machine has them, goes on without one and stops without two.
func TestEtcdOfThreeMembers(t *testing.T) {
	localtest.Etcd(t) // builds it
	root, err := local.Root()
	if err != nil {
		t.Fatal(err)
	}
	here := network.Place{Host: "127.0.0.1"}
	places := []network.Place{here, here, here}
	if n, err := network.New(); err != nil {
		t.Log("without namespaces:", err)
	} else {
		t.Cleanup(n.Close)
		for i, name := range []string{"a", "b", "c"} {
			if places[i], err = n.Join(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	members, err := local.StartEtcdMembers(t.Context(), local.EtcdOptions{Root: root, Dir: t.TempDir(), Name: "store", NoSync: true, Places: places})
	if err != nil {
		t.Fatal(err)
	}
	var endpoints []string
	for _, m := range members {
		t.Cleanup(func() { _ = m.Stop() })
		endpoints = append(endpoints, m.Endpoints()...)
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	put := func(ctx context.Context) error {
		one, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := c.Put(one, "key", "value")
		return err
	}
	localtest.Wait(t, time.Minute, "three members", put)
	members[0].Kill()
	localtest.Wait(t, time.Minute, "two members", put)
	members[1].Kill()
	if put(t.Context()) == nil {
		t.Error("one member of three wrote")
	}
	if err := errors.Join(members[0].Spawn(), members[1].Spawn()); err != nil {
		t.Fatal(err)
	}
	localtest.Wait(t, time.Minute, "the members that came back", put)
}
