package badinput

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

func etcdClient(t *testing.T, endpoints []string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (w *world) etcd(t *testing.T) *clientv3.Client { return etcdClient(t, w.cluster.ControlStore()) }

// processes: what cannot start ends with one line that names what is wrong.
func (w *world) processes(t *testing.T) {
	kubeconfig, err := w.cluster.Kubeconfig(local.Shard)
	if err != nil {
		t.Fatal(err)
	}
	store := "--etcd=" + strings.Join(w.cluster.ControlStore(), ",")
	badKey := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(badKey, []byte("c2hvcnQ=\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	badTiers := filepath.Join(t.TempDir(), "config.yaml")
	config := "apiVersion: config.basalt.dev/v1alpha1\nkind: Configuration\n" +
		"nodeTiers: [{name: a, pods: 'true', nodes: 'labels.'}]\n"
	if err := os.WriteFile(badTiers, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	host := w.cluster.Config(local.Shard).Host

	newer := localtest.Etcd(t)
	identity, err := proto.Marshal(&wire.StoreIdentity{Id: "00", Format: 99})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := etcdClient(t, newer.Endpoints()).Put(t.Context(), "store", string(identity)); err != nil {
		t.Fatal(err)
	}
	corrupt := localtest.Etcd(t)
	if _, err := etcdClient(t, corrupt.Endpoints()).Put(t.Context(), "store", "\xff\xff"); err != nil {
		t.Fatal(err)
	}
	unused := localtest.Etcd(t)
	fresh := localtest.Etcd(t)

	quiet := []string{"--listen=127.0.0.1:0", "--gossip=127.0.0.1:0", "--metrics="}
	t.Run("cannot start", func(t *testing.T) {
		for _, row := range []struct {
			what string
			args []string
			says []string
		}{
			{"no control store", []string{"shard"}, []string{"--etcd is required"}},
			{"an unknown flag", []string{"shard", "--foo"}, []string{"unknown flag: --foo"}},
			{"an unknown command", []string{"scheduler"}, []string{`unknown command "scheduler"`}},
			{"no address", []string{"coordinator", store, "--listen=nonsense"}, []string{"--listen", "nonsense"}},
			{"an address that is no IP", []string{"shard", store, "--advertise=me"}, []string{"--advertise", `"me"`}},
			{"half of TLS", []string{"shard", store, "--tls-ca=/ca"}, []string{"--tls-ca, --tls-cert and --tls-key must be given together"}},
			{"a CA that is not there", []string{"shard", "--etcd=https://127.0.0.1:1", "--etcd-ca=/no/such/ca"}, []string{"--etcd-ca", "/no/such/ca"}},
			{"a short gossip key", []string{"shard", store, "--gossip-key-file=" + badKey}, []string{"--gossip-key-file", badKey, "5 bytes"}},
			{"an unknown policy", append([]string{"shard", store, "--kubeconfig=" + kubeconfig, "--placement=best"}, quiet...), []string{"--placement", `"best"`, "pack, spread, least-allocated or most-allocated"}},
			{"an expression that is none",
				append([]string{"shard", store, "--kubeconfig=" + kubeconfig, "--config=" + badTiers}, quiet...),
				[]string{"--config", badTiers, "nodeTiers[0].nodes: column ", `in "labels."`}},
			{"no kubeconfig", append([]string{"shard", store, "--kubeconfig=/no/such/file"}, quiet...), []string{"kubeconfig", "/no/such/file"}},
			{"a port that is taken", append([]string{"shard", store, "--kubeconfig=" + kubeconfig}, "--listen="+taken.Addr().String(), "--gossip=127.0.0.1:0", "--metrics="), []string{"--listen", "address already in use"}},
			{"a port for questions that is taken",
				append([]string{"shard", "--etcd=" + fresh.Endpoints()[0], "--kubeconfig=" + kubeconfig,
					"--visibility=" + taken.Addr().String()}, quiet...),
				[]string{"--visibility", "address already in use"}},
			{"an etcd that is not there", append([]string{"shard", "--etcd=http://127.0.0.1:1", "--kubeconfig=" + kubeconfig}, quiet...), []string{"--etcd", "http://127.0.0.1:1", "connection refused"}},
			{"an etcd that is not there, for a coordinator", append([]string{"coordinator", "--etcd=http://127.0.0.1:1", "--kubeconfig=" + kubeconfig}, quiet...), []string{"--etcd", "http://127.0.0.1:1", "connection refused"}},
			{"an API server that is not there", append([]string{"shard", store, "--kubeconfig=" + w.kubeconfig(t, local.Shard, host, "https://127.0.0.1:1")}, quiet...), []string{"API server https://127.0.0.1:1 cannot be reached", "connection refused"}},
			{"an API server without Basalt's kinds", append([]string{"shard", store, "--kubeconfig=" + w.kubeconfig(t, local.Admin, host, host+"/without")}, quiet...), []string{"does not know Queue", "apply deploy/crds first"}},
			{"an unknown user", append([]string{"shard", store, "--kubeconfig=" + w.kubeconfig(t, local.Shard, w.cluster.Config(local.Shard).BearerToken, "nobody")}, quiet...), []string{"API server " + host, "Unauthorized"}},
			{"a store of a newer version", append([]string{"shard", "--etcd=" + newer.Endpoints()[0], "--kubeconfig=" + kubeconfig}, quiet...), []string{"--etcd", newer.Endpoints()[0], `"store"`, "format 99", "newer version"}},
			{"a store of a newer version, for a coordinator", append([]string{"coordinator", "--etcd=" + newer.Endpoints()[0], "--kubeconfig=" + kubeconfig}, quiet...), []string{`"store"`, "format 99", "newer version"}},
			{"a store of a newer version, for status", []string{"status", "--etcd=" + newer.Endpoints()[0]}, []string{`"store"`, "format 99", "newer version"}},
			{"a store without a readable identity", append([]string{"shard", "--etcd=" + corrupt.Endpoints()[0], "--kubeconfig=" + kubeconfig}, quiet...), []string{`"store"`, "corrupt record"}},
			{"a store that nobody used, for status", []string{"status", "--etcd=" + unused.Endpoints()[0]}, []string{`"store"`, "no process of Basalt has used this store yet"}},
		} {
			t.Run(row.what, func(t *testing.T) {
				t.Parallel()
				out, err := w.run(t, row.args...)
				if err == nil {
					t.Errorf("basalt %v ended well", row.args)
				}
				lines := strings.Split(strings.TrimSpace(out), "\n")
				last := lines[len(lines)-1] // warnings may come before
				if !strings.HasPrefix(last, "basalt: ") {
					t.Errorf("the last line is not what went wrong:\n%s", out)
				}
				if err := contains(last, row.says); err != nil {
					t.Error(err)
				}
			})
		}
	})
	for _, e := range []*local.Etcd{newer, corrupt} { // and it was left as it was
		resp, err := etcdClient(t, e.Endpoints()).Get(t.Context(), "", clientv3.WithPrefix())
		if err != nil || len(resp.Kvs) != 1 {
			t.Errorf("store at %s: %d keys, %v", e.Endpoints()[0], len(resp.Kvs), err)
		}
	}
	// Who registers gets buckets, and its end moves them again.
	resp, err := etcdClient(t, fresh.Endpoints()).Get(t.Context(), "shards/", clientv3.WithPrefix())
	if err != nil || len(resp.Kvs) != 0 || resp.Header.Revision == 1 {
		t.Errorf("a shard that could not listen registered: %v, %v", resp, err)
	}
	w.healthy(t)
}
