// Package security tries what an attacker or an operator in a hurry would do to Basalt's processes: real ones, with the flags
// of deploy/, against a real API server and a real etcd that both know who may do what.
package security

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/certs/certstest"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/link"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/seeds"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

const (
	patience = 3 * time.Minute // for a hung test, not a measure
	token    = "a-token-of-sufficient-length"
)

// world is Basalt with everything switched on that keeps others out.
type world struct {
	cluster  *local.Cluster
	program  string
	kube     *kube.Clients
	basalts  []*local.Basalt
	etcd     string // endpoint
	peers    *secret
	store    *secret // client certificates for etcd
	server   *secret // etcd's own
	gossip   *secret
	metrics  *secret
	one, two *certstest.CA
	gangs    int
}

func TestSecurity(t *testing.T) {
	w := &world{program: localtest.Basalt(t), one: certstest.New(t, "one"), two: certstest.New(t, "two")}
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	w.secrets(t)
	w.startEtcd(t) // first, for it has to end last
	w.cluster = localtest.Cluster(t, local.Options{Basalt: w.program, Audit: true, APIServerFlags: []string{"--audit-policy-file=" + policy}})
	var err error
	if w.kube, err = kube.ConnectConfig(w.cluster.Config(local.Admin), "security"); err != nil {
		t.Fatal(err)
	}
	w.start(t)
	w.healthy(t, "at the beginning")
	stop := w.startAuditor(t)
	t.Run("who has no certificate", w.strangers)
	t.Run("who claims to be another", w.forgers)
	t.Run("a message that is too large", w.giant)
	t.Run("metrics", w.tokens)
	t.Run("a gang of a million", w.million)
	t.Run("names as long as can be", w.longNames)
	t.Run("a thousand queues", w.thousandQueues)
	t.Run("rotation", w.rotation)
	stop()
	t.Run("rights", w.rights)
}

func (w *world) secrets(t *testing.T) {
	later := time.Now().Add(time.Hour)
	w.peers, w.store, w.server, w.gossip, w.metrics = newSecret(t), newSecret(t), newSecret(t), newSecret(t), newSecret(t)
	w.peers.put("ca.crt", w.one.PEM())
	w.peers.putLeaf(w.one, "basalt", later)
	w.store.put("ca.crt", w.one.PEM())
	w.store.putLeaf(w.one, "basalt", later)
	w.server.put("ca.crt", append(w.one.PEM(), w.two.PEM()...)) // etcd reads this one only at its start
	w.server.putLeaf(w.one, "etcd", later)
	w.gossip.put("key", gossipKeys('1'))
	w.metrics.put("token", []byte(token+"\n"))
}

func (w *world) start(t *testing.T) {
	for i := range 6 {
		n := kubelet.Node(fmt.Sprintf("node-%d", i), "8", "32Gi", 110)
		if _, err := w.kube.Core.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	o := local.BasaltOptions{Restart: true, RestartAfter: 50 * time.Millisecond, Flags: w.flags()}
	var err error
	if w.basalts, err = w.cluster.StartBasalt(t.Context(), 1, 2, o); err != nil {
		t.Fatal(err)
	}
	if err := local.WaitReady(t.Context(), w.basalts); err != nil {
		t.Fatal(err)
	}
}

func (w *world) flags() []string {
	return append(w.clientFlags(), "--gossip-key-file="+w.gossip.file("key"), "--metrics-token-file="+w.metrics.file("token"))
}

// clientFlags are those of `basalt status`.
func (w *world) clientFlags() []string { return append(w.storeFlags(w.store), w.peerFlags(w.peers)...) }

func (w *world) storeFlags(s *secret) []string {
	return []string{"--etcd=" + w.etcd, "--etcd-ca=" + s.file("ca.crt"), "--etcd-cert=" + s.file("tls.crt"), "--etcd-key=" + s.file("tls.key")}
}

func (w *world) peerFlags(s *secret) []string {
	return []string{"--tls-ca=" + s.file("ca.crt"), "--tls-cert=" + s.file("tls.crt"), "--tls-key=" + s.file("tls.key")}
}

func gossipKeys(keys ...byte) []byte {
	var out []byte
	for _, k := range keys {
		out = append(out, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{k}, 32))+"\n"...)
	}
	return out
}

// startEtcd runs an etcd that takes nobody without a certificate.
func (w *world) startEtcd(t *testing.T) {
	t.Helper()
	root := localtest.Programs(t, "etcd")
	port := func() int {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().(*net.TCPAddr).Port
	}
	w.etcd = fmt.Sprintf("https://127.0.0.1:%d", port())
	peer := fmt.Sprintf("http://127.0.0.1:%d", port())
	log, err := os.Create(filepath.Join(t.TempDir(), "etcd.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(root, "bin", "etcd"), "--name=tls", "--data-dir="+filepath.Join(t.TempDir(), "data"),
		"--listen-client-urls="+w.etcd, "--advertise-client-urls="+w.etcd, "--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
		"--initial-cluster=tls="+peer, "--log-level=warn", "--client-cert-auth", "--trusted-ca-file="+w.server.file("ca.crt"),
		"--cert-file="+w.server.file("tls.crt"), "--key-file="+w.server.file("tls.key"))
	cmd.Stdout, cmd.Stderr = log, log
	dieWithUs(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		log.Close()
		if t.Failed() {
			t.Logf("the end of etcd's log:\n%s", local.Tail(log.Name(), 10))
		}
	})
}

func (w *world) etcdClient(t *testing.T, s *secret) *clientv3.Client {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(s.file("tls.crt"), s.file("tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{w.etcd}, Logger: zap.NewNop(), TLS: &tls.Config{
		Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}}) // who the server is, others try
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// run runs a command of basalt to its end.
func (w *world) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, w.program, args...).CombinedOutput()
	return string(out), err
}

func (w *world) pod(ns, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{}}, Spec: corev1.PodSpec{
		SchedulerName: api.SchedulerName,
		Containers: []corev1.Container{{Name: "c", Image: "none", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")}}}},
	}}
}

func (w *world) group(t *testing.T, ns, name, queue string, minCount int32) error {
	t.Helper()
	g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	g.Spec.Queue, g.Spec.SchedulingPolicy.Gang.MinCount = queue, minCount
	return w.kube.Basalt.Post().Namespace(ns).Resource("podgroups").Body(g).Do(t.Context()).Error()
}

// healthy places a gang of four, and takes it away again.
func (w *world) healthy(t *testing.T, when string) {
	t.Helper()
	w.gangs++
	name := fmt.Sprintf("healthy-%d", w.gangs)
	if err := w.group(t, "default", name, "", 4); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		p := w.pod("default", fmt.Sprintf("%s-%d", name, i))
		p.Labels[api.LabelPodGroup] = name
		if _, err := w.kube.Core.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		w.bound(t, "default", fmt.Sprintf("%s-%d", name, i), when)
	}
	now := int64(0)
	for i := range 4 {
		if err := w.kube.Core.CoreV1().Pods("default").Delete(t.Context(), fmt.Sprintf("%s-%d", name, i), metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			t.Fatal(err)
		}
	}
}

func (w *world) bound(t *testing.T, ns, name, when string) {
	t.Helper()
	localtest.Wait(t, patience, "a gang to be placed "+when, func(ctx context.Context) error {
		p, err := w.kube.Core.CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{})
		if err == nil && p.Spec.NodeName == "" {
			err = fmt.Errorf("pod %s has no node; conditions %v", name, p.Status.Conditions)
		}
		return err
	})
}

func (w *world) logged(t *testing.T, b *local.Basalt, words ...string) {
	t.Helper()
	localtest.Wait(t, patience, fmt.Sprintf("%q in the log of %s", words, b.Name()), func(context.Context) error {
		text, err := os.ReadFile(b.Log())
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
				return nil
			}
		}
		return errors.New("no such line")
	})
}

// undisturbed runs a part, after which the same processes must run, well.
func (w *world) undisturbed(t *testing.T, run func()) {
	t.Helper()
	before := map[string]int{}
	for _, b := range w.basalts {
		before[b.Name()] = b.Pid()
	}
	run()
	w.healthy(t, "afterwards")
	for _, b := range w.basalts {
		if b.Pid() != before[b.Name()] {
			t.Errorf("%s ended and was started again:\n%s", b.Name(), local.Tail(b.Log(), 10))
		}
	}
}

// ---- who may speak

func (w *world) strangers(t *testing.T) {
	other := newSecret(t) // of a CA that nobody here trusts
	stranger := certstest.New(t, "stranger")
	other.put("ca.crt", w.one.PEM())
	other.putLeaf(stranger, "basalt", time.Now().Add(time.Hour))
	misnamed := newSecret(t) // of ours, for something else
	misnamed.put("ca.crt", w.one.PEM())
	misnamed.putLeaf(w.one, "example", time.Now().Add(time.Hour))
	expired := newSecret(t)
	expired.put("ca.crt", w.one.PEM())
	expired.putLeaf(w.one, "basalt", time.Now().Add(-time.Minute))
	w.undisturbed(t, func() {
		status := func(flags ...[]string) (string, error) {
			return w.run(t, append([]string{"status"}, slices.Concat(flags...)...)...)
		}
		if out, err := status(w.clientFlags()); err != nil || strings.Contains(out, "does not answer") {
			t.Errorf("status with the right files: %v\n%s", err, out)
		}
		plain := strings.Replace(w.etcd, "https", "http", 1)
		t.Run("etcd", func(t *testing.T) {
			for name, row := range map[string]struct {
				flags []string
				says  string
			}{
				"without TLS":                  {[]string{"--etcd=" + plain}, "open control store at " + plain},
				"without a certificate":        {[]string{"--etcd=" + w.etcd, "--etcd-ca=" + w.store.file("ca.crt")}, "certificate required"},
				"with a stranger's":            {w.storeFlags(other), "unknown certificate authority"},
				"with an expired one":          {w.storeFlags(expired), "expired at"},
				"that our CA did not sign":     {[]string{"--etcd=" + w.etcd}, "certificate signed by unknown authority"},
				"http:// with TLS's own flags": {append(w.storeFlags(w.store), "--etcd="+plain), "would not be encrypted"},
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel() // most of it is waiting
					if out, err := status(row.flags, []string{"--insecure-plain-text"}); err == nil || !strings.Contains(out, row.says) {
						t.Errorf("%v, which does not say %q:\n%s", err, row.says, out)
					}
				})
			}
		})
		kubeconfig, err := w.cluster.Kubeconfig(local.Shard)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := w.run(t, append([]string{"shard", "--kubeconfig=" + kubeconfig, "--metrics=", "--listen=127.0.0.1:0", "--gossip=127.0.0.1:0", "--gossip-key-file=" + w.gossip.file("key")}, append(w.storeFlags(w.store), w.peerFlags(expired)...)...)...); err == nil || !strings.Contains(out, "expired at") {
			t.Errorf("a shard with an expired certificate: %v\n%s", err, out)
		}
		for name, files := range map[string]*link.TLS{
			"no certificate": nil, "of another CA": peerTLS(other), "for another name": peerTLS(misnamed),
		} {
			for _, b := range w.basalts {
				if err := ask(t, b.Listen, files); err == nil {
					t.Errorf("%s: %s answered", name, b.Name())
				}
			}
		}
		for _, b := range w.basalts { // and the refused side's words are in the log
			w.logged(t, b, "rejected a connection", "first record does not look like a TLS handshake")
			w.logged(t, b, "rejected a connection", "signed by unknown authority")
			w.logged(t, b, "rejected a connection", "valid for example, localhost, not basalt")
		}
	})
}

func peerTLS(s *secret) *link.TLS {
	return &link.TLS{CAFile: s.file("ca.crt"), CertFile: s.file("tls.crt"), KeyFile: s.file("tls.key")}
}

func ask(t *testing.T, address string, files *link.TLS) error {
	t.Helper()
	conn, err := link.Dial(address, files)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = wire.NewInspectClient(conn).Status(ctx, &wire.StatusRequest{})
	return err
}

// forgers have a valid certificate, and say that they are somebody else.
func (w *world) forgers(t *testing.T) {
	shards := w.shards(t)
	lead := w.leader(t)
	w.undisturbed(t, func() {
		for _, victim := range shards {
			for claim, message := range map[string]*wire.Envelope{
				lead.Incarnation:      {Body: &wire.Envelope_Known{Known: &wire.Known{Gangs: []*wire.GangRef{{Uid: "forged", Queue: "default"}}, Attempts: []uint64{1}}}},
				shards[0].Incarnation: {Body: &wire.Envelope_Withdraw{Withdraw: &wire.Withdraw{Gang: &wire.GangRef{Uid: "forged", Queue: "default"}, Serial: 1 << 60}}},
				"0123456789abcdef":    {Body: &wire.Envelope_Bind{Bind: &wire.Bind{GangUid: "forged", Serial: 1}}},
			} {
				want := codes.PermissionDenied
				if claim == "0123456789abcdef" {
					want = codes.Unavailable // nobody of this name is registered
				}
				if err := w.say(t, victim.Address, claim, victim.Incarnation, message); status.Code(err) != want {
					t.Errorf("a stream that claims to be %s: %v, want %s", claim, err, want)
				}
			}
		}
		if err := w.say(t, lead.Address, shards[1].Incarnation, lead.Incarnation, &wire.Envelope{Body: &wire.Envelope_Unreserve{Unreserve: &wire.Unreserve{
			Gang: &wire.GangRef{Uid: "forged", Queue: "default"}, Attempt: 1, Serial: 1 << 60, TableEpoch: 1 << 40}}}); status.Code(err) != codes.PermissionDenied {
			t.Errorf("the coordinator took it: %v", err)
		}
		for _, b := range w.basalts {
			w.logged(t, b, "rejected a call", "did not prove the incarnation")
		}
	})
}

func (w *world) shards(t *testing.T) (out []*wire.ShardRecord) {
	t.Helper()
	r, err := w.etcdClient(t, w.store).Get(t.Context(), "shards/", clientv3.WithPrefix())
	if err != nil || len(r.Kvs) != 2 {
		t.Fatalf("%d shards, %v", len(r.Kvs), err)
	}
	for _, kv := range r.Kvs {
		s := &wire.ShardRecord{}
		if err := proto.Unmarshal(kv.Value, s); err != nil || len(s.Key) != 32 {
			t.Fatalf("%v, %v", s, err)
		}
		out = append(out, s)
	}
	return out
}

func (w *world) leader(t *testing.T) *wire.LeaderRecord {
	t.Helper()
	r, err := w.etcdClient(t, w.store).Get(t.Context(), "leader/", clientv3.WithPrefix())
	if err != nil || len(r.Kvs) != 1 {
		t.Fatal(r, err)
	}
	l := &wire.LeaderRecord{}
	if err := proto.Unmarshal(r.Kvs[0].Value, l); err != nil {
		t.Fatal(err)
	}
	return l
}

// say sends one message over a stream of our own, with a certificate that is valid, and returns why the stream ended.
func (w *world) say(t *testing.T, address, from, to string, message *wire.Envelope, options ...grpc.CallOption) error {
	t.Helper()
	conn, err := link.Dial(address, peerTLS(w.peers))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "basalt-from", from, "basalt-to", to, "basalt-proof-bin", string(make([]byte, 64)))
	stream, err := wire.NewLinkClient(conn).Open(ctx, options...)
	if err != nil {
		return err
	}
	if err := stream.Send(&wire.Frame{From: from, To: to, Sequence: 1, Messages: []*wire.Envelope{message}}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if _, err = stream.Recv(); err == nil {
		return errors.New("it was taken")
	}
	return err
}

// ---- what is too much

func (w *world) giant(t *testing.T) {
	shards := w.shards(t)
	w.undisturbed(t, func() {
		huge := &wire.Envelope{Body: &wire.Envelope_Bind{Bind: &wire.Bind{GangUid: strings.Repeat("x", 64<<20)}}} // of a gigabyte nobody would read more
		for _, s := range shards {
			if err := w.say(t, s.Address, shards[0].Incarnation, s.Incarnation, huge, grpc.MaxCallSendMsgSize(1<<30)); status.Code(err) != codes.PermissionDenied { // before any of it is read
				t.Errorf("64 MB: %v", err)
			}
		}
		for _, b := range w.basalts {
			if rss := residentMB(t, b.Pid()); rss > 1024 { // the race detector's share is large
				t.Errorf("%s takes %d MB", b.Name(), rss)
			}
		}
	})
}

func residentMB(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	var size, resident int
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		t.Fatal(err)
	}
	return resident * os.Getpagesize() >> 20
}

func (w *world) million(t *testing.T) {
	w.undisturbed(t, func() {
		if err := w.group(t, "default", "million", "", 1_000_000); err == nil || !strings.Contains(err.Error(), "less than or equal to 100000") {
			t.Errorf("a gang of a million: %v", err)
		}
		// The largest that is accepted waits for its pods, and says how many there are.
		if err := w.group(t, "default", "large", "", 100_000); err != nil {
			t.Fatal(err)
		}
		p := w.pod("default", "large-0")
		p.Labels[api.LabelPodGroup] = "large"
		if _, err := w.kube.Core.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		localtest.Wait(t, patience, "words about the pods that are missing", func(ctx context.Context) error {
			var g v1beta1.PodGroup
			if err := w.kube.Basalt.Get().Namespace("default").Resource("podgroups").Name("large").Do(ctx).Into(&g); err != nil {
				return err
			}
			if g.Status != nil {
				for _, c := range g.Status.Conditions {
					if c.Status == metav1.ConditionFalse && strings.Contains(c.Message, "100000") {
						return nil
					}
				}
			}
			return fmt.Errorf("status %+v", g.Status)
		})
	})
}

func (w *world) longNames(t *testing.T) {
	w.undisturbed(t, func() {
		part := func(n int) string { return strings.Repeat("x", n) }
		// Eight levels and 63 characters; each level must exist.
		path := ""
		for level := range 8 {
			n := 7
			if level == 0 {
				path = part(63 - 7*8)
			} else {
				path += "." + part(n)
			}
			if err := w.kube.Basalt.Post().Resource("queues").Body(&v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: path}}).Do(t.Context()).Error(); err != nil {
				t.Fatal(err)
			}
		}
		if len(path) != 63 {
			t.Fatalf("the path has %d characters", len(path))
		}
		ns := part(63)
		if _, err := w.kube.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		name := strings.Repeat(part(63)[:62]+".", 4)[:251] + "ab"
		node := kubelet.Node(name, "8", "32Gi", 110)
		domain := strings.Repeat(part(62)+".", 4)
		device := corev1.ResourceName(domain[:253-len("requests.")] + "/" + part(63)) // quota puts "requests." before it
		node.Status.Allocatable[device], node.Status.Capacity[device] = resource.MustParse("8"), resource.MustParse("8")
		delete(node.Labels, corev1.LabelHostname) // 63 characters at most
		if _, err := w.kube.Core.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := w.group(t, ns, part(63), path, 2); err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			p := w.pod(ns, fmt.Sprintf("%s%d", name[:252], i))
			p.Labels[api.LabelPodGroup] = part(63)
			one := corev1.ResourceList{device: resource.MustParse("1")}
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: one, Limits: one}
			if _, err := w.kube.Core.CoreV1().Pods(ns).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 2 {
			w.bound(t, ns, fmt.Sprintf("%s%d", name[:252], i), "with names as long as can be")
		}
	})
}

// thousandQueues makes them as fast as the API server takes them, fewer if not in full; each gets a limit in force and
// a status.
func (w *world) thousandQueues(t *testing.T) {
	n := 1000
	if !seeds.InFull() {
		n = 300
	}
	w.undisturbed(t, func() {
		errs := make(chan error, n)
		next := make(chan int)
		for range 16 {
			go func() {
				for i := range next {
					q := &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("many-%04d", i)}}
					q.Spec.Capability = corev1.ResourceList{"cpu": resource.MustParse("4")}
					errs <- w.kube.Basalt.Post().Resource("queues").Body(q).Do(t.Context()).Error()
				}
			}()
		}
		began := time.Now()
		for i := range n {
			next <- i
		}
		close(next)
		for range n {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
		made := time.Since(began)
		localtest.Wait(t, patience, "all queues to be ready", func(ctx context.Context) error {
			var list v1beta1.QueueList
			if err := w.kube.Basalt.Get().Resource("queues").Do(ctx).Into(&list); err != nil {
				return err
			}
			ready := 0
			for i := range list.Items {
				if s := list.Items[i].Status; s != nil && meta.IsStatusConditionTrue(s.Conditions, v1beta1.ConditionReady) && strings.HasPrefix(list.Items[i].Name, "many-") {
					ready++
				}
			}
			if ready < n {
				time.Sleep(200 * time.Millisecond) // the list is large
				return fmt.Errorf("%d are", ready)
			}
			return nil
		})
		t.Logf("%d queues were made in %s and ready after %s", n, made.Round(time.Millisecond),
			time.Since(began).Round(time.Millisecond))
	})
}

// ---- metrics

func (w *world) tokens(t *testing.T) {
	get := func(b *local.Basalt, path, authorization string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+b.Metrics+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if authorization != "" {
			r.Header.Set("Authorization", "Bearer "+authorization)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	for _, b := range w.basalts {
		for _, path := range []string{"/metrics", "/debug/pprof/goroutine?debug=1"} {
			for given, want := range map[string]int{"": 401, "wrong": 401, token: 200} {
				if code, body := get(b, path, given); code != want {
					t.Errorf("%s%s with %q: %d %.100s", b.Name(), path, given, code, body)
				}
			}
		}
		for _, path := range []string{"/livez", "/readyz"} {
			if code, body := get(b, path, ""); code != 200 {
				t.Errorf("%s%s: %d %s", b.Name(), path, code, body)
			}
		}
	}
	w.metrics.put("token", []byte("another-token-of-sufficient-length"))
	for _, b := range w.basalts {
		if code, _ := get(b, "/metrics", token); code != 401 {
			t.Errorf("%s takes the old token: %d", b.Name(), code)
		}
		if code, _ := get(b, "/metrics", "another-token-of-sufficient-length"); code != 200 {
			t.Errorf("%s does not take the new token: %d", b.Name(), code)
		}
	}
}

// ---- rotation

// rotation replaces every key while all runs. After each step a shard is killed: what takes its place, and all who speak to
// it, must shake hands anew.
func (w *world) rotation(t *testing.T) {
	later := time.Now().Add(time.Hour)
	both := append(w.one.PEM(), w.two.PEM()...)
	starts := func() (out []int) {
		for _, b := range w.basalts {
			out = append(out, b.Starts())
		}
		return out
	}
	before := starts()
	first := func(n int, key byte) string {
		sum := sha256.Sum256(bytes.Repeat([]byte{key}, 32))
		return fmt.Sprintf("keys=%d first=%x", n, sum[:4])
	}
	gossips := []string{first(2, '1'), first(2, '2'), first(1, '2')}
	for i, step := range []struct {
		name string
		do   func()
	}{
		{"new certificates of the same CA", func() {
			w.peers.putLeaf(w.one, "basalt", later)
			w.store.putLeaf(w.one, "basalt", later)
			w.server.putLeaf(w.one, "etcd", later)
			w.gossip.put("key", gossipKeys('1', '2'))
		}},
		{"both CAs are trusted", func() {
			w.peers.put("ca.crt", both)
			w.store.put("ca.crt", both)
			w.gossip.put("key", gossipKeys('2', '1'))
		}},
		{"certificates of the new CA", func() {
			w.peers.putLeaf(w.two, "basalt", later)
			w.store.putLeaf(w.two, "basalt", later)
			w.server.putLeaf(w.two, "etcd", later)
			w.gossip.put("key", gossipKeys('2'))
		}},
		{"only the new CA is trusted", func() {
			w.peers.put("ca.crt", w.two.PEM())
			w.store.put("ca.crt", w.two.PEM())
		}},
		{"a certificate that is over, by mistake", func() { // what was read before stays in use
			w.peers.putLeaf(w.two, "basalt", time.Now().Add(-time.Minute))
		}},
	} {
		step.do()
		if i < len(gossips) { // one step at a time: every member first
			for _, b := range w.basalts {
				localtest.Wait(t, patience, b.Name()+" to have "+gossips[i], func(context.Context) error {
					text, err := os.ReadFile(b.Log())
					at := strings.LastIndex(string(text), "gossip keys ")
					if err == nil && (at < 0 || !strings.Contains(string(text[at:]), gossips[i])) {
						err = errors.New("it has others")
					}
					return err
				})
			}
		}
		if i < 4 {
			w.basalts[1+i%2].Kill()
			if err := w.basalts[1+i%2].WaitReady(t.Context()); err != nil {
				t.Fatal(step.name, err)
			}
		}
		w.healthy(t, "after: "+step.name)
	}
	w.peers.putLeaf(w.two, "basalt", later)
	after := starts()
	if want := []int{before[0], before[1] + 2, before[2] + 2}; !slices.Equal(after, want) {
		t.Errorf("processes were started %v times, want %v: somebody did not survive a rotation", after, want)
	}
	if out, err := w.run(t, append([]string{"status"}, w.clientFlags()...)...); err != nil || strings.Contains(out, "does not answer") {
		t.Errorf("status with the new files: %v\n%s", err, out)
	}
	old := newSecret(t)
	old.put("ca.crt", both)
	old.putLeaf(w.one, "basalt", later)
	for _, b := range w.basalts {
		if err := ask(t, b.Listen, peerTLS(old)); err == nil {
			t.Errorf("%s takes a certificate of the old CA", b.Name())
		}
		text, err := os.ReadFile(b.Log())
		if err != nil || strings.Contains(string(text), "ecrypt packet failed") {
			t.Errorf("%s could not read gossip on the way, %v", b.Name(), err)
		}
	}
}

// ---- the auditor beside it

// startAuditor runs `basalt audit` with just the rights of its role; the function that it returns ends it and judges.
func (w *world) startAuditor(t *testing.T) func() {
	t.Helper()
	account, err := w.kube.Core.CoreV1().ServiceAccounts("basalt-system").CreateToken(t.Context(), "basalt-audit", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	path, err := w.cluster.Kubeconfig(local.Shard)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte(w.cluster.Config(local.Shard).BearerToken), []byte(account.Status.Token))
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command(w.program, append([]string{"audit", "--from-revision=1", "--kubeconfig=" + kubeconfig}, w.storeFlags(w.store)...)...)
	cmd.Stdout, cmd.Stderr = &out, &out
	dieWithUs(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	t.Cleanup(func() {
		if !ended {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return func() {
		ended = true
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "no violations") {
			t.Errorf("the auditor: %v\n%s", err, out.String())
		}
	}
}
