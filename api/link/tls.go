package link

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc/credentials"
)

// TLS names the files of mutual TLS. They are read again at each handshake, so that keys can be rotated while processes
// run. Who shows a certificate of this CA that carries ServerName is a process of this Basalt: addresses of pods change,
// so no address is checked. The CA must sign for nobody else.
type TLS struct {
	CertFile, KeyFile, CAFile string
	ServerName                string // a DNS name in every process's certificate; "basalt" if empty
}

// Check reads the files once.
func (t *TLS) Check() error {
	_, err := t.config()
	return err
}

// config reads the files; it serves both ends.
func (t *TLS) config() (*tls.Config, error) {
	if t.CertFile == "" || t.KeyFile == "" || t.CAFile == "" {
		return nil, errors.New("read TLS files: a certificate, a key and a CA are needed")
	}
	pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read TLS files %s and %s: %w", t.CertFile, t.KeyFile, err)
	}
	pem, err := os.ReadFile(t.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read CA %s: no certificate in it", t.CAFile)
	}
	name := t.ServerName
	if name == "" {
		name = "basalt"
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, RootCAs: pool, ServerName: name,
		ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		// A session that is resumed would go on after its CA was taken away.
		SessionTicketsDisabled: true,
		VerifyConnection: func(c tls.ConnectionState) error {
			if len(c.PeerCertificates) == 0 {
				return errors.New("the peer showed no certificate")
			}
			return c.PeerCertificates[0].VerifyHostname(name)
		},
	}, nil
}

// Credentials are for both ends of a connection.
func (t *TLS) Credentials() credentials.TransportCredentials { return rotating{t} }

type rotating struct{ files *TLS }

func (r rotating) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := r.files.config()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, config.ServerName, conn)
}

func (r rotating) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := r.files.config()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(config).ServerHandshake(conn)
}

func (r rotating) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls", SecurityVersion: "1.3", ServerName: r.files.ServerName}
}

func (r rotating) Clone() credentials.TransportCredentials { return r }

func (r rotating) OverrideServerName(string) error { return nil }
