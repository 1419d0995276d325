package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/page"
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
	u.registerAccess(cmd)
	cmd.Flags().StringVarP(&u.output, "output", "o", "", outputs)
}

// registerAccess registers those that say which cluster, and who asks.
func (u *user) registerAccess(cmd *cobra.Command) {
	u.rules = clientcmd.NewDefaultClientConfigLoadingRules()
	f := cmd.Flags()
	f.StringVar(&u.rules.ExplicitPath, "kubeconfig", "", "kubeconfig file; if empty, $KUBECONFIG or ~/.kube/config")
	f.StringVar(&u.overrides.CurrentContext, "context", "", "context of the kubeconfig")
	f.StringVarP(&u.overrides.Context.Namespace, "namespace", "n", "", "namespace; if empty, that of the context")
	f.StringVar(&u.overrides.AuthInfo.Impersonate, "as", "", "ask as this user, if you may impersonate")
	f.StringVar(&u.overrides.AuthInfo.Token, "token", "", "bearer token, in place of what the kubeconfig has")
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

queue/NAME is always a queue: a gang of a namespace "queue" is named with -n. You need the right to get the Queue,
	or to create PodGroups in a
namespace (-n) that it admits.

--what-if says what another spec of a Queue would do, and changes nothing: what queues would deserve, what their fair shares would be, whether
the gang, or the next of the queue, would be granted its quota, and who would be evicted for whom. Without a gang or a queue it answers for those
that are next in the queues that are named. It may be given several times, for what would be changed together: QUEUE:FIELD=VALUE, where FIELD
is a field of the Queue's spec (capability.RESOURCE, guarantee.RESOURCE, deserved.RESOURCE, weight, priority, closed, reclaimable, reclaimPolicy,
preemptionPolicy, reclaimMinRuntime, preemptMinRuntime or preemptionDelay),
	and an empty VALUE unsets it. You need the same right to each Queue.

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
			if before, _, found := strings.Cut(query.Get("gang"), "/"); found {
				namespace = before
			}
			path := "/namespaces/" + url.PathEscape(namespace) + "/what-if?" + query.Encode()
			if err := e.call(ctx, config, http.MethodGet, path, &answer); err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), u.output, answer, func(w io.Writer) { fmt.Fprint(w, answer.Text(time.Now())) })
		}
		name := args[0]
		if queue, is := strings.CutPrefix(name, "queue/"); is {
			var answer visibility.WhyQueue
			path := "/namespaces/" + url.PathEscape(namespace) + "/queues/" + url.PathEscape(queue) + "/why"
			if err := e.call(ctx, config, http.MethodGet, path, &answer); err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), u.output, answer, func(w io.Writer) { fmt.Fprint(w, answer.Text(time.Now())) })
		}
		if before, after, found := strings.Cut(name, "/"); found {
			namespace, name = before, after
		}
		var answer visibility.Why
		err = e.call(ctx, config, http.MethodGet,
			"/namespaces/"+url.PathEscape(namespace)+"/gangs/"+url.PathEscape(name)+"/why", &answer)
		var refused refusal
		switch {
		case errors.As(err, &refused) && refused.final():
			return err
		case err != nil:
			said, readErr := fromObjects(ctx, config, namespace, name)
			if apierrors.IsForbidden(readErr) {
				return err
			}
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
		return visibility.OfPodGroup(&g), nil
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

// show prints something as JSON or YAML, or as text does: folded to the width of the terminal, but for wide.
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
	case "wide":
		text(w)
		return nil
	}
	var b bytes.Buffer
	text(&b)
	_, err := io.WriteString(w, page.Fold(b.String(), page.Width(w)))
	return err
}
