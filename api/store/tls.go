package store

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"google.golang.org/grpc/credentials"

	"basalt.dev/basalt/api/certs"
)

// ClientTLS makes what a client of the control store needs from the files that --etcd-ca, --etcd-cert and --etcd-key name;
// nil when none is named. They are read again at each handshake: certificates rotate, and CAs too.
func ClientTLS(endpoints []string, ca, cert, key string, log *slog.Logger) (credentials.TransportCredentials, error) {
	if (cert == "") != (key == "") {
		return nil, errors.New("--etcd-cert and --etcd-key belong together")
	}
	if ca == "" && cert == "" {
		return nil, nil
	}
	for _, e := range endpoints {
		if strings.HasPrefix(e, "http://") {
			return nil, fmt.Errorf("--etcd %s would not be encrypted: with --etcd-ca or --etcd-cert it has to be https://", e)
		}
	}
	files := &certs.Files{CA: ca, Cert: cert, Key: key, Log: log}
	if _, err := files.Load(); err != nil {
		return nil, fmt.Errorf("--etcd-ca, --etcd-cert, --etcd-key: %w", err)
	}
	return certs.Credentials(func() (*tls.Config, error) {
		loaded, err := files.Current()
		if err != nil {
			return nil, err
		}
		config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: loaded.CA}
		if loaded.Certificate != nil {
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return loaded.Certificate, nil }
		}
		return config, nil
	}, log), nil
}
