// Package frontproxy finds out on whose behalf kube-apiserver forwards a request. Its aggregator authenticates and
// authorises a user, shows a client certificate of its own, and names the user in headers.
//
// It decides whether the headers of a request are believed. They are if the certificate of the connection verifies at
// that moment against the CA, and has one of the names, that kube-apiserver publishes for this in the ConfigMap
// kube-system/extension-apiserver-authentication. From any other connection the headers count for nothing, so who can
// reach the port gains nothing by writing them.
//
// It fails closed: before the ConfigMap was read, and if it names no CA, no connection is the aggregator's. A ConfigMap
// that cannot be read leaves in force what was read last.
//
// Considered: k8s.io/apiserver does the same with 20 more modules in the binary, among them a second registry of
// metrics.
package frontproxy

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Namespace and Name are those of the ConfigMap that kube-apiserver writes. The Role
// extension-apiserver-authentication-reader, which
// it makes as well, allows reading it.
const (
	Namespace = "kube-system"
	Name      = "extension-apiserver-authentication"
)

// Trust is what kube-apiserver says of its aggregator: what its certificate is like, and which headers name the user.
type Trust struct {
	roots                    *x509.CertPool
	names                    []string // common names, one of which the certificate has; none: any
	user, uid, groups, extra []string // headers; extra are prefixes of headers
}

// Parse reads the data of the ConfigMap. It returns nil if there is no CA for an aggregator, which is no error: then
// there is none.
func Parse(data map[string]string) (*Trust, error) {
	pem := data["requestheader-client-ca-file"]
	if pem == "" {
		return nil, nil
	}
	t := &Trust{roots: x509.NewCertPool()}
	if !t.roots.AppendCertsFromPEM([]byte(pem)) {
		return nil, errors.New("requestheader-client-ca-file: no certificate in it")
	}
	for key, list := range map[string]*[]string{
		"requestheader-allowed-names": &t.names, "requestheader-username-headers": &t.user,
		"requestheader-uid-headers":   &t.uid,
		"requestheader-group-headers": &t.groups, "requestheader-extra-headers-prefix": &t.extra,
	} {
		text := data[key]
		if text == "" {
			continue
		}
		if err := json.Unmarshal([]byte(text), list); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	if len(t.user) == 0 {
		return nil, errors.New("requestheader-username-headers: none, so nobody can be named")
	}
	return t, nil
}

// ErrNobody says that the aggregator named no user.
var ErrNobody = errors.New("the request comes from the API server's aggregator, and names no user")

// User returns on whose behalf a request is forwarded. It reports whether the aggregator sent it: if not, the headers
// mean nothing.
func (t *Trust) User(r *http.Request, now time.Time) (who authentication.UserInfo, forwarded bool, err error) {
	if t == nil || r.TLS == nil || !t.isAggregator(r.TLS.PeerCertificates, now) {
		return who, false, nil
	}
	for _, name := range t.user {
		if who.Username = r.Header.Get(name); who.Username != "" {
			break
		}
	}
	if who.Username == "" {
		return who, true, ErrNobody
	}
	for _, name := range t.uid {
		if who.UID = r.Header.Get(name); who.UID != "" {
			break
		}
	}
	for _, name := range t.groups {
		who.Groups = append(who.Groups, slices.DeleteFunc(slices.Clone(r.Header.Values(name)),
			func(g string) bool { return g == "" })...)
	}
	for _, prefix := range t.extra {
		for header, values := range r.Header {
			if len(header) <= len(prefix) || !strings.EqualFold(header[:len(prefix)], prefix) {
				continue
			}
			key := strings.ToLower(header[len(prefix):])
			if plain, err := url.PathUnescape(key); err == nil {
				key = plain
			}
			if who.Extra == nil {
				who.Extra = map[string]authentication.ExtraValue{}
			}
			who.Extra[key] = append(who.Extra[key], values...)
		}
	}
	return who, true, nil
}

// isAggregator reports whether a chain of certificates, whose key the peer has proved to have, is the aggregator's.
func (t *Trust) isAggregator(chain []*x509.Certificate, now time.Time) bool {
	if len(chain) == 0 {
		return false
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{Roots: t.roots, Intermediates: between, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return false
	}
	return len(t.names) == 0 || slices.Contains(t.names, chain[0].Subject.CommonName)
}

// Follower keeps the trust that the ConfigMap states.
type Follower struct{ trust atomic.Pointer[Trust] }

// Follow begins to watch the ConfigMap, until ctx ends. It does not wait.
func Follow(ctx context.Context, kube kubernetes.Interface, log *slog.Logger) *Follower {
	f := &Follower{}
	source := cache.NewListWatchFromClient(kube.CoreV1().RESTClient(), "configmaps", Namespace,
		fields.OneTermEqualSelector("metadata.name", Name))
	informer := cache.NewSharedInformer(source, &corev1.ConfigMap{}, 0)
	sometimes := &rate.Sometimes{First: 1, Interval: 10 * time.Minute}
	// It has not been started, so neither this nor the handler of events is refused.
	_ = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		sometimes.Do(func() {
			log.Warn("cannot read ConfigMap "+Namespace+"/"+Name+", so that users can only ask with tokens; the "+
				"RoleBinding basalt-authentication-reader in "+Namespace+" allows it", "error", err)
		})
	})
	seen := func(o any) { f.seen(o, log) }
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: seen,
		UpdateFunc: func(_, now any) { seen(now) }})
	go informer.RunWithContext(ctx)
	return f
}

func (f *Follower) seen(o any, log *slog.Logger) {
	m, is := o.(*corev1.ConfigMap)
	if !is {
		return
	}
	t, err := Parse(m.Data)
	if err != nil {
		log.Error("cannot read ConfigMap "+Namespace+"/"+Name+", keeping what it said before", "error", err)
		return
	}
	f.trust.Store(t)
}

// Trust returns what is in force, nil if nobody is believed.
func (f *Follower) Trust() *Trust { return f.trust.Load() }
