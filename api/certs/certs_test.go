package certs

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"basalt.dev/basalt/api/certs/certstest"
	"basalt.dev/basalt/api/metric/metrictest"
)

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
	one, two := certstest.New(t, "one"), certstest.New(t, "two")
	later := time.Now().Add(time.Hour)

	if _, err := f.Current(); err == nil || !strings.Contains(err.Error(), f.Cert) {
		t.Errorf("nothing there: %v", err)
	}
	cert, key := one.Leaf(later, "x")
	write(f.Cert, cert)
	write(f.Key, key)
	write(f.CA, one.PEM())
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
	cert, key = two.Leaf(later, "x")
	write(f.Cert, cert)
	issuer("half replaced", "one")
	issuer("still half replaced", "one")
	if n := strings.Count(log.String(), "cannot load the TLS files"); n != 1 {
		t.Errorf("said %d times:\n%s", n, log.String())
	}
	write(f.Key, key)
	issuer("replaced", "two")
	if !strings.Contains(log.String(), "TLS files loaded again") {
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
	write(f.CA, one.PEM())
	cert, key = one.Leaf(time.Now().Add(-time.Second), "x")
	write(f.Cert, cert)
	write(f.Key, key)
	if _, err := f.Load(); err == nil || !strings.Contains(err.Error(), "expired at") {
		t.Errorf("expired: %v", err)
	}
}

// The expiry that is shown is that of the certificate that is in use.
func TestExpiries(t *testing.T) {
	dir, ca := t.TempDir(), certstest.New(t, "one")
	f := &Files{CA: filepath.Join(dir, "ca"), Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")}
	write := func(until time.Time) {
		t.Helper()
		cert, key := ca.Leaf(until, "x")
		for path, data := range map[string][]byte{f.CA: ca.PEM(), f.Cert: cert, f.Key: key} {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	show := func(l *Loaded) *tls.Config {
		return &tls.Config{GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return l.Certificate, nil
		}}
	}
	credentials := Credentials(func() (*tls.Config, error) {
		l, err := f.Current()
		if err != nil {
			return nil, err
		}
		return show(l), nil
	}, slog.Default())
	r := prometheus.NewRegistry()
	r.MustRegister(Expiries{"process": credentials, "control_store": nil})
	read := func() map[string]float64 {
		return metrictest.Samples(t, r, "basalt_certificate_expiry_timestamp_seconds")
	}
	if got := read(); len(got) != 0 {
		t.Errorf("no files: %v", got)
	}
	for _, until := range []time.Time{time.Now().Add(time.Hour), time.Now().Add(48 * time.Hour)} {
		write(until)
		if got := read(); len(got) != 1 || got["process "] != float64(until.Unix()) {
			t.Errorf("%v, want %d", got, until.Unix())
		}
	}
	kept := read()["process "]
	write(time.Now().Add(-time.Hour)) // nobody would take it: that of before stays in use
	if got := read()["process "]; got != kept {
		t.Errorf("%g, want %g", got, kept)
	}
	if _, shown := Expires(Credentials(func() (*tls.Config, error) { return show(&Loaded{}), nil }, nil)); shown {
		t.Error("no certificate, and it expires")
	}
}

// A handshake for each state of a rotation from one CA to another, with a server of the old and of the new.
func TestRotationOfTheCA(t *testing.T) {
	one, two := certstest.New(t, "one"), certstest.New(t, "two")
	later := time.Now().Add(time.Hour)
	end := func(ca []byte, of *certstest.CA) func() (*tls.Config, error) {
		dir := t.TempDir()
		f := &Files{CA: filepath.Join(dir, "ca"), Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")}
		cert, key := of.Leaf(later, "x")
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
	both := append(one.PEM(), two.PEM()...)
	before, bundle, leaf, after := end(one.PEM(), one), end(both, one), end(both, two), end(two.PEM(), two)
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
		if !row.ok && !strings.Contains(log.String(), "rejected a connection") {
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
