package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api/v1beta1"
)

// problem is an answer that is none.
type problem struct {
	code int
	text string
}

func (p problem) Error() string { return p.text }

// viewer is somebody who looks, with his own rights.
type viewer struct {
	name      string // of the user
	namespace string // that he begins with, if one is known
	config    *rest.Config
	access    authorizationclient.AuthorizationV1Interface
	core      coreclient.CoreV1Interface
	asks      chan struct{} // a place for each question of this user's to Basalt: other sessions of his have the same

	mu    sync.Mutex
	known map[access]verdict
}

// access is what a viewer may do or not.
type access struct{ verb, group, resource, namespace, name string }

type verdict struct {
	allowed bool
	at      time.Time
}

// recognise asks the API server who has the rights of a configuration.
func recognise(ctx context.Context, config *rest.Config, namespace string) (*viewer, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	v := &viewer{config: config, namespace: namespace, known: map[access]verdict{},
		asks: make(chan struct{}, ownAsks)}
	if v.access, err = authorizationclient.NewForConfigAndClient(config, client); err != nil {
		return nil, err
	}
	if v.core, err = coreclient.NewForConfigAndClient(config, client); err != nil {
		return nil, err
	}
	who, err := authenticationclient.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	review, err := who.SelfSubjectReviews().Create(ctx, &authentication.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil, unreviewed(err)
	}
	v.name = review.Status.UserInfo.Username
	if account, is := strings.CutPrefix(v.name, "system:serviceaccount:"); is && v.namespace == "" {
		v.namespace, _, _ = strings.Cut(account, ":")
	}
	return v, nil
}

// unreviewed says why the API server did not review something.
func unreviewed(err error) error {
	switch {
	case apierrors.IsUnauthorized(err):
		return problem{http.StatusUnauthorized,
			"the API server does not accept this token: it may be expired, revoked, or for another audience"}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	}
	return problem{http.StatusServiceUnavailable, "the API server does not answer: " + err.Error()}
}

// may returns an error for what the viewer may not do. What the API server said in the last `within` counts.
func (v *viewer) may(ctx context.Context, to access, within time.Duration) error {
	v.mu.Lock()
	said, known := v.known[to]
	v.mu.Unlock()
	if !known || time.Since(said.at) >= within {
		review, err := v.access.SelfSubjectAccessReviews().Create(ctx, &authorization.SelfSubjectAccessReview{
			Spec: authorization.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorization.ResourceAttributes{
				Verb: to.verb, Group: to.group, Resource: to.resource, Namespace: to.namespace, Name: to.name,
			}}}, metav1.CreateOptions{})
		if err != nil {
			return unreviewed(err)
		}
		said = verdict{review.Status.Allowed, time.Now()}
		v.mu.Lock()
		if len(v.known) >= maxReviews {
			clear(v.known)
		}
		v.known[to] = said
		v.mu.Unlock()
	}
	if !said.allowed {
		return problem{http.StatusForbidden, fmt.Sprintf("user %q may not %s", v.name, to)}
	}
	return nil
}

// String says it in words.
func (a access) String() string {
	kind := map[string]string{"podgroups": "PodGroups", "queues": "Queues"}[a.resource]
	if kind == "" {
		kind = a.resource
	}
	words := a.verb + " " + kind
	if a.name != "" {
		words = fmt.Sprintf("%s the %s %q", a.verb, strings.TrimSuffix(kind, "s"), a.name)
	}
	switch {
	case a.namespace != "":
		return words + fmt.Sprintf(" in namespace %q", a.namespace)
	case a.resource == "podgroups":
		return words + " in all namespaces"
	}
	return words
}

// listGangs and those below are what viewers may do.
func listGangs(namespace string) access {
	return access{"list", v1beta1.GroupName, "podgroups", namespace, ""}
}
func getGang(namespace, name string) access {
	return access{"get", v1beta1.GroupName, "podgroups", namespace, name}
}
func listPods(namespace string) access { return access{"list", "", "pods", namespace, ""} }
func getQueue(name string) access      { return access{"get", v1beta1.GroupName, "queues", "", name} }

var (
	listQueues = access{"list", v1beta1.GroupName, "queues", "", ""}
	seeCluster = access{"list", v1beta1.GroupName, "shards", "", ""}
	listNodes  = access{"list", "", "nodes", "", ""}
)

// isCode reports whether an error is an answer with a code.
func isCode(err error, code int) bool {
	var p problem
	return errors.As(err, &p) && p.code == code
}
