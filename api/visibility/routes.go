package visibility

import (
	"cmp"
	"context"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"

	"basalt.dev/basalt/api/wait"
)

// Group and Version of the API under which the API server serves the questions, with deploy/visibility.yaml.
const (
	Group   = "visibility.basalt.dev"
	Version = "v1beta1"
)

// Prefixes of paths: of what the aggregator of the API server forwards, and of questions to a shard itself. What
// follows is the same.
const (
	Aggregated = "/apis/" + Group + "/" + Version
	Direct     = "/v1"
)

// asked is what may be asked.
const asked = `what may be asked is GET /v1/namespaces/NAMESPACE/gangs/NAME/why, GET /v1/queues/NAME/why, ` +
	`GET /v1/what-if, GET /v1/status, GET /v1/nodes, and GET, PUT or DELETE /v1/shards/NAME/drain; ` +
	`on behalf of a namespace GET /v1/namespaces/NAMESPACE/queues, .../queues/NAME/why and .../what-if; ` +
	`through the API server with ` + Aggregated + ` in place of /v1`

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
		return nil, fmt.Errorf("--visibility %s: requests carry tokens, so without TLS only a loopback address may be given",
			o.Address)
	}
	o.Log = cmp.Or(o.Log, slog.Default())
	if o.TLS != nil {
		listener = tls.NewListener(listener, o.TLS)
	}
	server := &http.Server{Handler: newServer(o), ReadHeaderTimeout: within, WriteTimeout: 2 * statusWithin,
		IdleTimeout: time.Minute, MaxHeaderBytes: maxHeaders,
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
	if o.Reviews == nil {
		o.Reviews = NewReviews(o.Kube, o.Log)
	}
	s := &server{Options: o, all: wait.NewTurns(requestsPerSecond, requestsAtOnce, waitAtMost),
		own:       cache.NewLRUExpireCache(remembered),
		standings: wait.NewTurns(standingPerSecond, standingAtOnce, waitAtMost),
		whatIfs:   wait.NewTurns(whatIfPerSecond, whatIfAtOnce, waitAtMost),
		statuses:  rate.NewLimiter(statusPerSecond, statusAtOnce), underWay: make(chan struct{}, statusesUnderWay)}
	mux := http.NewServeMux()
	for _, prefix := range []string{Direct, Aggregated} {
		handle := func(pattern string, limit time.Duration, answer question) {
			method, path, _ := strings.Cut(pattern, " ")
			mux.HandleFunc(method+" "+prefix+path, answer.handler(limit))
		}
		handle("GET /namespaces/{namespace}/gangs/{name}/why", within, s.why)
		handle("GET /queues/{name}/why", within, s.whyQueue)
		handle("GET /what-if", within, s.whatIf)
		handle("GET /namespaces/{namespace}/queues", within, s.usable)
		handle("GET /namespaces/{namespace}/queues/{name}/why", within, s.whyQueue)
		handle("GET /namespaces/{namespace}/what-if", within, s.whatIf)
		handle("GET /status", statusWithin, s.status)
		handle("GET /nodes", statusWithin, s.nodes)
		handle("GET /shards/{name}/drain", within, s.drain)
		handle("PUT /shards/{name}/drain", within, s.drain)
		handle("DELETE /shards/{name}/drain", within, s.drain)
	}
	for path, document := range discovery() {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { write(w, document) })
	}
	mux.HandleFunc("/", question(func(context.Context, *http.Request) (any, error) {
		return nil, problem{http.StatusNotFound, asked}
	}).handler(within))
	return mux
}

// question returns the answer to a request.
type question func(context.Context, *http.Request) (any, error)

func (ask question) handler(limit time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		if len(r.URL.EscapedPath())+len(r.URL.RawQuery) > maxQuery {
			refuse(w, r, problem{http.StatusRequestURITooLong, fmt.Sprintf("path and query have more than %d bytes", maxQuery)})
			return
		}
		if said, err := ask(ctx, r); err != nil {
			refuse(w, r, err)
		} else {
			write(w, said)
		}
	}
}

func write(w http.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(answer)
}

// failure is what a client of the API server understands, and Error is how ours sees that it is Basalt who answers.
type failure struct {
	metav1.Status `json:",inline"`
	Error         string `json:"error"`
}

var reasons = map[int]metav1.StatusReason{
	http.StatusBadRequest: metav1.StatusReasonBadRequest, http.StatusUnauthorized: metav1.StatusReasonUnauthorized,
	http.StatusForbidden: metav1.StatusReasonForbidden,
	http.StatusNotFound:  metav1.StatusReasonNotFound, http.StatusConflict: metav1.StatusReasonConflict,
	http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
	http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError: metav1.StatusReasonInternalError,
	http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable,
	http.StatusGatewayTimeout:      metav1.StatusReasonTimeout,
}

// refuse says why there is no answer.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := problem{http.StatusInternalServerError, err.Error()}
	if errors.As(err, &p); errors.Is(err, context.DeadlineExceeded) {
		p = problem{http.StatusGatewayTimeout, "no answer in time: ask again in a moment"}
	}
	if p.code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="basalt"`)
	}
	if p.code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.code)
	if !strings.HasPrefix(r.URL.Path, "/apis/") {
		_ = json.NewEncoder(w).Encode(map[string]string{"error": p.text})
		return
	}
	_ = json.NewEncoder(w).Encode(failure{metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:  metav1.StatusFailure,
		Message: p.text, Reason: reasons[p.code], Code: int32(p.code)}, p.text})
}
