package visibility

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/visibility/frontproxy"
	"basalt.dev/basalt/api/wait"
	"basalt.dev/basalt/api/wire"
)

// Options of a server.
type Options struct {
	Address string      // host:port; empty: nobody may ask
	TLS     *tls.Config // nil is plain text, on a loopback address alone: requests carry tokens
	Kube    kubernetes.Interface
	Reviews *Reviews // of Kube; of its own if nil
	// whom requests are believed from that the aggregator of the API server forwards; nil: nobody
	Trust func() *frontproxy.Trust
	Log   *slog.Logger // slog.Default() if nil

	Answer   func(context.Context, *wire.WhyRequest) (*wire.WhyReply, error)
	Standing func(context.Context, *wire.StandingRequest) (*wire.StandingReply, error) // asks the coordinator
	WhatIf   func(context.Context, *wire.WhatIfRequest) (*wire.WhatIfReply, error)     // likewise
	Queues   func(context.Context, *wire.QueuesRequest) (*wire.QueuesReply, error)     // likewise
	Status   func(context.Context, Scope) (*Status, error)
	Nodes    func(context.Context) (*NodeShares, error)
	Draining func(ctx context.Context, shard string) (Drain, error)
	Drain    func(ctx context.Context, shard string, cancel bool, by Caller) (Drain, error)
}

// Caller is a user who may do something, and the token that proves it; none for one whom the API server's aggregator
// names.
type Caller struct {
	authentication.UserInfo
	Token string
}

// Bounds of what users cost.
const (
	requestsPerSecond = 50 // of all tenants, in turn; each asks a shard's loop, and may need reviews
	requestsAtOnce    = 100
	ownPerSecond      = 5 // of one user
	ownAtOnce         = 20
	standingPerSecond = 10 // likewise: each asks the coordinator
	standingAtOnce    = 20
	whatIfPerSecond   = 2 // likewise: each asks the coordinator, which answers as many
	whatIfAtOnce      = 4
	statusPerSecond   = 2 // of all users: each asks all processes
	statusAtOnce      = 4
	statusesUnderWay  = 2
	waitAtMost        = 10               // of one tenant
	standingWithin    = time.Second      // of an answer that is as true without it
	remembered        = 1024             // users
	within            = 5 * time.Second  // a request is answered,
	statusWithin      = 10 * time.Second // and one for the status
	maxQuery          = 4 << 10          // bytes of a request's path and query,
	maxHeaders        = 256 << 10        // and of its headers: a user may be in a thousand groups
)

// server answers requests.
type server struct {
	Options
	all       *wait.Turns
	own       *cache.LRUExpireCache // name of a user -> *rate.Limiter
	standings *wait.Turns
	whatIfs   *wait.Turns
	statuses  *rate.Limiter
	underWay  chan struct{} // a place for each status
}

// problem is an answer that is none.
type problem struct {
	code int
	text string
}

func (p problem) Error() string { return p.text }

// enter finds out whose request it is, and whether this user may make one more now.
func (s *server) enter(ctx context.Context, r *http.Request) (*user, error) {
	for header := range r.Header { // who is told that another may do something would be told wrong
		if strings.HasPrefix(header, "Impersonate-") {
			return nil, problem{http.StatusBadRequest,
				"Basalt does not impersonate: it answers the owner of the token, so leave out --as, or give a token of that user"}
		}
	}
	who, err := s.identify(ctx, r)
	if err != nil {
		return nil, err
	}
	if !takes(s.own, who.Username, ownPerSecond, ownAtOnce) || !s.all.Wait(ctx, who.tenant()) {
		return nil, tooMany
	}
	return who, nil
}

// identify returns whom the aggregator of the API server names, or whose token it is.
func (s *server) identify(ctx context.Context, r *http.Request) (*user, error) {
	if s.Trust != nil {
		switch who, is, err := s.Trust().User(r, time.Now()); {
		case err != nil:
			return nil, problem{http.StatusUnauthorized, err.Error()}
		case is:
			return forwarded(who), nil
		}
	}
	token, err := tokenOf(r.Header.Get("Authorization"))
	if err != nil {
		return nil, err
	}
	from, _, _ := net.SplitHostPort(r.RemoteAddr)
	return s.Reviews.authenticate(ctx, from, token, false)
}

// why says why a gang waits.
func (s *server) why(ctx context.Context, r *http.Request) (any, error) {
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil, problem{http.StatusBadRequest, "the path names no object: it is /v1/namespaces/NAMESPACE/gangs/NAME/why"}
	}
	who, err := s.enter(ctx, r)
	if err != nil {
		return nil, err
	}
	reply, err := s.find(ctx, who, namespace, name)
	if err != nil {
		return nil, err
	}
	return s.withStanding(ctx, who, FromReply(namespace, name, reply), reply), nil
}

// find returns what the home of a gang says of it, by the name of a PodGroup or pod, to a user who may get that.
func (s *server) find(ctx context.Context, who *user, namespace, name string) (*wire.WhyReply, error) {
	mayGet := func(group, resource string) error { // the same words whether there is one or not
		return s.Reviews.authorise(ctx, who, authorization.ResourceAttributes{Verb: "get", Group: group,
			Resource: resource, Namespace: namespace, Name: name}, false,
			fmt.Sprintf("user %q may not get the PodGroup or pod %s/%s", who.Username, namespace, name))
	}
	reply, err := s.Answer(ctx, &wire.WhyRequest{Namespace: namespace, Name: name})
	if err != nil {
		return nil, s.silent(err)
	}
	if reply.GetKnown() {
		if err := mayGet(groupOf(api.GroupKind(reply.GetKind())), "podgroups"); err != nil {
			return nil, err
		}
		return reply, nil
	}
	if err := mayGet("", "pods"); err != nil {
		return nil, err
	}
	pod, err := s.Kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, problem{http.StatusNotFound, fmt.Sprintf("there is no PodGroup and no pod %s/%s", namespace, name)}
	case err != nil:
		return nil, problem{http.StatusServiceUnavailable, fmt.Sprintf("read pod %s/%s: %v", namespace, name, err)}
	}
	if ended := OfEnded(pod); ended != nil {
		return ended, nil
	}
	if reply, err = s.Answer(ctx, &wire.WhyRequest{PodUid: string(pod.UID)}); err != nil {
		return nil, s.silent(err)
	}
	if !reply.GetKnown() {
		return nil, problem{http.StatusNotFound, notOurs(pod)}
	}
	return reply, nil
}

// silent is what a user is told when the shard that drives a gang does not answer. Addresses are for the log.
func (s *server) silent(err error) error {
	s.Log.Debug("the shard that drives a gang does not answer", "error", err)
	if code := status.Code(err); code == codes.Unavailable || code == codes.DeadlineExceeded {
		return problem{http.StatusServiceUnavailable,
			"the shard that drives it does not answer; if it is gone, another one takes over: ask again in a moment"}
	}
	return problem{http.StatusServiceUnavailable, "the shard that drives it does not answer: " +
		api.Shorten(err.Error(), maxErrorBytes)}
}

// withStanding adds what the coordinator says of a gang that waits. If it cannot be asked, the rest is still true.
func (s *server) withStanding(ctx context.Context, who *user, w *Why, reply *wire.WhyReply) *Why {
	waits := reply.GetMessage() != "" && reply.GetGangUid() != "" && w.Reason != v1beta1.ReasonFinished
	if !waits || s.Standing == nil {
		return w
	}
	ctx, cancel := context.WithTimeout(ctx, standingWithin)
	defer cancel()
	if !s.standings.Wait(ctx, who.tenant()) {
		return w
	}
	said, err := s.Standing(ctx, &wire.StandingRequest{Queue: reply.GetQueue(), GangUid: reply.GetGangUid()})
	if err != nil {
		s.Log.Debug("the coordinator does not say how a gang stands", "error", err)
		return w
	}
	w.Standing = standingOf(said, time.Duration(reply.GetSearchMs())*time.Millisecond)
	return w
}

// whyQueue says what a queue has and wants, which of its gangs is next, and which claims concern it.
func (s *server) whyQueue(ctx context.Context, r *http.Request) (any, error) {
	name, namespace := r.PathValue("name"), r.PathValue("namespace")
	if err := api.ValidatePath(name); err != nil {
		return nil, problem{http.StatusBadRequest, err.Error()}
	}
	if namespace != "" && len(validation.IsDNS1123Label(namespace)) > 0 {
		return nil, problem{http.StatusBadRequest,
			"the path names no namespace: it is /v1/namespaces/NAMESPACE/queues/NAME/why"}
	}
	who, err := s.enter(ctx, r)
	if err != nil {
		return nil, err
	}
	said, err := s.standingFor(ctx, who, name, namespace)
	if err != nil {
		return nil, err
	}
	return queueFromReply(said, func(g *wire.GangRef) bool {
		group, resource := "", "pods"
		if !g.GetSingle() {
			group, resource = groupOf(api.GroupKind(g.GetKind())), "podgroups"
		}
		return s.Reviews.authorise(ctx, who, authorization.ResourceAttributes{Verb: "get", Group: group,
			Resource: resource, Namespace: g.GetNamespace(), Name: g.GetName()}, false, "no") == nil
	}), nil
}

// notOurs says why Basalt has nothing to say about a pod.
func notOurs(p *corev1.Pod) string {
	if p.Spec.SchedulerName == api.SchedulerName && p.Spec.NodeName == "" {
		return fmt.Sprintf("Basalt has not seen pod %s/%s yet: ask again in a moment", p.Namespace, p.Name)
	}
	if p.Spec.NodeName != "" {
		return fmt.Sprintf("pod %s/%s is bound to node %s, and no gang of Basalt's", p.Namespace, p.Name, p.Spec.NodeName)
	}
	return fmt.Sprintf("pod %s/%s is not Basalt's: its spec.schedulerName is %q", p.Namespace, p.Name, p.Spec.SchedulerName)
}

// groupOf returns the API group of a kind of PodGroup.
func groupOf(kind api.GroupKind) string {
	switch kind {
	case api.VolcanoGroup:
		return "scheduling.volcano.sh"
	case api.UpstreamGroup:
		return "scheduling.k8s.io"
	}
	return v1beta1.GroupName
}

// status says who is there, how full the queues are, and what waits, to whoever may list shards.
func (s *server) status(ctx context.Context, r *http.Request) (any, error) {
	if _, err := s.overseer(ctx, r, "status"); err != nil {
		return nil, err
	}
	query := r.URL.Query()
	scope := Scope{Queue: query.Get("queue"), Gang: query.Get("gang"), Gangs: MaxGangs}
	if text := query.Get("gangs"); text != "" {
		var err error
		if scope.Gangs, err = strconv.Atoi(text); err != nil {
			return nil, problem{http.StatusBadRequest, fmt.Sprintf("gangs=%q is no number", api.Shorten(text, 20))}
		}
	}
	if err := scope.Check(); err != nil {
		return nil, err
	}
	leave, err := s.everybody()
	if err != nil {
		return nil, err
	}
	defer leave()
	said, err := s.Status(ctx, scope)
	return said, cannot("read the control store", err)
}

// overseer returns whoever asks, if that is a user who may see the status.
func (s *server) overseer(ctx context.Context, r *http.Request, what string) (*user, error) {
	who, err := s.enter(ctx, r)
	if err != nil {
		return nil, err
	}
	return who, s.Reviews.authorise(ctx, who, authorization.ResourceAttributes{Verb: "list", Group: v1beta1.GroupName,
		Resource: shardsResource}, false, fmt.Sprintf("user %q may not list %s.%s in the whole cluster, which basalt %s "+
		"needs: the ClusterRole basalt-status has the right", who.Username, shardsResource, v1beta1.GroupName, what))
}

// everybody takes a place for a question that all processes are asked; leave gives it back.
func (s *server) everybody() (leave func(), err error) {
	if !s.statuses.Allow() {
		return nil, tooMany
	}
	select {
	case s.underWay <- struct{}{}:
		return func() { <-s.underWay }, nil
	default:
		return nil, tooMany
	}
}

// drain has a shard drained, or tells how far it is, on behalf of whoever may create a drain of that shard. For an order the API server is
// asked anew: whoever lost the right has lost it.
func (s *server) drain(ctx context.Context, r *http.Request) (any, error) {
	name := r.PathValue("name")
	if err := checkShard(name); err != nil {
		return nil, err
	}
	who, err := s.enter(ctx, r)
	if err != nil {
		return nil, err
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		if err := s.Reviews.mayDrain(ctx, who, name, false); err != nil {
			return nil, err
		}
		said, err := s.Draining(ctx, name)
		return said, cannot("read the control store", err)
	}
	from, _, _ := net.SplitHostPort(r.RemoteAddr)
	caller := Caller{who.UserInfo, who.token}
	by, err := s.Reviews.MayDrain(ctx, from, caller, name)
	if err != nil {
		return nil, err
	}
	said, err := s.Drain(ctx, name, r.Method == http.MethodDelete, caller)
	if err == nil {
		s.Log.Info("a user had a shard drained, or its drain cancelled", "user", by, "shard", name, "draining", said.Draining, "before", said.Before)
	}
	return said, cannot("drain", err)
}

// cannot says what could not be done, unless the error is an answer already.
func cannot(what string, err error) error {
	var p problem
	if err == nil || errors.As(err, &p) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return problem{http.StatusServiceUnavailable, what + ": " + api.Shorten(err.Error(), maxMessage)}
}

// takes takes a token out of a bucket of its own for a key, and reports whether there was one.
func takes(limits *cache.LRUExpireCache, key string, perSecond rate.Limit, atOnce int) bool {
	limit, known := limits.Get(key)
	if !known {
		limit = rate.NewLimiter(perSecond, atOnce)
		limits.Add(key, limit, tokenFor)
	}
	return limit.(*rate.Limiter).Allow()
}

var tooMany = problem{http.StatusTooManyRequests, "too many requests: ask again in a second"}
