// Package issue creates the keys of an installation as Secrets: a CA, a certificate for each role, the gossip key and
// the metrics token. It creates what is missing and renews certificates before they expire. And it tells the API server
// which CA shards' certificates are of.
//
// It decides when something is issued. It owns the Secrets that Names lists, and no others, and spec.caBundle of the
// APIService. A certificate that another issuer put into a Secret is left alone.
//
// Invariants:
//   - An existing key or token is never replaced. A certificate is replaced only by one with the same names and a later expiry.
//   - Every bundle contains the next CA from the beginning. So a process that reads its bundle only at its start (etcd) trusts the
//     next CA if it was started within the eight years before that CA signs anything.
//   - A Secret that has changed since it was read is not written, so two instances that run at once do not mix their keys.
package issue

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"basalt.dev/basalt/api/certs"
)

// Secrets, by what they hold.
const (
	SecretCA          = "basalt-ca"
	SecretShard       = "basalt-shard-tls"
	SecretCoordinator = "basalt-coordinator-tls"
	SecretOperator    = "basalt-operator-tls"
	SecretEtcd        = "basalt-etcd-tls"
	SecretEtcdPeer    = "basalt-etcd-peer-tls"
	SecretGossip      = "basalt-gossip-key"
	SecretMetrics     = "basalt-metrics-token"
)

// Keys of Secrets. Those of certificates are cert-manager's.
const (
	keyBundle   = "ca.crt"
	keyCert     = "tls.crt"
	keyKey      = "tls.key"
	keyNextCert = "next.crt" // of the CA that signs after this one
	keyNextKey  = "next.key"
	keyRotated  = "rotated" // when the signing CA took over, RFC 3339
	keyGossip   = "key"
	keyToken    = "token"
)

// How long things last.
const (
	caLife     = 10 * 365 * 24 * time.Hour
	nextCALife = 2 * caLife // it waits for most of the life of the one before
	caRenew    = 2 * 365 * 24 * time.Hour
	leafLife   = 90 * 24 * time.Hour
	leafRenew  = leafLife / 3
	skew       = time.Hour // that the clock of another machine may be behind

	rotateAgain = 24 * time.Hour // from one rotation of the CA by hand to the next
)

// etcdService is the headless Service of deploy/etcd.yaml, and the names of its members lie under it.
const etcdService = "basalt-etcd"

// Store keeps Secrets.
type Store interface {
	// Get returns a Secret's data, which may be empty, and its version.
	Get(ctx context.Context, name string) (data map[string][]byte, version string, err error)
	// Put replaces a Secret's data. It fails when the Secret is of another version.
	Put(ctx context.Context, name string, data map[string][]byte, version string) error
}

// Options say what to issue.
type Options struct {
	Namespace string   // of the control store and of the shards
	Hosts     []string // more DNS names and IP addresses of the control store's members
	KeysOnly  bool     // only the gossip key and the metrics token: another issuer makes certificates
	RotateCA  bool     // let the next CA sign from now on

	// Publish tells others which CAs verify shards' certificates, and reports whether they knew others. It may be
	// nil, and is not called with KeysOnly.
	Publish func(ctx context.Context, bundle []byte) (changed bool, err error)
}

// Change is something that was issued, or that could not be used.
type Change struct{ Secret, What string }

// PublishedAs is the name in a Change of what Publish changed.
const PublishedAs = "APIService " + APIServiceName

// Names returns the Secrets that Ensure reads and writes.
func Names(keysOnly bool) []string {
	keys := []string{SecretGossip, SecretMetrics}
	if keysOnly {
		return keys
	}
	return append([]string{SecretCA, SecretShard, SecretCoordinator, SecretOperator, SecretEtcd, SecretEtcdPeer}, keys...)
}

// Ensure issues what is missing or about to expire, and returns what it did. An error leaves what was done before it; calling
// it again goes on from there.
func Ensure(ctx context.Context, s Store, o Options, now time.Time) (changes []Change, err error) {
	e := ensurer{store: s, now: now}
	if !o.KeysOnly {
		ca, err := e.authority(ctx, o.RotateCA)
		if err != nil {
			return e.changes, err
		}
		for _, l := range leaves(o) {
			if err := e.leaf(ctx, ca, l); err != nil {
				return e.changes, err
			}
		}
	}
	if err := e.secret(ctx, SecretGossip, keyGossip); err != nil {
		return e.changes, err
	}
	if err := e.secret(ctx, SecretMetrics, keyToken); err != nil {
		return e.changes, err
	}
	return e.changes, e.publish(ctx, o)
}

type ensurer struct {
	store   Store
	now     time.Time
	changes []Change
}

func (e *ensurer) changed(secret, format string, args ...any) {
	e.changes = append(e.changes, Change{secret, fmt.Sprintf(format, args...)})
}

func (e *ensurer) get(ctx context.Context, name string) (map[string][]byte, string, error) {
	data, version, err := e.store.Get(ctx, name)
	if err != nil {
		return nil, "", fmt.Errorf("read secret %s: %w", name, err)
	}
	out := map[string][]byte{}
	for k, v := range data {
		out[k] = v
	}
	return out, version, nil
}

func (e *ensurer) put(ctx context.Context, name string, data map[string][]byte, version string) error {
	if err := e.store.Put(ctx, name, data, version); err != nil {
		return fmt.Errorf("write secret %s: %w", name, err)
	}
	return nil
}

// secret fills a Secret with 32 random bytes in base64.
func (e *ensurer) secret(ctx context.Context, name, key string) error {
	data, version, err := e.get(ctx, name)
	if err != nil || len(bytes.TrimSpace(data[key])) > 0 {
		return err
	}
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	data[key] = []byte(base64.StdEncoding.EncodeToString(b) + "\n")
	if err := e.put(ctx, name, data, version); err != nil {
		return err
	}
	e.changed(name, "made %s", key)
	return nil
}

// publish hands out the bundle that goes with the shards' certificate, whoever has issued it.
func (e *ensurer) publish(ctx context.Context, o Options) error {
	if o.Publish == nil || o.KeysOnly {
		return nil
	}
	data, _, err := e.get(ctx, SecretShard)
	if err != nil || len(data[keyBundle]) == 0 {
		return err
	}
	changed, err := o.Publish(ctx, data[keyBundle])
	if err != nil {
		return fmt.Errorf("write %s: %w", PublishedAs, err)
	}
	if changed {
		e.changed(PublishedAs, "the bundle of CAs is another")
	}
	return nil
}

// authority is what signs, and what everybody trusts.
type authority struct {
	signing *pair
	bundle  []byte
	trusted []*pair // without keys: those of the bundle
}

// authority returns the CA. It makes one if there is none, and lets the next one sign when the time of the first is nearly up.
func (e *ensurer) authority(ctx context.Context, rotate bool) (*authority, error) {
	data, version, err := e.get(ctx, SecretCA)
	if err != nil {
		return nil, err
	}
	write := false
	signing, err := readOrMake(data, keyCert, keyKey, func() (*pair, error) { return newCA(e.now, caLife) }, &write)
	if err != nil {
		return nil, fmt.Errorf("read secret %s: %w", SecretCA, err)
	}
	if write {
		e.changed(SecretCA, "made a CA, valid until %s", day(signing.cert.NotAfter))
	}
	nextMissing := len(data[keyNextCert]) == 0
	newNext := func() (*pair, error) { return newCA(e.now, nextCALife) }
	next, err := readOrMake(data, keyNextCert, keyNextKey, newNext, &write)
	if err != nil {
		return nil, fmt.Errorf("read secret %s: %w", SecretCA, err)
	}
	old, err := parseBundle(data[keyBundle])
	if err != nil {
		return nil, fmt.Errorf("read secret %s: %s: %w", SecretCA, keyBundle, err)
	}
	rotated, _ := time.Parse(time.RFC3339, string(data[keyRotated]))
	due := signing.cert.NotAfter.Sub(e.now) < caRenew && !nextMissing // else at the next run: it must be in the bundles first
	switch {
	case rotate && (nextMissing || e.now.Sub(rotated) < rotateAgain):
		return nil, fmt.Errorf("rotate CA: the next CA is not trusted everywhere yet: wait for %s, and restart the control store's members one by one", rotateAgain)
	case rotate || due:
		old, rotated = append(old, signing), e.now
		signing = next
		if next, err = newNext(); err != nil {
			return nil, err
		}
		data[keyRotated] = []byte(rotated.UTC().Format(time.RFC3339))
		write = true
		e.changed(SecretCA, "the next CA signs from now on, until %s", day(signing.cert.NotAfter))
	}
	signing.put(data, keyCert, keyKey)
	next.put(data, keyNextCert, keyNextKey)

	a := &authority{signing: signing, trusted: []*pair{signing, next}}
	// One that signs no more stays as long as what it signed may be in use.
	for _, ca := range old {
		retired := !rotated.IsZero() && e.now.Sub(rotated) > leafLife+skew
		if !retired && e.now.Before(ca.cert.NotAfter) && !a.trusts(ca) {
			a.trusted = append(a.trusted, ca)
		}
	}
	for _, ca := range a.trusted {
		a.bundle = append(a.bundle, ca.certPEM...)
	}
	if !bytes.Equal(a.bundle, data[keyBundle]) {
		data[keyBundle] = a.bundle
		write = true
	}
	if write {
		err = e.put(ctx, SecretCA, data, version)
	}
	return a, err
}

func (a *authority) trusts(ca *pair) bool {
	return slices.ContainsFunc(a.trusted, func(t *pair) bool { return t.cert.Equal(ca.cert) })
}

// readOrMake reads a certificate and its key. Both or none must be there.
func readOrMake(data map[string][]byte, cert, key string, make func() (*pair, error), made *bool) (*pair, error) {
	hasCert, hasKey := len(data[cert]) > 0, len(data[key]) > 0
	switch {
	case hasCert && hasKey:
		p, err := parsePair(data[cert], data[key])
		if err == nil && !p.cert.IsCA {
			err = errors.New("not the certificate of a CA")
		}
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", cert, key, err)
		}
		return p, nil
	case hasCert || hasKey:
		return nil, fmt.Errorf("%s and %s: one of them is missing; it is not replaced: complete or remove both", cert, key)
	}
	*made = true
	return make()
}

// leaf is a certificate of a role.
type leaf struct {
	secret         string
	names          []string
	addresses      []net.IP
	server, client bool // what it may be used for
}

func leaves(o Options) []leaf {
	namespace := cmp.Or(o.Namespace, "basalt-system")
	domain := etcdService + "." + namespace + ".svc"
	hosts := []string{"*." + domain, domain, etcdService, "localhost"}
	addresses := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	for _, h := range o.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			addresses = append(addresses, ip)
		} else {
			hosts = append(hosts, h)
		}
	}
	return []leaf{
		{SecretShard, []string{certs.NameProcess, certs.NameShard, certs.NameVisibility(namespace)}, nil, true, true},
		{SecretCoordinator, []string{certs.NameProcess, certs.NameCoordinator}, nil, true, true},
		{SecretOperator, []string{certs.NameOperator}, nil, false, true},
		{SecretEtcd, hosts, addresses, true, false},
		{SecretEtcdPeer, append([]string{certs.NameStorePeer}, hosts...), addresses, true, true},
	}
}

// leaf issues a certificate where there is none or where it has to be renewed, and hands the bundle out.
func (e *ensurer) leaf(ctx context.Context, ca *authority, l leaf) error {
	data, version, err := e.get(ctx, l.secret)
	if err != nil {
		return err
	}
	why, err := e.reason(ca, l, data)
	if err != nil {
		return fmt.Errorf("read secret %s: %w", l.secret, err)
	}
	switch {
	case why == foreign:
		e.changed(l.secret, "left alone: its certificate is of another issuer")
		return nil
	case why != "":
		p, err := ca.issue(l, e.now)
		if err != nil {
			return fmt.Errorf("issue %s: %w", l.secret, err)
		}
		p.put(data, keyCert, keyKey)
		e.changed(l.secret, "issued a certificate for %s, valid until %s: %s", strings.Join(l.names, ", "), day(p.cert.NotAfter), why)
	case bytes.Equal(data[keyBundle], ca.bundle):
		return nil
	default:
		e.changed(l.secret, "the bundle of CAs is another")
	}
	data[keyBundle] = ca.bundle
	return e.put(ctx, l.secret, data, version)
}

const foreign = "foreign"

// reason returns why a certificate has to be issued, "" if it has not.
func (e *ensurer) reason(ca *authority, l leaf, data map[string][]byte) (string, error) {
	if len(data[keyCert]) == 0 && len(data[keyKey]) == 0 {
		return "there was none", nil
	}
	p, err := parsePair(data[keyCert], data[keyKey])
	if err != nil {
		return "", fmt.Errorf("%s and %s are not replaced, remove them to have new ones: %w", keyCert, keyKey, err)
	}
	same := func(a, b net.IP) bool { return a.Equal(b) }
	switch {
	case !strings.HasPrefix(p.cert.Issuer.CommonName, caName):
		return foreign, nil
	case !slices.ContainsFunc(ca.trusted, func(t *pair) bool { return p.cert.CheckSignatureFrom(t.cert) == nil }):
		return "the CA of the one before is trusted no more", nil
	case p.cert.NotAfter.Sub(e.now) < leafRenew:
		return "the one before expires soon", nil
	case !slices.Equal(p.cert.DNSNames, l.names) || !slices.EqualFunc(p.cert.IPAddresses, l.addresses, same):
		return "it has other names than the one before", nil
	}
	return "", nil
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// Expiries returns when the certificates in the Secrets expire, by Secret. One that holds none is left out.
func Expiries(ctx context.Context, s Store) (map[string]time.Time, error) {
	out := map[string]time.Time{}
	for _, name := range Names(false) {
		data, _, err := s.Get(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("read secret %s: %w", name, err)
		}
		certificates, err := parseBundle(data[keyCert])
		if err != nil {
			return nil, fmt.Errorf("read secret %s: %s: %w", name, keyCert, err)
		}
		for _, c := range certificates { // of a chain, the first to expire
			if at, known := out[name]; !known || c.cert.NotAfter.Before(at) {
				out[name] = c.cert.NotAfter
			}
		}
	}
	return out, nil
}
