// Package certs reloads TLS files for each handshake, so that keys and CAs can be rotated without a restart: replace the files with
// a new certificate of the same CA, or move to another CA through a bundle that contains both. Existing connections are not
// affected.
//
// It makes one decision. If the files cannot be read, or do not match because only some of them have been replaced so far, the
// files read last stay in use, and the problem is logged. Only at the start is this an error.
package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/credentials"
)

// Files names the files. CA, or Cert and Key, may be empty: then there is none.
type Files struct {
	CA, Cert, Key string
	Log           *slog.Logger // slog.Default() if nil

	mu     sync.Mutex
	last   *Loaded
	failed string // the error that was logged last
}

// Loaded is what the files held. Either may be nil, when there is no file for it.
type Loaded struct {
	Certificate *tls.Certificate
	CA          *x509.CertPool
}

// Load reads the files. A certificate that is over is an error: nobody would take it.
func (f *Files) Load() (*Loaded, error) {
	l := &Loaded{}
	if f.Cert != "" || f.Key != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("read certificate %s and key %s: %w", f.Cert, f.Key, err)
		}
		if now := time.Now(); now.After(pair.Leaf.NotAfter) {
			return nil, fmt.Errorf("certificate %s expired at %s", f.Cert, pair.Leaf.NotAfter.Format(time.RFC3339))
		}
		l.Certificate = &pair
	}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("read CA: %w", err)
		}
		l.CA = x509.NewCertPool()
		if !l.CA.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read CA %s: no certificate in it", f.CA)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed != "" {
		f.log().Info("TLS files loaded again", "certificate", f.Cert, "ca", f.CA)
	}
	f.last, f.failed = l, ""
	return l, nil
}

// Current reads the files, and gives what it read before when they cannot be read now.
func (f *Files) Current() (*Loaded, error) {
	l, err := f.Load()
	if err == nil {
		return l, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil {
		return nil, err
	}
	if f.failed != err.Error() {
		f.failed = err.Error()
		f.log().Error("cannot load the TLS files, keeping the previous ones", "error", err)
	}
	return f.last, nil
}

func (f *Files) log() *slog.Logger {
	if f.Log == nil {
		return slog.Default()
	}
	return f.Log
}

// Credentials make a configuration for each handshake, of either end. Handshakes that peers fail are logged, some of them.
func Credentials(config func() (*tls.Config, error), log *slog.Logger) credentials.TransportCredentials {
	return &rotating{config: config, log: log, sometimes: &rate.Sometimes{First: 10, Interval: 10 * time.Second}}
}

type rotating struct {
	config    func() (*tls.Config, error)
	log       *slog.Logger
	sometimes *rate.Sometimes // a line for each of a scanner's connections would fill the disk
}

func (r *rotating) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := r.config()
	if err != nil {
		return nil, nil, err
	}
	if config.ServerName != "" {
		authority = config.ServerName
	}
	secure, auth, err := credentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
	if err == nil {
		secure = explained{secure}
	}
	return secure, auth, err
}

// explained says why a server refused us: in TLS 1.3 it looks at our certificate when our handshake is over, and what we write
// then may fail, as a broken pipe, before anybody reads its reason.
type explained struct{ net.Conn }

func (c explained) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err != nil {
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		if _, reason := c.Read(make([]byte, 1)); reason != nil && strings.Contains(reason.Error(), "tls: ") {
			err = reason
		}
	}
	return n, err
}

func (r *rotating) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := r.config()
	if err != nil {
		return nil, nil, err
	}
	secure, auth, err := credentials.NewTLS(config).ServerHandshake(conn)
	if err != nil && !errors.Is(err, io.EOF) { // EOF: somebody asked whether the port is open
		r.sometimes.Do(func() {
			r.log.Warn("rejected a connection: TLS handshake failed", "remote", conn.RemoteAddr(), "error", err)
		})
	}
	return secure, auth, err
}

func (r *rotating) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls", SecurityVersion: "1.3"}
}

func (r *rotating) Clone() credentials.TransportCredentials { return r }

func (r *rotating) OverrideServerName(string) error { return nil }
