package local

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Users of a local cluster.
const (
	// Admin may do everything.
	Admin = "admin"
	// ControllerManager and Scheduler are kube-controller-manager and kube-scheduler.
	ControllerManager = "system:kube-controller-manager"
	Scheduler         = "system:kube-scheduler"
	// Shard and Coordinator are the service accounts of deploy/, so its roles hold here unchanged.
	Shard       = "system:serviceaccount:basalt-system:basalt-shard"
	Coordinator = "system:serviceaccount:basalt-system:basalt-coordinator"
	// Load and NodeStandIn may do everything too; their names tell their writes apart in the audit log.
	Load        = "bench-load"
	NodeStandIn = "node-stand-in"
)

type users struct {
	file   string
	tokens map[string]string
}

func tokenFile(dir string) string { return filepath.Join(dir, "tokens.csv") }

func makeUsers(dir string) (users, error) {
	const masters = "system:masters"
	const account = "system:serviceaccounts,system:serviceaccounts:basalt-system"
	u := users{file: tokenFile(dir), tokens: map[string]string{}}
	var b strings.Builder
	for _, user := range []struct{ name, groups string }{
		{Admin, masters}, {Load, masters}, {NodeStandIn, masters}, {ControllerManager, ""}, {Scheduler, ""}, {Shard, account}, {Coordinator, account},
	} {
		token := randomHex(16)
		u.tokens[user.name] = token
		fmt.Fprintf(&b, "%s,%s,%s,%q\n", token, user.name, user.name, user.groups)
	}
	if err := os.WriteFile(u.file, []byte(b.String()), 0o600); err != nil {
		return users{}, fmt.Errorf("write tokens: %w", err)
	}
	return u, nil
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// keys are the paths of what the API server and the controller manager need.
type keys struct {
	ca, serverCert, serverKey, serviceAccount string
	caPEM                                     []byte
}

func keysIn(dir string) keys {
	return keys{
		ca: filepath.Join(dir, "ca.crt"), serverCert: filepath.Join(dir, "server.crt"),
		serverKey: filepath.Join(dir, "server.key"), serviceAccount: filepath.Join(dir, "service-account.key"),
	}
}

func makeKeys(dir string, server net.IP) (keys, error) {
	k := keysIn(dir)
	fail := func(err error) (keys, error) { return keys{}, fmt.Errorf("make keys: %w", err) }
	var private [3]*ecdsa.PrivateKey
	var encoded [3][]byte
	for i := range private {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return fail(err)
		}
		der, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			return fail(err)
		}
		private[i] = key
		encoded[i] = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	}
	caKey, serverKey := private[0], private[1]
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "basalt-local"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	serverCert := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "kube-apiserver"},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1), server},
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return fail(err)
	}
	serverDER, err := x509.CreateCertificate(rand.Reader, serverCert, ca, serverKey.Public(), caKey)
	if err != nil {
		return fail(err)
	}
	k.caPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})
	for path, content := range map[string][]byte{
		k.ca:             k.caPEM,
		k.serverCert:     pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: serverDER}),
		k.serverKey:      encoded[1],
		k.serviceAccount: encoded[2],
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return fail(err)
		}
	}
	return k, nil
}

// Kubeconfig writes a kubeconfig for a user, once, and returns its path.
func (c *Cluster) Kubeconfig(user string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if path, ok := c.configs[user]; ok {
		return path, nil
	}
	cfg := c.Config(user)
	const name = "basalt-local"
	path := filepath.Join(c.dir, "kubeconfig-"+user[strings.LastIndexByte(user, ':')+1:])
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: cfg.Host, CertificateAuthorityData: cfg.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {Token: cfg.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: user}},
		CurrentContext: name,
	}, path)
	if err != nil {
		return "", fmt.Errorf("write kubeconfig of %s: %w", user, err)
	}
	c.configs[user] = path
	return path, nil
}
