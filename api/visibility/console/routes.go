package console

import (
	"cmp"
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api/kube"
)

// Serve listens and answers until ctx ends, and returns the URL to open.
func Serve(ctx context.Context, o Options) (string, error) {
	o.Log = cmp.Or(o.Log, slog.Default())
	listener, err := net.Listen("tcp", o.Address)
	if err != nil {
		return "", fmt.Errorf("listen for browsers: %w", err)
	}
	address := listener.Addr().(*net.TCPAddr)
	if !address.IP.IsLoopback() && (o.TLS == nil || !o.LogIn) {
		_ = listener.Close()
		return "", fmt.Errorf("listen at %s: only a loopback address may be given without TLS, and without a login",
			o.Address)
	}
	s, err := newServer(ctx, o, address.String())
	if err != nil {
		_ = listener.Close()
		return "", err
	}
	scheme := "http"
	if o.TLS != nil {
		scheme, listener = "https", tls.NewListener(listener, o.TLS)
	}
	web := &http.Server{Handler: s.handler(), ReadHeaderTimeout: writeWithin, ReadTimeout: writeWithin,
		IdleTimeout: time.Minute, MaxHeaderBytes: maxHeaders,
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug)}
	context.AfterFunc(ctx, func() { _ = web.Close() })
	go func() {
		if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			o.Log.Error("the console's server stopped", "error", err)
		}
	}()
	at := scheme + "://" + address.String() + "/"
	if !o.LogIn {
		at += "open?once=" + s.once
	}
	return at, nil
}

// newServer makes one that watches already.
func newServer(ctx context.Context, o Options, host string) (*server, error) {
	clients, err := kube.ConnectConfig(o.Config, "basalt-console")
	if err != nil {
		return nil, err
	}
	s := &server{Options: o, ctx: ctx, host: host, timing: usual, objects: newObjects(clients.Basalt, o.Log),
		sessions:  &sessions{all: map[[32]byte]*session{}, forever: !o.LogIn, each: usual.session},
		singlesOf: map[string]*shared[[]singleRow]{},
		logins:    rate.NewLimiter(loginPerSecond, loginAtOnce), asks: rate.NewLimiter(askPerSecond, askAtOnce)}
	s.history = newHistory()
	s.mayAll, s.mayQueues = true, true
	if !o.LogIn {
		first, cancel := context.WithTimeout(ctx, pageWithin)
		defer cancel()
		if s.local, err = recognise(first, o.Config, o.Namespace); err != nil {
			return nil, fmt.Errorf("find out whose kubeconfig this is: %w", err)
		}
		s.once, s.onceUntil = newSecret(), time.Now().Add(onceWithin)
		s.mayAll = s.local.may(first, listGangs(""), reviewFor) == nil
		s.mayQueues = s.local.may(first, listQueues, reviewFor) == nil
	}
	if s.mayAll {
		if _, err := s.objects.follow(ctx, ""); err != nil {
			return nil, err
		}
	}
	if s.mayQueues {
		read := s.objects.followQueues(ctx)
		go s.history.keep(ctx, read, s.objects)
	}
	return s, nil
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	for path, show := range map[string]render{
		"/work": s.work, "/gangs/{namespace}/{name}": s.gang, "/queues": s.queues, "/queues/{name}": s.queue,
		"/cluster": s.cluster,
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { s.show(w, r, show) })
		mux.HandleFunc("GET /stream"+path, func(w http.ResponseWriter, r *http.Request) { s.stream(w, r, show) })
	}
	mux.HandleFunc("GET /cluster/cells", s.cells)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/work", http.StatusSeeOther)
	})
	mux.HandleFunc("GET /open", s.open)
	mux.HandleFunc("GET /login", s.loginPage)
	mux.HandleFunc("POST /login", s.login)
	mux.HandleFunc("POST /logout", s.logout)
	mux.HandleFunc("GET /assets/{file}", asset)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", s.ready)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.refuse(w, r, nil, problem{http.StatusNotFound, "there is no such page"})
	})
	return s.guard(mux)
}

// guard sets what browsers are to heed, and refuses what no page of ours sends.
func (s *server) guard(next http.Handler) http.Handler {
	next = http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; " +
				"object-src 'none'",
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			w.Header().Set(name, value)
		}
		if !s.LogIn && r.Host != s.host { // a name that somebody else has lead here
			http.Error(w, "this is at http://"+s.host+"/ alone", http.StatusMisdirectedRequest)
			return
		}
		if len(r.URL.EscapedPath())+len(r.URL.RawQuery) > maxQuery {
			http.Error(w, "path and query are too long", http.StatusRequestURITooLong)
			return
		}
		defer func() { // a mistake of ours in one page is not to be silent
			if p := recover(); p != nil && p != http.ErrAbortHandler {
				s.Log.Error("a page panicked", "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
				panic(http.ErrAbortHandler)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// show answers with a page.
func (s *server) show(w http.ResponseWriter, r *http.Request, make render) {
	of, leave, err := s.enter(r, true)
	if err != nil {
		s.refuse(w, r, of, err)
		return
	}
	defer leave()
	ctx, cancel := context.WithTimeout(r.Context(), pageWithin)
	defer cancel()
	q := &query{Request: r, values: r.URL.Query(), viewer: of.viewer, reviews: reviewFor, memo: &memo{}}
	v, err := make(ctx, q)
	if err != nil {
		s.refuse(w, r, of, err)
		return
	}
	if s.LogIn { // the session goes on as long as somebody looks for pages
		if cookie, err := r.Cookie(cookieName); err == nil {
			s.sessions.setCookie(w, r, cookie.Value)
		}
	}
	v.frame(s, r, of)
	s.write(w, cmp.Or(v.Code, http.StatusOK), v)
}

// refuse says why there is no page. A viewer whose token the API server does not accept any more has to log in again.
func (s *server) refuse(w http.ResponseWriter, r *http.Request, of *session, err error) {
	p := problemOf(err)
	if p.code == http.StatusUnauthorized {
		if of != nil {
			s.sessions.stop(of)
			s.sessions.setCookie(w, r, "")
		}
		if r.Method == http.MethodGet && of == nil && s.LogIn && !strings.HasPrefix(r.URL.Path, "/stream") {
			http.Redirect(w, r, "/login?to="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
			return
		}
		if !s.LogIn {
			p.text = "open the URL that basalt console printed; it can be opened once: if it was, start the console again"
		}
	}
	if p.code == http.StatusTooManyRequests || p.code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	v := &view{Title: http.StatusText(p.code), Body: "problem", Data: p}
	if p.code != http.StatusUnauthorized {
		v.frame(s, r, of)
	}
	s.write(w, p.code, v)
}

// open begins a session on a laptop, once.
func (s *server) open(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	secret := s.once
	good := !s.LogIn && secret != "" && time.Now().Before(s.onceUntil) &&
		subtle.ConstantTimeCompare([]byte(r.URL.Query().Get("once")), []byte(secret)) == 1
	if good {
		s.once = ""
	}
	s.mu.Unlock()
	if !good {
		s.refuse(w, r, nil, problem{http.StatusUnauthorized, "this URL is of no use any more"})
		return
	}
	s.sessions.setCookie(w, r, s.sessions.add(s.local, time.Now()))
	http.Redirect(w, r, "/work", http.StatusSeeOther)
}

// loginPage asks for a token.
func (s *server) loginPage(w http.ResponseWriter, r *http.Request) {
	if !s.LogIn {
		s.refuse(w, r, nil, problem{http.StatusUnauthorized, ""})
		return
	}
	s.write(w, http.StatusOK, &view{Title: "Log in", Body: "login",
		Data: loginData{To: local(r.URL.Query().Get("to"))}})
}

type loginData struct{ To, Problem string }

// local returns a path of ours that somebody names, or the first page.
func local(to string) string {
	if u, err := url.Parse(to); err != nil || u.Scheme != "" || u.Host != "" || !strings.HasPrefix(to, "/") ||
		strings.HasPrefix(to, "//") || strings.ContainsAny(to, "\\\r\n\t") || len(to) > maxQuery {
		return "/work"
	}
	return to
}

// login begins a session for the owner of a token.
func (s *server) login(w http.ResponseWriter, r *http.Request) {
	if !s.LogIn {
		s.refuse(w, r, nil, problem{http.StatusUnauthorized, ""})
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	token, to := strings.TrimSpace(r.PostFormValue("token")), local(r.PostFormValue("to"))
	again := func(err error) {
		p := problemOf(err)
		s.write(w, p.code, &view{Title: "Log in", Body: "login", Data: loginData{to, p.text}})
	}
	switch {
	case token == "" || len(token) > maxToken || strings.ContainsAny(token, " \r\n\t"):
		again(problem{http.StatusBadRequest, "give a bearer token, such as kubectl create token NAME makes"})
		return
	case !s.logins.Allow():
		again(problem{http.StatusTooManyRequests, "too many people log in at once: try again in a second"})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), pageWithin)
	defer cancel()
	config := rest.AnonymousClientConfig(s.Config)
	config.BearerToken, config.UserAgent = token, "basalt-console"
	v, err := recognise(ctx, config, s.Namespace)
	if err != nil {
		again(err)
		return
	}
	s.sessions.setCookie(w, r, s.sessions.add(v, time.Now()))
	http.Redirect(w, r, to, http.StatusSeeOther)
}

func (s *server) logout(w http.ResponseWriter, r *http.Request) {
	if of := s.sessions.find(r, time.Now(), false); of != nil && s.LogIn {
		s.sessions.stop(of)
	}
	s.sessions.setCookie(w, r, "")
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// ready reports whether what is watched has been read.
func (s *server) ready(w http.ResponseWriter, r *http.Request) {
	for name, read := range s.objects.reads() {
		select {
		case <-read:
		default:
			http.Error(w, "not read yet: "+name, http.StatusServiceUnavailable)
			return
		}
	}
	_, _ = w.Write([]byte("ok\n"))
}
