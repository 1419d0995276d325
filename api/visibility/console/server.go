package console

import (
	"context"
	"crypto/tls"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"
)

// Ask asks Basalt a question of package visibility, with the rights of a configuration, and reads the answer. An error
// may have a method Code, the HTTP code of what came in place of an answer.
type Ask func(ctx context.Context, config *rest.Config, path string, answer any) error

// Options of a console.
type Options struct {
	Address string       // host:port
	TLS     *tls.Config  // nil is plain text, on a loopback address alone: cookies are as good as tokens
	Config  *rest.Config // of the API server; the console watches with its rights
	// LogIn has viewers log in with a token of their own each. Without it, whoever opens the URL that Serve returns has
	// the rights of Config: it is for a loopback address alone.
	LogIn     bool
	Namespace string // that a viewer begins with; empty: what his name says, or none
	Ask       Ask
	Log       *slog.Logger // slog.Default() if nil
}

// server answers browsers.
type server struct {
	Options
	ctx      context.Context // of what goes on after a request
	host     string          // that requests are for, on a laptop
	objects  *objects
	sessions *sessions
	timing   timing
	logins   *rate.Limiter
	asks     *rate.Limiter
	history  *history
	nodes    shared[*nodeMap]
	statuses shared[*clusterState]

	mu        sync.Mutex
	nodesTook time.Duration // to list nodes, the last time
	singlesOf map[string]*shared[[]singleRow]
	once      string    // the secret of the URL that opens a session on a laptop, until it is used
	onceUntil time.Time // or too late
	local     *viewer   // on a laptop
	mayAll    bool      // the console may list PodGroups in all namespaces, and
	mayQueues bool      // Queues
}

// render makes what is shown at a URL, for a viewer who may see it.
type render func(ctx context.Context, q *query) (*view, error)

// query is a viewer's request for a page.
type query struct {
	*http.Request
	values  url.Values
	viewer  *viewer
	reviews time.Duration // that old reviews count
	memo    *memo         // of a stream; of a page it is new
	stream  bool
}

// enter finds the session of a request, and takes a place for it.
func (s *server) enter(r *http.Request, prolong bool) (of *session, leave func(), err error) {
	of = s.sessions.find(r, time.Now(), prolong)
	if of == nil {
		return nil, nil, problem{http.StatusUnauthorized, "log in first"}
	}
	if !of.own.Allow() {
		return of, nil, problem{http.StatusTooManyRequests, "too many requests: ask again in a second"}
	}
	select {
	case of.work <- struct{}{}:
		return of, func() { <-of.work }, nil
	default:
		return of, nil, problem{http.StatusTooManyRequests, "too many requests at once: ask again in a second"}
	}
}

// problemOf makes an answer of any error.
func problemOf(err error) problem {
	p := problem{http.StatusInternalServerError, err.Error()}
	var coded interface{ Code() int }
	switch {
	case errors.As(err, &p):
	case errors.Is(err, context.DeadlineExceeded):
		p = problem{http.StatusGatewayTimeout, "no answer in time: ask again in a moment"}
	case errors.As(err, &coded):
		p.code = coded.Code()
	}
	return p
}

// ask asks Basalt for a viewer, whose questions wait for each other before they wait for those of others.
func (s *server) ask(ctx context.Context, v *viewer, path string, answer any) error {
	select {
	case v.asks <- struct{}{}:
		defer func() { <-v.asks }()
	case <-ctx.Done():
		return problem{http.StatusTooManyRequests, "too many questions at once: ask again in a moment"}
	}
	if err := s.asks.Wait(ctx); err != nil {
		return problem{http.StatusTooManyRequests, "too many questions at once: ask again in a moment"}
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	err := s.Ask(ctx, v.config, path, answer)
	var coded interface{ Code() int }
	if err == nil || errors.As(err, &coded) {
		return err
	}
	return problem{http.StatusServiceUnavailable, err.Error()}
}

// view is what a template is given.
type view struct {
	Title string
	Body  string // name of the template of the main part
	Data  any
	Code  int    // of HTTP; 0: 200
	Asked string // what a stream is to compare with, see whatIfData

	// Of the frame, which streams do not send.
	User   string
	LogIn  bool
	Nav    []link
	Stream string // URL of the stream, "" for a page without one
	Style  string // URL
	Script string // likewise
	Main   template.HTML
}

type link struct {
	Text, URL string
	Here      bool
}

// memo is what a stream remembers between two looks at its page, so that it does not ask the same every second.
type memo struct {
	said  map[string]remembered
	stale bool // an answer was of another version: the page is to be looked at again soon
}

type remembered struct {
	at    time.Time
	as    string // version of what it is about
	value any
	err   error
}

// recall returns what make returned before, unless that is older than again, or of another version and older than
// changed.
func recall[T any](m *memo, key, version string, changed, again time.Duration, make func() (T, error)) (T, error) {
	if had, is := m.said[key]; is {
		age := time.Since(had.at)
		if age < changed || had.as == version && age < again {
			m.stale = m.stale || had.as != version
			value, _ := had.value.(T)
			return value, had.err
		}
	}
	value, err := make()
	if m.said == nil {
		m.said = map[string]remembered{}
	}
	m.said[key] = remembered{time.Now(), version, value, err}
	return value, err
}
