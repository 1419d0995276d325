package issue

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// caName begins the common name of every CA that is made here.
const caName = "basalt CA "

// pair is a certificate, and its key if that is known.
type pair struct {
	cert            *x509.Certificate
	key             crypto.Signer
	certPEM, keyPEM []byte
}

func (p *pair) put(data map[string][]byte, cert, key string) {
	data[cert], data[key] = p.certPEM, p.keyPEM
}

// newCA makes a CA that signs itself.
func newCA(now time.Time, life time.Duration) (*pair, error) {
	key, serial, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: fmt.Sprintf("%s%08x", caName, serial.Bytes()[:4])},
		NotBefore: now.Add(-skew), NotAfter: now.Add(life),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	return sign(template, template, key, key)
}

// issue signs a certificate of a new key.
func (a *authority) issue(l leaf, now time.Time) (*pair, error) {
	key, serial, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: l.names[0]}, DNSNames: l.names, IPAddresses: l.addresses,
		NotBefore: now.Add(-skew), NotAfter: now.Add(leafLife), KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
	}
	if ca := a.signing.cert; template.NotAfter.After(ca.NotAfter) {
		template.NotAfter = ca.NotAfter
	}
	if l.server {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if l.client {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	return sign(template, a.signing.cert, key, a.signing.key)
}

func sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey, signer crypto.Signer) (*pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &pair{cert, key, encode("CERTIFICATE", der), encode("PRIVATE KEY", private)}, nil
}

// newKey returns a key and the serial number of its certificate: 16 random bytes of which the second bit is set, so that
// there are always 16.
func newKey() (*ecdsa.PrivateKey, *big.Int, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial := make([]byte, 16)
	if _, err := rand.Read(serial); err != nil {
		return nil, nil, err
	}
	serial[0] = serial[0]&0x7f | 0x40
	return key, new(big.Int).SetBytes(serial), nil
}

func parsePair(cert, key []byte) (*pair, error) {
	both, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	signer, ok := both.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, errors.New("the key cannot sign")
	}
	return &pair{both.Leaf, signer, cert, key}, nil
}

// parseBundle reads the certificates of a bundle.
func parseBundle(text []byte) (out []*pair, err error) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			if len(bytes.TrimSpace(text)) > 0 {
				return nil, errors.New("not only certificates in PEM")
			}
			return out, nil
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		out = append(out, &pair{cert: cert, certPEM: encode("CERTIFICATE", block.Bytes)})
	}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
