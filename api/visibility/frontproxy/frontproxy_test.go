package frontproxy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api/certs/certstest"
)

// published is what a kube-apiserver of kubeadm publishes.
func published(ca *certstest.CA) map[string]string {
	return map[string]string{
		"client-ca-file": "of users", "requestheader-client-ca-file": string(ca.PEM()),
		"requestheader-allowed-names":    `["front-proxy-client"]`,
		"requestheader-username-headers": `["X-Remote-User"]`, "requestheader-uid-headers": `["X-Remote-Uid"]`,
		"requestheader-group-headers": `["X-Remote-Group"]`, "requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
	}
}

func leaf(t *testing.T, ca *certstest.CA, until time.Time, name string) *x509.Certificate {
	t.Helper()
	text, _ := ca.Leaf(until, name)
	block, _ := pem.Decode(text)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Only the aggregator's headers name anybody.
func TestUser(t *testing.T) {
	now := time.Now()
	front, users := certstest.New(t, "front-proxy-ca"), certstest.New(t, "ca")
	trust, err := Parse(published(front))
	if err != nil {
		t.Fatal(err)
	}
	any := published(front)
	any["requestheader-allowed-names"] = "[]"
	anyName, err := Parse(any)
	if err != nil {
		t.Fatal(err)
	}
	aggregator := leaf(t, front, now.Add(time.Hour), "front-proxy-client")
	named := http.Header{"X-Remote-User": {"ann"}, "X-Remote-Uid": {"7"}, "X-Remote-Group": {"system:authenticated",
		"", "people"},
		"X-Remote-Extra-Scopes.example.com%2fname": {"a", "b"}, "X-Remote-Extra-": {"nothing"}, "X-Remote-Other": {"x"}}
	for _, row := range []struct {
		what      string
		trust     *Trust
		shows     []*x509.Certificate
		headers   http.Header
		at        time.Time
		says      string
		forwarded bool
		err       error
	}{
		{"the aggregator", trust, []*x509.Certificate{aggregator}, named, now,
			"{ann 7 [system:authenticated people] map[scopes.example.com/name:[a b]]}", true, nil},
		{"only a user", trust, []*x509.Certificate{aggregator}, http.Header{"X-Remote-User": {"ann"}}, now,
			"{ann  [] map[]}", true, nil},
		{"nobody", trust, []*x509.Certificate{aggregator}, http.Header{"X-Remote-Group": {"system:masters"}}, now, "",
			true, ErrNobody},
		{"an empty name", trust, []*x509.Certificate{aggregator}, http.Header{"X-Remote-User": {""}}, now, "", true,
			ErrNobody},
		{"no certificate", trust, nil, named, now, "", false, nil},
		{"of another CA", trust, []*x509.Certificate{leaf(t, users, now.Add(time.Hour), "front-proxy-client")}, named,
			now, "", false, nil},
		{"of another CA, with ours behind it", trust, []*x509.Certificate{leaf(t, users, now.Add(time.Hour),
			"front-proxy-client"), aggregator}, named, now, "", false, nil},
		{"of another name", trust, []*x509.Certificate{leaf(t, front, now.Add(time.Hour), "somebody")}, named, now,
			"", false, nil},
		{"any name", anyName, []*x509.Certificate{leaf(t, front, now.Add(time.Hour), "somebody")}, named, now,
			"{ann 7 [system:authenticated people] map[scopes.example.com/name:[a b]]}", true, nil},
		{"a certificate that is over", trust, []*x509.Certificate{aggregator}, named, now.Add(2 * time.Hour), "", false, nil},
		{"before anything is known", nil, []*x509.Certificate{aggregator}, named, now, "", false, nil},
	} {
		r := &http.Request{Header: row.headers, TLS: &tls.ConnectionState{PeerCertificates: row.shows}}
		who, forwarded, err := row.trust.User(r, row.at)
		says := ""
		if forwarded && err == nil {
			says = fmt.Sprintf("{%s %s %v %v}", who.Username, who.UID, who.Groups, who.Extra)
		}
		if forwarded != row.forwarded || !errors.Is(err, row.err) || says != row.says {
			t.Errorf("%s: %s, %t, %v; want %s", row.what, says, forwarded, err, row.says)
		}
	}
	if _, forwarded, _ := trust.User(&http.Request{Header: named}, now); forwarded {
		t.Error("plain text is believed")
	}
}

func TestParse(t *testing.T) {
	ca := certstest.New(t, "front-proxy-ca")
	if trust, err := Parse(map[string]string{"client-ca-file": "x"}); trust != nil || err != nil {
		t.Errorf("without an aggregator: %v, %v", trust, err)
	}
	for key, text := range map[string]string{"requestheader-client-ca-file": "no certificate",
		"requestheader-allowed-names": "x", "requestheader-username-headers": "[]",
		"requestheader-group-headers": `{"a":1}`} {
		data := published(ca)
		data[key] = text
		if trust, err := Parse(data); trust != nil || err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v, %v", key, trust, err)
		}
	}
}

// What cannot be read changes nothing, and what names no CA any more ends the trust.
func TestFollowerKeepsWhatItRead(t *testing.T) {
	f, log := &Follower{}, slog.New(slog.NewTextHandler(io.Discard, nil))
	ca := certstest.New(t, "front-proxy-ca")
	f.seen(&corev1.ConfigMap{Data: published(ca)}, log)
	first := f.Trust()
	f.seen(&corev1.ConfigMap{Data: map[string]string{"requestheader-client-ca-file": "half a fi"}}, log)
	if first == nil || f.Trust() != first {
		t.Error("a ConfigMap that cannot be read counts")
	}
	f.seen(&corev1.ConfigMap{Data: map[string]string{}}, log)
	if f.Trust() != nil {
		t.Error("a CA that is gone is trusted")
	}
}
