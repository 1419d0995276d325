package issue

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"basalt.dev/basalt/api/certs"
	"basalt.dev/basalt/api/certs/certstest"
)

// memory keeps Secrets as the API server does: each write has a version.
type memory struct {
	secrets map[string]map[string][]byte
	version int
	steal   func() // called once, between a Get and its Put
}

func newMemory() *memory { return &memory{secrets: map[string]map[string][]byte{}} }

func (m *memory) Get(_ context.Context, name string) (map[string][]byte, string, error) {
	return maps.Clone(m.secrets[name]), strconv.Itoa(m.version), nil
}

func (m *memory) Put(_ context.Context, name string, data map[string][]byte, version string) error {
	if steal := m.steal; steal != nil {
		m.steal = nil
		steal()
	}
	if version != strconv.Itoa(m.version) {
		return errors.New("conflict")
	}
	m.version++
	m.secrets[name] = maps.Clone(data)
	return nil
}

func (m *memory) copy() map[string]map[string][]byte {
	out := map[string]map[string][]byte{}
	for k, v := range m.secrets {
		out[k] = maps.Clone(v)
	}
	return out
}

func ensure(t *testing.T, s Store, o Options, now time.Time) []Change {
	t.Helper()
	changes, err := Ensure(t.Context(), s, o, now)
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

// verify returns why a certificate would not be taken by somebody who has the bundle of another Secret.
func (m *memory) verify(t *testing.T, secret, bundleOf, name string, usage x509.ExtKeyUsage, now time.Time) error {
	t.Helper()
	p, err := parsePair(m.secrets[secret][keyCert], m.secrets[secret][keyKey])
	if err != nil {
		t.Fatal(secret, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(m.secrets[bundleOf][keyBundle]) {
		t.Fatalf("%s: no bundle", bundleOf)
	}
	_, err = p.cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestRoles(t *testing.T) {
	m := newMemory()
	ensure(t, m, Options{Namespace: "ns", Hosts: []string{"store.example.com", "10.0.0.9"}}, start)
	if got := slices.Sorted(maps.Keys(m.secrets)); !slices.Equal(got, slices.Sorted(slices.Values(Names(false)))) {
		t.Errorf("wrote %v", got)
	}
	server, client := x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth
	member := "basalt-etcd-2.basalt-etcd.ns.svc"
	may := map[string][]string{ // secret: names with a use
		SecretShard: {"basalt server", "basalt client", "shard.basalt client", "shard.basalt server",
			"basalt-visibility.ns.svc server", "basalt-visibility.ns.svc client"},
		SecretCoordinator: {"basalt server", "basalt client", "coordinator.basalt client", "coordinator.basalt server"},
		SecretOperator:    {"operator.basalt client"},
		SecretEtcd:        {member + " server", "basalt-etcd server", "127.0.0.1 server", "store.example.com server", "10.0.0.9 server"},
		SecretEtcdPeer: {"etcd-peer.basalt client", "etcd-peer.basalt server", member + " server", member + " client", "basalt-etcd server",
			"basalt-etcd client", "127.0.0.1 server", "127.0.0.1 client", "store.example.com server", "store.example.com client", "10.0.0.9 server", "10.0.0.9 client"},
	}
	for secret, allowed := range may {
		for _, name := range []string{certs.NameVisibility("ns"), certs.NameVisibility("other"), certs.NameProcess,
			certs.NameShard, certs.NameCoordinator, certs.NameOperator, certs.NameStorePeer,
			member, "basalt-etcd-2.basalt-etcd.other.svc", "basalt-etcd", "127.0.0.1", "10.0.0.9", "store.example.com", "example.com"} {
			for use, usage := range map[string]x509.ExtKeyUsage{"server": server, "client": client} {
				want := slices.Contains(allowed, name+" "+use)
				if err := m.verify(t, secret, SecretShard, name, usage, start); (err == nil) != want {
					t.Errorf("%s as %s of %s: %v", secret, use, name, err)
				}
			}
		}
		p, _ := parsePair(m.secrets[secret][keyCert], m.secrets[secret][keyKey])
		if p.cert.IsCA {
			t.Errorf("%s can sign", secret)
		}
	}
}

// Others are told the CAs that verify shards, before one signs that they did not know, and only when they did not know
// them.
func TestPublish(t *testing.T) {
	m := newMemory()
	var told []byte
	o := Options{Publish: func(_ context.Context, bundle []byte) (bool, error) {
		changed := !bytes.Equal(told, bundle)
		told = bundle
		return changed, nil
	}}
	published := func(o Options, now time.Time) bool {
		t.Helper()
		said := slices.ContainsFunc(ensure(t, m, o, now), func(c Change) bool { return c.Secret == PublishedAs })
		if !bytes.Equal(told, m.secrets[SecretShard][keyBundle]) {
			t.Errorf("told of another bundle than that of the shards")
		}
		return said
	}
	if !published(o, start) || published(o, start.Add(time.Hour)) {
		t.Error("not told once")
	}
	rotate := o
	rotate.RotateCA = true
	before := string(told)
	if !published(rotate, start.Add(48*time.Hour)) || strings.Count(string(told), "BEGIN") != 3 ||
		strings.Count(before, "BEGIN") != 2 {
		t.Errorf("not told of the rotation: %s", told)
	}
	o.Publish = func(context.Context, []byte) (bool, error) { return false, errors.New("no") }
	if _, err := Ensure(t.Context(), m, o, start.Add(49*time.Hour)); err == nil || !strings.Contains(err.Error(),
		"write APIService v1beta1.visibility.basalt.dev: no") {
		t.Errorf("an error is lost: %v", err)
	}
	o.KeysOnly = true
	if _, err := Ensure(t.Context(), newMemory(), o, start); err != nil {
		t.Errorf("cert-manager does that: %v", err)
	}
}

// Nothing changes until something has to, and then only that.
func TestRepeatedRuns(t *testing.T) {
	m := newMemory()
	if n := len(ensure(t, m, Options{}, start)); n != len(Names(false)) {
		t.Errorf("%d changes at first", n)
	}
	before := m.copy()
	for _, at := range []time.Duration{0, time.Hour, leafLife - leafRenew - time.Hour} {
		if changes := ensure(t, m, Options{}, start.Add(at)); len(changes) > 0 {
			t.Errorf("after %s: %v", at, changes)
		}
	}
	later := start.Add(leafLife - leafRenew + time.Hour)
	if changes := ensure(t, m, Options{}, later); len(changes) != 5 {
		t.Errorf("certificates are old: %v", changes)
	}
	for _, name := range Names(false) {
		now, was := m.secrets[name], before[name]
		leaf := strings.HasSuffix(name, "-tls")
		if leaf == bytes.Equal(now[keyCert], was[keyCert]) && len(now[keyCert]) > 0 {
			t.Errorf("%s: renewed: %v", name, !bytes.Equal(now[keyCert], was[keyCert]))
		}
		for _, key := range []string{keyBundle, keyGossip, keyToken, keyNextKey} {
			if !bytes.Equal(now[key], was[key]) {
				t.Errorf("%s: %s was replaced", name, key)
			}
		}
		if leaf {
			if err := m.verify(t, name, SecretCA, "", x509.ExtKeyUsageAny, later.Add(leafRenew)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	// Another name of a member.
	if changes := ensure(t, m, Options{Hosts: []string{"x.example.com"}}, later); len(changes) != 2 {
		t.Errorf("another name: %v", changes)
	}
}

func TestNothingOfOthersIsReplaced(t *testing.T) {
	other := certstest.New(t, "another CA")
	cert, key := other.Leaf(start.Add(time.Hour), "basalt")
	for name, row := range map[string]struct {
		secret string
		data   map[string][]byte
		says   string // of the error; none: it goes on
	}{
		"a certificate of another issuer": {SecretShard, map[string][]byte{keyBundle: other.PEM(), keyCert: cert, keyKey: key}, ""},
		"a gossip key":                    {SecretGossip, map[string][]byte{keyGossip: []byte("ours")}, ""},
		"a token":                         {SecretMetrics, map[string][]byte{keyToken: []byte("ours")}, ""},
		"a certificate without its key":   {SecretShard, map[string][]byte{keyCert: cert}, SecretShard},
		"a key that is nonsense":          {SecretEtcd, map[string][]byte{keyCert: cert, keyKey: []byte("nonsense")}, SecretEtcd},
		"a CA without its key":            {SecretCA, map[string][]byte{keyCert: other.PEM()}, "one of them is missing"},
		"a CA that is none":               {SecretCA, map[string][]byte{keyCert: cert, keyKey: key}, "not the certificate of a CA"},
		"a bundle that is nonsense":       {SecretCA, map[string][]byte{keyBundle: []byte("nonsense")}, keyBundle},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory()
			m.secrets[row.secret] = maps.Clone(row.data)
			_, err := Ensure(t.Context(), m, Options{}, start)
			if row.says == "" && err != nil || row.says != "" && (err == nil || !strings.Contains(err.Error(), row.says)) {
				t.Errorf("%v, want %q", err, row.says)
			}
			if !maps.EqualFunc(m.secrets[row.secret], row.data, bytes.Equal) {
				t.Errorf("%s was changed", row.secret)
			}
		})
	}
	m := newMemory()
	ensure(t, m, Options{KeysOnly: true}, start)
	if got := slices.Sorted(maps.Keys(m.secrets)); !slices.Equal(got, Names(true)) {
		t.Errorf("keys only: %v", got)
	}
}

// Two that start at once: one of them is refused, and finds the other's CA when it tries again.
func TestTwoAtOnce(t *testing.T) {
	m := newMemory()
	m.steal = func() { ensure(t, m, Options{}, start) }
	if _, err := Ensure(t.Context(), m, Options{}, start); err == nil || !strings.Contains(err.Error(), "conflict") {
		t.Fatalf("the second one: %v", err)
	}
	before := m.copy()
	if changes := ensure(t, m, Options{}, start); len(changes) > 0 || !maps.EqualFunc(before, m.secrets, func(a, b map[string][]byte) bool { return maps.EqualFunc(a, b, bytes.Equal) }) {
		t.Errorf("again: %v", changes)
	}
}

// A run every 20 days for thirty years. What any process shows, any other accepts, also one that has the Secret of the run before, and a
// member of the control store that read its bundle years ago.
func TestEveryRotationOverlaps(t *testing.T) {
	m := newMemory()
	ensure(t, m, Options{}, start)
	old := m.copy()
	atStart, startedAt := m.copy()[SecretEtcd][keyBundle], start
	rotations := 0
	for now := start; now.Before(start.AddDate(30, 0, 0)); now = now.Add(20 * 24 * time.Hour) {
		for _, c := range ensure(t, m, Options{}, now) {
			if strings.Contains(c.What, "signs from now on") {
				rotations++
			}
		}
		if now.Sub(startedAt) > 5*365*24*time.Hour {
			atStart, startedAt = m.secrets[SecretEtcd][keyBundle], now
		}
		for _, secret := range []string{SecretShard, SecretOperator, SecretEtcdPeer} {
			late := &memory{secrets: map[string]map[string][]byte{secret: m.secrets[secret], "late": old[SecretShard], "etcd": {keyBundle: atStart}}}
			for _, bundle := range []string{"late", "etcd"} {
				if err := late.verify(t, secret, bundle, "", x509.ExtKeyUsageAny, now); err != nil {
					t.Fatalf("%s: %s is refused by %s: %v", now, secret, bundle, err)
				}
			}
			late = &memory{secrets: map[string]map[string][]byte{secret: old[secret], "new": m.secrets[SecretShard]}}
			if err := late.verify(t, secret, "new", "", x509.ExtKeyUsageAny, now); err != nil {
				t.Fatalf("%s: the %s of before is refused: %v", now, secret, err)
			}
		}
		old = m.copy()
	}
	if rotations < 2 {
		t.Errorf("%d rotations of the CA in thirty years", rotations)
	}
	if n := bytes.Count(m.secrets[SecretCA][keyBundle], []byte("BEGIN")); n > 3 {
		t.Errorf("%d CAs are trusted", n)
	}
}

func TestRotationByHand(t *testing.T) {
	m := newMemory()
	ensure(t, m, Options{}, start)
	before := m.copy()
	ensure(t, m, Options{RotateCA: true}, start.Add(time.Hour))
	if bytes.Equal(before[SecretCA][keyCert], m.secrets[SecretCA][keyCert]) || !bytes.Equal(before[SecretCA][keyNextCert], m.secrets[SecretCA][keyCert]) {
		t.Error("the next CA does not sign")
	}
	if n := bytes.Count(m.secrets[SecretCA][keyBundle], []byte("BEGIN")); n != 3 {
		t.Errorf("%d CAs are trusted: the one before, this one, the next", n)
	}
	if _, err := Ensure(t.Context(), m, Options{RotateCA: true}, start.Add(2*time.Hour)); err == nil || !strings.Contains(err.Error(), "not trusted everywhere yet") {
		t.Errorf("again, at once: %v", err)
	}
	ensure(t, m, Options{}, start.Add(leafLife-leafRenew+time.Hour))
	ensure(t, m, Options{}, start.Add(leafLife+4*time.Hour))
	if n := bytes.Count(m.secrets[SecretShard][keyBundle], []byte("BEGIN")); n != 2 {
		t.Errorf("%d CAs are trusted after all certificates of the old one are gone", n)
	}
	for _, l := range leaves(Options{}) {
		if err := m.verify(t, l.secret, SecretShard, "", x509.ExtKeyUsageAny, start.Add(leafLife+4*time.Hour)); err != nil {
			t.Error(l.secret, err)
		}
	}
	// The CA is lost: what the lost one signed is issued anew, for nobody could renew it.
	delete(m.secrets, SecretCA)
	if changes := ensure(t, m, Options{}, start.Add(leafLife+5*time.Hour)); len(changes) != 6 {
		t.Errorf("the CA is lost: %v", changes)
	}
}

func TestDirectory(t *testing.T) {
	dir := Directory(t.TempDir())
	ensure(t, dir, Options{Hosts: []string{net.IPv4(10, 1, 2, 3).String()}}, time.Now())
	if changes := ensure(t, dir, Options{Hosts: []string{"10.1.2.3"}}, time.Now()); len(changes) > 0 {
		t.Errorf("again: %v", changes)
	}
	if changes := ensure(t, dir, Options{Hosts: []string{"10.1.2.3"}}, time.Now().Add(leafLife)); len(changes) != 5 {
		t.Errorf("later: %v", changes)
	}
}
