// Package certstest makes a certificate authority and what it signs, for tests. Nothing of it leaves the test's memory
// unless the test writes it.
package certstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"slices"
	"testing"
	"time"
)

// CA is a certificate authority.
type CA struct {
	t      testing.TB
	key    *ecdsa.PrivateKey
	cert   *x509.Certificate
	serial int64
}

// New makes one that is good for a day.
func New(t testing.TB, name string) *CA {
	t.Helper()
	ca := &CA{t: t, key: newKey(t), serial: 1}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	ca.cert = ca.sign(template, template, ca.key)
	return ca
}

// PEM returns the authority's own certificate.
func (ca *CA) PEM() []byte { return encode("CERTIFICATE", ca.cert.Raw) }

// Leaf signs a certificate of DNS names and of this machine, for servers and clients.
func (ca *CA) Leaf(until time.Time, names ...string) (cert, private []byte) {
	ca.t.Helper()
	key := newKey(ca.t)
	ca.serial++
	leaf := ca.sign(&x509.Certificate{
		SerialNumber: big.NewInt(ca.serial), Subject: pkix.Name{CommonName: names[0]}, NotAfter: until,
		DNSNames: append(slices.Clone(names), "localhost"), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, ca.cert, key)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		ca.t.Fatal(err)
	}
	return encode("CERTIFICATE", leaf.Raw), encode("EC PRIVATE KEY", der)
}

func (ca *CA) sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	ca.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), ca.key)
	if err != nil {
		ca.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		ca.t.Fatal(err)
	}
	return cert
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
