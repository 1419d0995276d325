package conformance

import (
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/bench/prove/script"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

func TestMain(m *testing.M) { localtest.Run(m) }

func etcdClient(t *testing.T) *clientv3.Client {
	client, err := clientv3.New(clientv3.Config{Endpoints: localtest.Etcd(t).Endpoints(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func apiClients(t *testing.T) *kube.Clients {
	cluster := localtest.Shared(t)
	clients, err := kube.ConnectConfig(cluster.Config("admin"), "conformance")
	if err != nil {
		t.Fatal(err)
	}
	return clients
}

// TestScripts puts the scripts to the models and to a real etcd and a real API server, and keeps the answers that are
// written in them.
func TestScripts(t *testing.T) {
	client, clients := etcdClient(t), apiClients(t)
	script.Run(t, func(t *testing.T) script.Player {
		if strings.Contains(t.Name(), "/store") {
			return newStorePair(t, client).written()
		}
		return newAPIPair(t, clients).written()
	})
}

func TestDrawnStore(t *testing.T) { drawnStore(t, etcdClient(t)) }

func TestDrawnAPI(t *testing.T) { drawnAPI(t, apiClients(t)) }
