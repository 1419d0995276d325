package visibility

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/time/rate"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1alpha1"
	"basalt.dev/basalt/api/wire"
)

// Options of a server.
type Options struct {
	Address string      // host:port; empty: nobody may ask
	TLS     *tls.Config // nil is plain text, on a loopback address alone: requests carry tokens
	Kube    kubernetes.Interface
	Answer  func(context.Context, *wire.WhyRequest) (*wire.WhyReply, error)
	Log     *slog.Logger // slog.Default() if nil
}

// Bounds of what users cost.
const (
	requestsPerSecond = 50 // of all users; each asks a shard's loop, and may need reviews
	requestsAtOnce    = 100
	ownPerSecond      = 5 // of one user
	ownAtOnce         = 20
	freshPerSecond    = 5 // tokens that have to be reviewed, from one address
	freshAtOnce       = 20
	remembered        = 1024 // tokens, and reviews
	maxToken          = 16 << 10
	within            = 5 * time.Second // a request is answered

	tokenFor  = time.Minute // a token that is good counts as good,
	accessFor = 10 * time.Second
	badFor    = 5 * time.Second // and one that is not as bad
)

// server answers requests.
type server struct {
	Options
	all      *rate.Limiter
	own      *cache.LRUExpireCache // name of a user -> *rate.Limiter
	fresh    *cache.LRUExpireCache // address -> *rate.Limiter
	tokens   *cache.LRUExpireCache // hash of a token -> user
	accesses *cache.LRUExpireCache // access -> bool
}

// user is who a token belongs to; invalid for a token that is not good.
type user struct {
	authentication.UserInfo
	invalid bool
}

// access is what a user wants to see.
type access struct{ token, group, resource, namespace, name string }

// problem is an answer that is none.
type problem struct {
	code int
	text string
}

func (p problem) Error() string { return p.text }

// Serve listens, and answers until ctx ends.
func Serve(ctx context.Context, o Options) (net.Addr, error) {
	if o.Address == "" {
		return nil, nil
	}
	listener, err := net.Listen("tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("serve users' questions (--visibility): %w", err)
	}
	if o.TLS == nil && !listener.Addr().(*net.TCPAddr).IP.IsLoopback() {
		_ = listener.Close()
		return nil, fmt.Errorf("--visibility %s: requests carry tokens, so without TLS only a loopback address may be given", o.Address)
	}
	o.Log = cmp.Or(o.Log, slog.Default())
	if o.TLS != nil {
		listener = tls.NewListener(listener, o.TLS)
	}
	server := &http.Server{Handler: newServer(o), ReadHeaderTimeout: within, WriteTimeout: 2 * within, IdleTimeout: time.Minute, MaxHeaderBytes: 2 * maxToken,
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug)}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			o.Log.Error("server of users' questions stopped", "error", err)
		}
	}()
	return listener.Addr(), nil
}

func newServer(o Options) http.Handler {
	s := &server{Options: o, all: rate.NewLimiter(requestsPerSecond, requestsAtOnce),
		own: cache.NewLRUExpireCache(remembered), fresh: cache.NewLRUExpireCache(remembered), tokens: cache.NewLRUExpireCache(remembered), accesses: cache.NewLRUExpireCache(remembered)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/namespaces/{namespace}/gangs/{name}/why", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), within)
		defer cancel()
		answer, err := s.why(ctx, r)
		s.write(w, answer, err)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.write(w, nil, problem{http.StatusNotFound, "what may be asked is GET /v1/namespaces/NAMESPACE/gangs/NAME/why"})
	})
	return mux
}

func (s *server) write(w http.ResponseWriter, answer any, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if err != nil {
		p := problem{http.StatusInternalServerError, err.Error()}
		if errors.As(err, &p); errors.Is(err, context.DeadlineExceeded) {
			p = problem{http.StatusGatewayTimeout, "no answer within " + within.String()}
		}
		if p.code == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Bearer realm="basalt"`)
		}
		if p.code == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "1")
		}
		w.WriteHeader(p.code)
		answer = map[string]string{"error": p.text}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// why answers one request.
func (s *server) why(ctx context.Context, r *http.Request) (*Why, error) {
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil, problem{http.StatusBadRequest, "the path names no object: it is /v1/namespaces/NAMESPACE/gangs/NAME/why"}
	}
	token, err := tokenOf(r)
	if err != nil {
		return nil, err
	}
	who, err := s.authenticate(ctx, r, token)
	if err != nil {
		return nil, err
	}
	if !takes(s.own, who.Username, ownPerSecond, ownAtOnce) || !s.all.Allow() {
		return nil, tooMany
	}
	reply, err := s.Answer(ctx, &wire.WhyRequest{Namespace: namespace, Name: name})
	if err != nil {
		return nil, problem{http.StatusServiceUnavailable, fmt.Sprintf("the shard does not answer: %v", err)}
	}
	if reply.GetKnown() {
		if err := s.authorise(ctx, token, who, groupOf(api.GroupKind(reply.GetKind())), "podgroups", namespace, name); err != nil {
			return nil, err
		}
		return FromReply(namespace, name, reply), nil
	}
	if err := s.authorise(ctx, token, who, "", "pods", namespace, name); err != nil {
		return nil, err
	}
	pod, err := s.Kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, problem{http.StatusNotFound, fmt.Sprintf("there is no PodGroup and no pod %s/%s", namespace, name)}
	case err != nil:
		return nil, problem{http.StatusServiceUnavailable, fmt.Sprintf("read pod %s/%s: %v", namespace, name, err)}
	}
	if reply, err = s.Answer(ctx, &wire.WhyRequest{PodUid: string(pod.UID)}); err != nil {
		return nil, problem{http.StatusServiceUnavailable, fmt.Sprintf("the shard does not answer: %v", err)}
	}
	if !reply.GetKnown() {
		return nil, problem{http.StatusNotFound, notOurs(pod)}
	}
	return FromReply(namespace, name, reply), nil
}

// notOurs says why Basalt has nothing to say about a pod.
func notOurs(p *corev1.Pod) string {
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
	return v1alpha1.GroupName
}

// tokenOf returns the token of a request.
func tokenOf(r *http.Request) (bearer, error) {
	text, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if text = strings.TrimSpace(text); !found || text == "" || len(text) > maxToken {
		return bearer{}, problem{http.StatusUnauthorized, "a bearer token is needed, such as `kubectl create token NAME` makes"}
	}
	sum := sha256.Sum256([]byte(text))
	return bearer{text, string(sum[:])}, nil
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

// bearer is a token.
type bearer struct{ text, key string }

// authenticate asks the API server whose token it is.
func (s *server) authenticate(ctx context.Context, r *http.Request, token bearer) (*user, error) {
	if known, ok := s.tokens.Get(token.key); ok {
		return known.(*user).good()
	}
	if from, _, _ := net.SplitHostPort(r.RemoteAddr); !takes(s.fresh, from, freshPerSecond, freshAtOnce) {
		return nil, tooMany
	}
	review, err := s.Kube.AuthenticationV1().TokenReviews().Create(ctx, &authentication.TokenReview{Spec: authentication.TokenReviewSpec{Token: token.text}}, metav1.CreateOptions{})
	if err != nil {
		return nil, s.reviewFailed("tokenreviews.authentication.k8s.io", err)
	}
	who, ttl := &user{UserInfo: review.Status.User}, tokenFor
	if !review.Status.Authenticated {
		who.invalid, ttl = true, badFor
	}
	s.tokens.Add(token.key, who, ttl)
	return who.good()
}

func (who *user) good() (*user, error) {
	if who.invalid {
		return nil, problem{http.StatusUnauthorized, "the API server does not accept this token: it may be expired, revoked, or for another audience"}
	}
	return who, nil
}

// authorise asks the API server whether a user may get an object.
func (s *server) authorise(ctx context.Context, token bearer, who *user, group, resource, namespace, name string) error {
	key := access{token.key, group, resource, namespace, name}
	allowed, known := s.accesses.Get(key)
	if !known {
		extra := map[string]authorization.ExtraValue{}
		for k, v := range who.Extra {
			extra[k] = authorization.ExtraValue(v)
		}
		review, err := s.Kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{
			User: who.Username, UID: who.UID, Groups: who.Groups, Extra: extra,
			ResourceAttributes: &authorization.ResourceAttributes{Verb: "get", Group: group, Resource: resource, Namespace: namespace, Name: name},
		}}, metav1.CreateOptions{})
		if err != nil {
			return s.reviewFailed("subjectaccessreviews.authorization.k8s.io", err)
		}
		allowed = review.Status.Allowed
		s.accesses.Add(key, allowed, accessFor)
	}
	if !allowed.(bool) { // whether there is one or not
		return problem{http.StatusForbidden, fmt.Sprintf("user %q may not get the PodGroup or pod %s/%s", who.Username, namespace, name)}
	}
	return nil
}

// reviewFailed says that the API server did not review something.
func (s *server) reviewFailed(what string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return err
	}
	if apierrors.IsForbidden(err) {
		s.Log.Error("users' questions cannot be answered: Basalt's ServiceAccount may not create "+what, "error", err)
		return problem{http.StatusServiceUnavailable, "Basalt's ServiceAccount may not create " + what + ": an administrator has to grant it"}
	}
	return problem{http.StatusServiceUnavailable, fmt.Sprintf("the API server does not review: %v", err)}
}
