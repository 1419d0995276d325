package certs

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type authority struct {
	t    *testing.T
	name string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	n    int64
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{t, name, key, cert, 1}
}

func (a *authority) bundle() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a *authority) sign(name string, until time.Time) (cert, private []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	a.n++
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(a.n), Subject: pkix.Name{CommonName: a.name}, DNSNames: []string{name}, NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	bytes, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: bytes})
}

func TestFilesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	var log strings.Builder
	f := &Files{CA: filepath.Join(dir, "ca"), Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), Log: slog.New(slog.NewTextHandler(&log, nil))}
	write := func(path string, data []byte) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	one, two := newAuthority(t, "one"), newAuthority(t, "two")
	later := time.Now().Add(time.Hour)

	if _, err := f.Current(); err == nil || !strings.Contains(err.Error(), f.Cert) {
		t.Errorf("nothing there: %v", err)
	}
	cert, key := one.sign("x", later)
	write(f.Cert, cert)
	write(f.Key, key)
	write(f.CA, one.bundle())
	issuer := func(when, want string) {
		t.Helper()
		l, err := f.Current()
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Certificate.Leaf.Issuer.CommonName; got != want {
			t.Errorf("%s: the certificate is of %s, want %s", when, got, want)
		}
	}
	issuer("at the start", "one")
	// Half replaced: what was read last stays, and once that is said.
	cert, key = two.sign("x", later)
	write(f.Cert, cert)
	issuer("half replaced", "one")
	issuer("still half replaced", "one")
	if n := strings.Count(log.String(), "cannot be used"); n != 1 {
		t.Errorf("said %d times:\n%s", n, log.String())
	}
	write(f.Key, key)
	issuer("replaced", "two")
	if !strings.Contains(log.String(), "can be read again") {
		t.Errorf("nothing of the end:\n%s", log.String())
	}
	for name, data := range map[string][]byte{"removed": nil, "empty": {}, "rubbish": []byte("rubbish")} {
		if data == nil {
			if err := os.Remove(f.CA); err != nil {
				t.Fatal(err)
			}
		} else {
			write(f.CA, data)
		}
		if _, err := f.Load(); err == nil || !strings.Contains(err.Error(), f.CA) {
			t.Errorf("CA %s: %v", name, err)
		}
		issuer("CA "+name, "two")
	}
	write(f.CA, one.bundle())
	cert, key = one.sign("x", time.Now().Add(-time.Second))
	write(f.Cert, cert)
	write(f.Key, key)
	if _, err := f.Load(); err == nil || !strings.Contains(err.Error(), "expired at") {
		t.Errorf("expired: %v", err)
	}
}

// A handshake for each state of a rotation from one CA to another, with a server of the old and of the new.
func TestRotationOfTheCA(t *testing.T) {
	one, two := newAuthority(t, "one"), newAuthority(t, "two")
	later := time.Now().Add(time.Hour)
	end := func(ca []byte, of *authority) func() (*tls.Config, error) {
		dir := t.TempDir()
		f := &Files{CA: filepath.Join(dir, "ca"), Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")}
		cert, key := of.sign("x", later)
		for path, data := range map[string][]byte{f.CA: ca, f.Cert: cert, f.Key: key} {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return func() (*tls.Config, error) {
			l, err := f.Current()
			if err != nil {
				return nil, err
			}
			return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: l.CA, ClientCAs: l.CA, ClientAuth: tls.RequireAndVerifyClientCert, Certificates: []tls.Certificate{*l.Certificate}}, nil
		}
	}
	both := append(one.bundle(), two.bundle()...)
	before, bundle, leaf, after := end(one.bundle(), one), end(both, one), end(both, two), end(two.bundle(), two)
	for _, row := range []struct {
		name           string
		client, server func() (*tls.Config, error)
		ok             bool
	}{
		{"before", before, before, true}, {"bundle to before", bundle, before, true}, {"before to bundle", before, bundle, true},
		{"leaf to bundle", leaf, bundle, true}, {"bundle to leaf", bundle, leaf, true}, {"leaf to after", leaf, after, true},
		{"after to leaf", after, leaf, true}, {"after", after, after, true},
		{"before to after", before, after, false}, {"after to before", after, before, false}, {"leaf to before", leaf, before, false},
	} {
		var log strings.Builder
		client, server := Credentials(row.client, slog.Default()), Credentials(row.server, slog.New(slog.NewTextHandler(&log, nil)))
		here, there, err := pair()
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() {
			_, _, err := server.ServerHandshake(there)
			if err != nil {
				there.Close()
			}
			served <- err
		}()
		_, _, err = client.ClientHandshake(context.Background(), "x", here)
		if err != nil {
			here.Close()
		}
		serverErr := <-served
		if ok := err == nil && serverErr == nil; ok != row.ok {
			t.Errorf("%s: client %v, server %v", row.name, err, serverErr)
		}
		if !row.ok && !strings.Contains(log.String(), "refused a connection") {
			t.Errorf("%s: the server says nothing: %s", row.name, log.String())
		}
		here.Close()
		there.Close()
	}
}

// pair is a connection over TCP: over a pipe both ends would wait for each other's last word.
func pair() (a, b net.Conn, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		return nil, nil, err
	}
	b, err = l.Accept()
	return a, b, err
}
