package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"sigs.k8s.io/yaml"

	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/visibility"
)

// user is how somebody reaches a cluster: with a kubeconfig, as kubectl does.
type user struct {
	rules     *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
	output    string
}

// register registers the flags that kubectl has, too.
func (u *user) register(cmd *cobra.Command, outputs string) {
	u.rules = clientcmd.NewDefaultClientConfigLoadingRules()
	f := cmd.Flags()
	f.StringVar(&u.rules.ExplicitPath, "kubeconfig", "", "kubeconfig file; if empty, $KUBECONFIG or ~/.kube/config")
	f.StringVar(&u.overrides.CurrentContext, "context", "", "context of the kubeconfig")
	f.StringVarP(&u.overrides.Context.Namespace, "namespace", "n", "", "namespace; if empty, that of the context")
	f.StringVar(&u.overrides.AuthInfo.Token, "token", "", "bearer token, in place of what the kubeconfig has")
	f.StringVarP(&u.output, "output", "o", "", outputs)
}

// config returns what to reach the API server with, and the namespace.
func (u *user) config() (*rest.Config, string, error) {
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(u.rules, &u.overrides)
	config, err := loader.ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, "", errors.New("no kubeconfig: set $KUBECONFIG, or give --kubeconfig")
	case err != nil:
		return nil, "", fmt.Errorf("read kubeconfig: %w", err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("read kubeconfig: %w", err)
	}
	config.UserAgent = "basalt"
	return config, namespace, nil
}

// whyCommand says why a gang waits, to whoever may see its PodGroup or pod.
func whyCommand() *cobra.Command {
	var u user
	var e endpoint
	var w whatIf
	cmd := &cobra.Command{Use: "why ([NAMESPACE/]NAME | queue/NAME)", Args: cobra.MaximumNArgs(1),
		Short: "Say why a PodGroup or a pod waits, its place in the order, what it lacks, and what happens next; or what a queue has, wants and waits for; or what would be",
		Long: `Say why a PodGroup or a pod waits, its place in the order, what it lacks, and what happens next; or what a queue has, wants and waits for.

queue/NAME is always a queue: a gang of a namespace "queue" is named with -n.

--what-if says what another spec of a Queue would do, and changes nothing: what queues would deserve, what their fair shares would be, whether
the gang, or the next of the queue, would be granted its quota, and who would be evicted for whom. Without a gang or a queue it answers for those
that are next in the queues that are named. It may be given several times, for what would be changed together: QUEUE:FIELD=VALUE, where FIELD
is a field of the Queue's spec (capability.RESOURCE, guarantee.RESOURCE, deserved.RESOURCE, weight, priority, closed, reclaimable, reclaimPolicy,
preemptionPolicy, reclaimMinRuntime, preemptMinRuntime or preemptionDelay), and an empty VALUE unsets it. You need the right to get each Queue.

--gang says how a gang would stand that does not exist, of your namespace (-n): its queue, what each of its pods requests, and if need be pods=1,
minCount=PODS, priority=0 (or the name of a PriorityClass), preemptible=false and preemptionPolicy=Never. You need the right to create PodGroups there.

Who would be evicted is what quota says. Which nodes have room for the pods is only found out when a gang really waits.`,
		Example: `  basalt why research/train
  basalt why train -n research -o json
  basalt why queue/research.vision
  basalt why research/train --what-if research.vision:deserved.nvidia.com/gpu=64 --what-if batch:weight=3
  basalt why -n research --gang queue=research.vision,cpu=8,nvidia.com/gpu=1,pods=16,minCount=8,priority=high`}
	u.register(cmd, "json, yaml, or wide")
	e.register(cmd)
	w.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch u.output {
		case "", "wide", "json", "yaml":
		default:
			return fmt.Errorf("--output %q: json, yaml or wide", u.output)
		}
		if !w.asked() && len(args) == 0 {
			return errors.New("name a PodGroup, a pod or queue/NAME; or give --what-if or --gang")
		}
		if err := w.check(args); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), 30*time.Second)
		defer cancel()
		config, namespace, err := u.config()
		if err != nil {
			return err
		}
		if w.asked() {
			query, err := w.query(ctx, config, namespace, args)
			if err != nil {
				return err
			}
			var answer visibility.WhatIf
			if err := e.call(ctx, config, http.MethodGet, "/v1/what-if?"+query.Encode(), &answer); err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), u.output, answer, func(w io.Writer) { fmt.Fprint(w, answer.Text(time.Now())) })
		}
		name := args[0]
		if queue, is := strings.CutPrefix(name, "queue/"); is {
			var answer visibility.WhyQueue
			if err := e.call(ctx, config, http.MethodGet, "/v1/queues/"+url.PathEscape(queue)+"/why", &answer); err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), u.output, answer, func(w io.Writer) { fmt.Fprint(w, answer.Text(time.Now())) })
		}
		if before, after, found := strings.Cut(name, "/"); found {
			namespace, name = before, after
		}
		var answer visibility.Why
		err = e.call(ctx, config, http.MethodGet, "/v1/namespaces/"+url.PathEscape(namespace)+"/gangs/"+url.PathEscape(name)+"/why", &answer)
		var refused refusal
		switch {
		case errors.As(err, &refused) && refused.final():
			return err
		case err != nil:
			said, readErr := fromObjects(ctx, config, namespace, name)
			if readErr != nil {
				return errors.Join(err, readErr)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "Basalt could not be asked, this is what the object says: %v\n", err)
			answer = *said
		}
		return show(cmd.OutOrStdout(), u.output, answer, func(w io.Writer) {
			fmt.Fprint(w, answer.Text(time.Now(), u.output == "wide"))
		})
	}
	return cmd
}

// refusal is what Basalt answers in place of an answer.
type refusal struct {
	code int
	said string
}

func (r refusal) Error() string { return r.said }

// final reports whether the object itself would say no more.
func (r refusal) final() bool { return r.code == http.StatusNotFound || r.code == http.StatusForbidden }

// fromObjects says what the status of a PodGroup says, or a pod's condition.
func fromObjects(ctx context.Context, config *rest.Config, namespace, name string) (*visibility.Why, error) {
	clients, err := kube.ConnectConfig(config, "basalt")
	if err != nil {
		return nil, err
	}
	w := &visibility.Why{Namespace: namespace, Name: name}
	var g v1beta1.PodGroup
	err = clients.Basalt.Get().Namespace(namespace).Resource("podgroups").Name(name).Do(ctx).Into(&g)
	switch {
	case err == nil:
		w.Gang, w.Queue, w.Created, w.MinCount = "PodGroup "+namespace+"/"+name, g.Spec.Queue, g.CreationTimestamp.Time, int(g.Spec.SchedulingPolicy.Gang.MinCount)
		if s := g.Status; s != nil {
			w.Queue, w.Pods, w.Bound, w.Reason, w.Message, w.Position = s.Queue, int(s.Pods), int(s.Bound), s.Reason, s.Message, int(s.Position)
			w.Started = meta.IsStatusConditionTrue(s.Conditions, v1beta1.ConditionPodGroupInitiallyScheduled)
		} else {
			w.Message = "Basalt has not seen it yet"
		}
		return w, nil
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read PodGroup %s/%s: %w", namespace, name, err)
	}
	p, err := clients.Core.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read pod %s/%s: %w", namespace, name, err)
	}
	if ended := visibility.OfEnded(p); ended != nil {
		return visibility.FromReply(namespace, name, ended), nil
	}
	w.Gang, w.Created, w.Pods, w.MinCount = "pod "+namespace+"/"+name, p.CreationTimestamp.Time, 1, 1
	w.Message = "it shows no condition yet"
	if p.Spec.NodeName != "" {
		w.Started, w.Bound, w.Message = true, 1, ""
	}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			w.Reason, w.Message = c.Reason, c.Message
		}
	}
	return w, nil
}

// show prints something as JSON or YAML, or as text does.
func show(w io.Writer, output string, what any, text func(io.Writer)) error {
	switch output {
	case "json":
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(what)
	case "yaml":
		b, err := yaml.Marshal(what)
		if err != nil {
			return err
		}
		_, err = w.Write(b)
		return err
	}
	text(w)
	return nil
}

// endpoint is where Basalt answers users.
type endpoint struct {
	server, namespace string
	insecure          bool
}

func (e *endpoint) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&e.server, "basalt-server", os.Getenv("BASALT_SERVER"), "URL at which Basalt answers users, or several with commas, which are tried in order; by default $BASALT_SERVER; if empty, a port of one of its shards is forwarded, as kubectl port-forward does")
	f.StringVar(&e.namespace, "basalt-namespace", "basalt-system", "namespace that Basalt runs in")
	f.BoolVar(&e.insecure, "insecure-skip-tls-verify", false, "do not check the certificate of --basalt-server")
}

// call asks with the user's token. A shard that does not answer, or answers that it cannot, is followed by the next; what is asked can be
// asked again.
func (e *endpoint) call(ctx context.Context, config *rest.Config, method, path string, answer any) error {
	var failed error
	try := func(call func(context.Context) error) (final bool) {
		ctx, cancel := context.WithTimeout(ctx, eachWithin)
		defer cancel()
		err := call(ctx)
		var refused refusal
		if failed = errors.Join(failed, err); err == nil || errors.As(err, &refused) && refused.code < http.StatusInternalServerError {
			failed = err
			return true
		}
		return false
	}
	if e.server != "" {
		for _, server := range strings.Split(e.server, ",") {
			if server = strings.TrimSpace(server); server != "" && try(func(ctx context.Context) error { return e.ask(ctx, config, server, method, path, answer) }) {
				break
			}
		}
		return failed
	}
	shards, err := e.shards(ctx, config)
	if err != nil {
		return e.unreachable(err)
	}
	for _, shard := range shards {
		if try(func(ctx context.Context) error {
			port, stop, err := e.forward(ctx, config, shard)
			if err != nil {
				return e.unreachable(err)
			}
			defer stop()
			return e.ask(ctx, config, fmt.Sprintf("https://127.0.0.1:%d", port), method, path, answer)
		}) {
			break
		}
	}
	return failed
}

// Bounds of a call.
const (
	eachWithin  = 12 * time.Second // one shard answers
	shardsTried = 3
)

func (e *endpoint) unreachable(err error) error {
	return fmt.Errorf("reach Basalt by forwarding a port of a shard in namespace %s: %w; --basalt-server names another way", e.namespace, err)
}

// ask asks at one URL.
func (e *endpoint) ask(ctx context.Context, config *rest.Config, server, method, path string, answer any) error {
	// The certificate and the CA of the kubeconfig are the API server's. A forwarded port ends where the API server says; there is no
	// name to check.
	mine := rest.CopyConfig(config)
	mine.Host = server
	mine.TLSClientConfig = rest.TLSClientConfig{Insecure: e.insecure || e.server == ""}
	transport, err := rest.TransportFor(mine)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: transport}
	var response *http.Response
	for try := 1; ; try++ {
		request, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(server, "/")+path, nil)
		if err != nil {
			return err
		}
		response, err = client.Do(request)
		var untrusted *tls.CertificateVerificationError
		switch {
		case errors.As(err, &untrusted):
			return fmt.Errorf("ask Basalt at %s: %w (--insecure-skip-tls-verify)", server, err)
		case err != nil:
			return fmt.Errorf("ask Basalt at %s: %w", server, err)
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
		return fmt.Errorf("ask Basalt at %s: %w", server, err)
	case len(body) > visibility.MaxAnswer:
		return fmt.Errorf("ask Basalt at %s: the answer has more than %d bytes", server, visibility.MaxAnswer)
	}
	if response.StatusCode != http.StatusOK {
		var said struct{ Error string }
		if json.Unmarshal(body, &said) != nil || said.Error == "" {
			said.Error = fmt.Sprintf("%s: this is not Basalt, or another version of it", response.Status)
		}
		if response.StatusCode == http.StatusUnauthorized && config.BearerToken == "" && config.BearerTokenFile == "" && config.ExecProvider == nil {
			said.Error += "; the kubeconfig has none, so give one with --token"
		}
		return refusal{response.StatusCode, said.Error}
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return fmt.Errorf("ask Basalt at %s: read the answer: %w", server, err)
	}
	return nil
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
func (e *endpoint) forward(ctx context.Context, config *rest.Config, shard string) (port uint16, stop func(), err error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return 0, nil, err
	}
	at := clients.CoreV1().RESTClient().Post().Resource("pods").Namespace(e.namespace).Name(shard).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return 0, nil, err
	}
	sockets, err := portforward.NewSPDYOverWebsocketDialer(at, config)
	if err != nil {
		return 0, nil, err
	}
	dialer := portforward.NewFallbackDialer(sockets, spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, at), func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	ends, ready, failed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", visibilityPort)}, ends, ready, io.Discard, io.Discard)
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
