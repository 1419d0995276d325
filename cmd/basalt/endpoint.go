package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/certs"
	"basalt.dev/basalt/api/certs/issue"
	"basalt.dev/basalt/api/visibility"
)

// endpoint is how users reach Basalt: through the API server, which forwards the question with whatever the kubeconfig
// has to authenticate; or else at a port of a shard, with a token.
type endpoint struct {
	server, namespace, ca string
	insecure              bool
}

func (e *endpoint) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&e.server, "basalt-server", os.Getenv("BASALT_SERVER"),
		"URL at which Basalt answers users itself, with a token, or several with commas, which are tried in "+
			"order; by default $BASALT_SERVER; if empty, the API server is asked to forward the question, and "+
			"if it cannot, a port of a shard is forwarded, as kubectl port-forward does")
	f.StringVar(&e.namespace, "basalt-namespace", "basalt-system", "namespace that Basalt runs in")
	f.StringVar(&e.ca, "basalt-ca", "",
		"file with the CA of shards, ca.crt of the Secret basalt-shard-tls, to check who answers at "+
			"--basalt-server or at a forwarded port; if empty, a server must have a certificate that this "+
			"machine trusts, and of a forwarded port the APIService says the CA to whoever may read it")
	f.BoolVar(&e.insecure, "insecure-skip-tls-verify", false, "do not check the certificate of --basalt-server")
}

// refusal is what Basalt answers in place of an answer.
type refusal struct {
	code int
	said string
}

func (r refusal) Error() string { return r.said }

// final reports whether the object itself would say no more.
func (r refusal) final() bool { return r.code == http.StatusNotFound || r.code == http.StatusForbidden }

// unforwarded is what the API server says in place of forwarding a question.
type unforwarded struct {
	code int
	said string
}

func (u unforwarded) Error() string {
	switch u.code {
	case http.StatusForbidden:
		return u.said + "; the ClusterRoles view, edit and admin allow it in a namespace, basalt-status and " +
			"basalt-drain what administrators ask"
	case http.StatusNotFound:
		return fmt.Sprintf("it does not serve %s/%s, which deploy/visibility.yaml installs", visibility.Group,
			visibility.Version)
	case http.StatusServiceUnavailable:
		return fmt.Sprintf("it reaches no shard: %s (kubectl get apiservice %s says why)", u.said, issue.APIServiceName)
	}
	return u.said
}

// Bounds of a call.
const (
	eachWithin  = 12 * time.Second // one shard answers
	shardsTried = 3
)

// call asks. What is asked can be asked again: a way that does not lead to an answer is followed by the next.
func (e *endpoint) call(ctx context.Context, config *rest.Config, method, path string, answer any) error {
	if e.server != "" {
		return e.callServers(ctx, config, method, path, answer)
	}
	err := within(ctx, func(ctx context.Context) error { return throughAPIServer(ctx, config, method, path, answer) })
	var no unforwarded
	var refused refusal
	switch {
	case err == nil || errors.As(err, &refused) && refused.code < http.StatusInternalServerError:
		return err
	case !errors.As(err, &refused) && (!errors.As(err, &no) || no.code == http.StatusUnauthorized):
		return err // nobody who has to go through the API server would be better off
	}
	other := e.callForwarded(ctx, config, method, path, answer)
	var said refusal
	switch {
	case other == nil:
		return nil
	case errors.As(other, &said): // by whoever was reached
		return other
	case errors.As(err, &refused), no.code == http.StatusForbidden:
		return err
	}
	return fmt.Errorf("ask Basalt: the API server does not forward the question: %w; nor can a port of a shard "+
		"in namespace %s be forwarded: %w; --basalt-server names another way",
		err, e.namespace, other)
}

func within(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, eachWithin)
	defer cancel()
	return call(ctx)
}

// firstOf asks one after another until one answers, or refuses in a way that others would, too.
func firstOf(ctx context.Context, ways []string, ask func(context.Context, string) error) (failed error) {
	for _, way := range ways {
		err := within(ctx, func(ctx context.Context) error { return ask(ctx, way) })
		var refused refusal
		if err == nil || errors.As(err, &refused) && refused.code < http.StatusInternalServerError {
			return err
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// callServers asks those of --basalt-server.
func (e *endpoint) callServers(ctx context.Context, config *rest.Config, method, path string, answer any) error {
	var servers []string
	for _, server := range strings.Split(e.server, ",") {
		if server = strings.TrimSpace(server); server != "" {
			servers = append(servers, server)
		}
	}
	mine := e.direct(config)
	return firstOf(ctx, servers, func(ctx context.Context, server string) error {
		mine.Host = server
		return ask(ctx, mine, server+visibility.Direct, method, path, answer)
	})
}

// callForwarded asks shards whose port is forwarded.
func (e *endpoint) callForwarded(ctx context.Context, config *rest.Config, method, path string, answer any) error {
	shards, err := e.shards(ctx, config)
	if err != nil {
		return err
	}
	mine := e.direct(config)
	if e.ca == "" {
		mine.TLSClientConfig = rest.TLSClientConfig{
			ServerName: certs.NameVisibility(e.namespace), CAData: bundle(ctx, config)}
		if len(mine.CAData) == 0 { // the port ends where the API server says
			mine.TLSClientConfig = rest.TLSClientConfig{Insecure: true}
		}
	}
	return firstOf(ctx, shards, func(ctx context.Context, shard string) error {
		port, stop, err := e.forward(ctx, config, shard)
		if err != nil {
			return err
		}
		defer stop()
		mine.Host = fmt.Sprintf("https://127.0.0.1:%d", port)
		return ask(ctx, mine, mine.Host+visibility.Direct, method, path, answer)
	})
}

// direct is for Basalt itself. The certificate and the CA of the kubeconfig are the API server's.
func (e *endpoint) direct(config *rest.Config) *rest.Config {
	mine := rest.CopyConfig(config)
	mine.TLSClientConfig = rest.TLSClientConfig{Insecure: e.insecure}
	if e.ca != "" && !e.insecure {
		mine.TLSClientConfig = rest.TLSClientConfig{ServerName: certs.NameVisibility(e.namespace), CAFile: e.ca}
	}
	return mine
}

// bundle returns the CAs by which the API server knows shards, nothing to whoever may not read them.
func bundle(ctx context.Context, config *rest.Config) []byte {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil
	}
	raw, err := clients.CoreV1().RESTClient().Get().AbsPath(issue.APIServicePath).
		SetHeader("Accept", "application/json").Do(ctx).Raw()
	var is struct{ Spec struct{ CABundle []byte } }
	if err != nil || json.Unmarshal(raw, &is) != nil {
		return nil
	}
	return is.Spec.CABundle
}

// throughAPIServer has the API server forward a question.
func throughAPIServer(ctx context.Context, config *rest.Config, method, path string, answer any) error {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return err
	}
	return ask(ctx, config, strings.TrimRight(base.String(), "/")+visibility.Aggregated, method, path, answer)
}

// ask asks at one URL.
func ask(ctx context.Context, config *rest.Config, base, method, path string, answer any) error {
	transport, err := rest.TransportFor(config)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: transport}
	var response *http.Response
	for try := 1; ; try++ {
		request, err := http.NewRequestWithContext(ctx, method, base+path, nil)
		if err != nil {
			return err
		}
		response, err = client.Do(request)
		var untrusted *tls.CertificateVerificationError
		switch {
		case errors.As(err, &untrusted):
			return fmt.Errorf("ask at %s: %w (--basalt-ca names the CA of shards)", config.Host, err)
		case err != nil:
			return fmt.Errorf("ask at %s: %w", config.Host, err)
		}
		if response.StatusCode != http.StatusTooManyRequests || try == tries {
			break
		}
		response.Body.Close()
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, visibility.MaxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("ask at %s: %w", config.Host, err)
	case len(body) > visibility.MaxAnswer:
		return fmt.Errorf("ask at %s: the answer has more than %d bytes", config.Host, visibility.MaxAnswer)
	}
	if response.StatusCode != http.StatusOK {
		return noAnswer(config, base, response.StatusCode, body)
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return fmt.Errorf("ask at %s: read the answer: %w", config.Host, err)
	}
	return nil
}

// maxSaid bounds what is repeated of an answer that is not Basalt's, in bytes.
const maxSaid = 300

// noAnswer says what came in place of an answer: by Basalt, or by the API server.
func noAnswer(config *rest.Config, base string, code int, body []byte) error {
	var said struct{ Error, Message string }
	_ = json.Unmarshal(body, &said)
	if said.Error == "" {
		text := cmp.Or(said.Message, strings.TrimSpace(api.Shorten(strings.ToValidUTF8(string(body), ""), maxSaid)),
			http.StatusText(code))
		if strings.HasSuffix(base, visibility.Aggregated) {
			return unforwarded{code, text}
		}
		said.Error = fmt.Sprintf("%d %s: this is not Basalt, or another version of it", code, http.StatusText(code))
	}
	if code == http.StatusUnauthorized && config.BearerToken == "" && config.BearerTokenFile == "" &&
		config.ExecProvider == nil {
		said.Error += "; the kubeconfig has none, so give one with --token"
	}
	return refusal{code, said.Error}
}

// shards returns some pods of shards that are ready.
func (e *endpoint) shards(ctx context.Context, config *rest.Config) (out []string, err error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	pods, err := clients.CoreV1().Pods(e.namespace).List(ctx, metav1.ListOptions{LabelSelector: shardSelector})
	if err != nil {
		return nil, err
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; isReady(p) {
			out = append(out, p.Name)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("none of %d pods with the labels %s is ready", len(pods.Items), shardSelector)
	}
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out[:min(len(out), shardsTried)], nil
}

// forward forwards a port of this machine to a shard.
func (e *endpoint) forward(ctx context.Context, config *rest.Config, shard string) (
	port uint16, stop func(), err error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return 0, nil, err
	}
	at := clients.CoreV1().RESTClient().Post().Resource("pods").Namespace(e.namespace).Name(shard).
		SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return 0, nil, err
	}
	sockets, err := portforward.NewSPDYOverWebsocketDialer(at, config)
	if err != nil {
		return 0, nil, err
	}
	dialer := portforward.NewFallbackDialer(sockets, spdy.NewDialer(upgrader, &http.Client{Transport: transport},
		http.MethodPost, at), func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	ends, ready, failed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"},
		[]string{fmt.Sprintf("0:%d", visibilityPort)}, ends, ready, io.Discard, io.Discard)
	if err != nil {
		return 0, nil, err
	}
	go func() { failed <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-failed:
		return 0, nil, fmt.Errorf("pod %s: %w", shard, err)
	case <-ctx.Done():
		close(ends)
		return 0, nil, ctx.Err()
	}
	ports, err := forwarder.GetPorts()
	if err != nil || len(ports) == 0 {
		close(ends)
		return 0, nil, fmt.Errorf("pod %s: no port is forwarded: %w", shard, err)
	}
	return ports[0].Local, func() { close(ends) }, nil
}

// tries is how often a request is made that comes too soon after others of the user.
const tries = 5

// What deploy/shards.yaml says.
const (
	shardSelector  = "app.kubernetes.io/name=basalt-shard"
	visibilityPort = 7603
)

func isReady(p *corev1.Pod) bool {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
