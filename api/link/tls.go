package link

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"google.golang.org/grpc/credentials"

	"basalt.dev/basalt/api/certs"
)

// TLS names the files of mutual TLS. They are read again at each handshake, so that keys and CAs can be rotated while
// processes run. A certificate of this CA for certs.NameProcess is of a process of this Basalt, one for certs.NameOperator of
// an operator, who may only ask: addresses of pods change, so no address is checked. The CA must sign for nobody else. Which
// process it is, a certificate does not tell: see proof.go.
type TLS struct {
	CertFile, KeyFile, CAFile string
	Log                       *slog.Logger // hears of connections that were refused; slog.Default() if nil

	once  sync.Once
	files *certs.Files
}

// Check reads the files once.
func (t *TLS) Check() error {
	if t.CertFile == "" || t.KeyFile == "" || t.CAFile == "" {
		return errors.New("read TLS files: a certificate, a key and a CA are needed")
	}
	if _, err := t.read().Load(); err != nil {
		return fmt.Errorf("read TLS files: %w", err)
	}
	return nil
}

func (t *TLS) read() *certs.Files {
	t.once.Do(func() { t.files = &certs.Files{CA: t.CAFile, Cert: t.CertFile, Key: t.KeyFile, Log: t.Log} })
	return t.files
}

// config reads the files; it serves both ends.
func (t *TLS) config() (*tls.Config, error) {
	loaded, err := t.read().Current()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*loaded.Certificate}, RootCAs: loaded.CA, ServerName: certs.NameProcess,
		ClientCAs: loaded.CA, ClientAuth: tls.RequireAndVerifyClientCert,
		// Shown even to a server that takes it for a stranger's: it can say so then.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return loaded.Certificate, nil },
		// A session that is resumed would go on after its CA was taken away.
		SessionTicketsDisabled: true,
		VerifyConnection: func(c tls.ConnectionState) error {
			if len(c.PeerCertificates) == 0 {
				return errors.New("the peer showed no certificate")
			}
			// A server must be a process: that is checked before, against ServerName.
			leaf := c.PeerCertificates[0]
			err := leaf.VerifyHostname(certs.NameProcess)
			if err != nil && leaf.VerifyHostname(certs.NameOperator) == nil {
				err = nil
			}
			return err
		},
	}, nil
}

// Server returns a configuration for a server whose clients need no certificate. One that they show is not verified,
// but for their having its key: it may be of another CA.
func (t *TLS) Server() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			loaded, err := t.read().Current()
			if err != nil {
				return nil, err
			}
			return loaded.Certificate, nil
		}}
}

// Credentials are for both ends of a connection.
func (t *TLS) Credentials() credentials.TransportCredentials {
	return certs.Credentials(t.config, cmp.Or(t.Log, slog.Default()))
}
