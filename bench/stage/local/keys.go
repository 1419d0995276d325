package local

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
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
	ca, caKey, serverCert, serverKey, serviceAccount string
	// Of the aggregator: a CA of its own, and its certificate for servers that it forwards requests to.
	frontCA, frontCert, frontKey string
	caPEM                        []byte
}

func keysIn(dir string) keys {
	in := func(name string) string { return filepath.Join(dir, name) }
	return keys{
		ca: in("ca.crt"), caKey: in("ca.key"), serverCert: in("server.crt"), serverKey: in("server.key"),
		serviceAccount: in("service-account.key"),
		frontCA:        in("front-proxy-ca.crt"), frontCert: in("front-proxy-client.crt"),
		frontKey: in("front-proxy-client.key"),
	}
}

// frontProxy is the common name of the aggregator's certificate, as kubeadm has it.
const frontProxy = "front-proxy-client"

// signer is a CA.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newSigner(name string) (*signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	s := &signer{key: key, cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}}
	der, err := x509.CreateCertificate(rand.Reader, s.cert, s.cert, key.Public(), key)
	if err != nil {
		return nil, err
	}
	s.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return s, nil
}

// sign issues a certificate with a key of its own, both in PEM.
func (s *signer) sign(cert *x509.Certificate) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	cert.SerialNumber = new(big.Int).SetBytes([]byte(randomHex(8)))
	cert.NotBefore, cert.NotAfter, cert.KeyUsage = s.cert.NotBefore, s.cert.NotAfter, x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, cert, s.cert, key.Public(), s.key)
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err = encodeKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM, err
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), err
}

func makeKeys(dir string, server net.IP) (keys, error) {
	k := keysIn(dir)
	fail := func(err error) (keys, error) { return keys{}, fmt.Errorf("make keys: %w", err) }
	ca, err := newSigner("basalt-local")
	if err != nil {
		return fail(err)
	}
	front, err := newSigner("basalt-local-front-proxy")
	if err != nil {
		return fail(err)
	}
	accounts, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fail(err)
	}
	k.caPEM = ca.pem
	files := map[string][]byte{k.ca: ca.pem, k.frontCA: front.pem}
	if files[k.serverCert], files[k.serverKey], err = ca.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "kube-apiserver"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1), server},
	}); err != nil {
		return fail(err)
	}
	if files[k.frontCert], files[k.frontKey], err = front.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: frontProxy}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		return fail(err)
	}
	if files[k.serviceAccount], err = encodeKey(accounts); err != nil {
		return fail(err)
	}
	if files[k.caKey], err = encodeKey(ca.key); err != nil {
		return fail(err)
	}
	for path, content := range files {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return fail(err)
		}
	}
	return k, nil
}

// ClientCertificate makes a certificate and a key, in PEM, with which a user of a name and in groups authenticates to
// the API server, as kubeadm's kubeconfigs do.
func (c *Cluster) ClientCertificate(user string, groups ...string) (certPEM, keyPEM []byte, err error) {
	fail := func(err error) ([]byte, []byte, error) {
		return nil, nil, fmt.Errorf("make certificate of %s: %w", user, err)
	}
	pair, err := tls.LoadX509KeyPair(c.keys.ca, c.keys.caKey)
	if err != nil {
		return fail(err)
	}
	ca := &signer{cert: pair.Leaf, key: pair.PrivateKey.(*ecdsa.PrivateKey)}
	certPEM, keyPEM, err = ca.sign(&x509.Certificate{Subject: pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return fail(err)
	}
	return certPEM, keyPEM, nil
}

// Kubeconfig writes a kubeconfig for a user, once, and returns its path.
func (c *Cluster) Kubeconfig(user string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if path, ok := c.configs[user]; ok {
		return path, nil
	}
	path := filepath.Join(c.dir, "kubeconfig-"+user[strings.LastIndexByte(user, ':')+1:])
	as := &clientcmdapi.AuthInfo{Token: c.Config(user).BearerToken}
	if err := c.WriteKubeconfig(path, user, "", as); err != nil {
		return "", fmt.Errorf("write kubeconfig of %s: %w", user, err)
	}
	c.configs[user] = path
	return path, nil
}

// WriteKubeconfig writes a kubeconfig for a user, with a namespace if it is not "".
func (c *Cluster) WriteKubeconfig(path, user, namespace string, as *clientcmdapi.AuthInfo) error {
	const name = "basalt-local"
	to := c.Config(Admin)
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: to.Host, CertificateAuthorityData: to.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: as},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: user, Namespace: namespace}},
		CurrentContext: name,
	}, path)
}
