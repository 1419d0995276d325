// Package serve serves HTTP for operators: /livez and /readyz for probes, /metrics for Prometheus, /configz for the configuration in force,
// and /debug/pprof for debugging.
//
// Metrics contain the names of queues, and profiles contain memory. So both require the bearer token of a file. Without a token
// file they are served on loopback addresses only, and a listener that other machines can reach answers 403. Probes need no token,
// because a kubelet has none; they answer only "ok", what is being waited for, or why the process must be restarted.
package serve

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// shortest is how many bytes a token has at least.
const shortest = 16

// Options of what is shown.
type Options struct {
	Address   string // host:port; empty: nothing is shown
	TokenFile string // holds the bearer token that /metrics and /debug/pprof ask for; read again at each request
	// Keys is set by a process that keeps the keys of a CA: it shows no profiles, and it may have to write the token
	// first, so TokenFile may be missing at the start.
	Keys     bool
	Registry *prometheus.Registry
	Config   func() []byte // what /configz shows, in YAML; may be nil
	Ready    func() error  // nil when the process can do its work, else why not; nil for a process that always can
	Live     func() error  // nil unless the process must be restarted, else why; nil for a process that never must
	Log      *slog.Logger  // slog.Default() if nil
}

// Registry returns a registry with the metrics of the process, of the Go runtime, and of the build.
func Registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildInfo())
	return r
}

// HTTP listens and serves until ctx ends.
func HTTP(ctx context.Context, o Options) error {
	if o.Address == "" {
		return nil
	}
	_, err := listen(ctx, o)
	return err
}

func listen(ctx context.Context, o Options) (net.Addr, error) {
	log := cmp.Or(o.Log, slog.Default())
	guard := &guard{file: o.TokenFile, log: log}
	if o.TokenFile != "" && !o.Keys {
		if _, err := guard.token(); err != nil {
			return nil, fmt.Errorf("--metrics-token-file: %w", err)
		}
	}
	listener, err := net.Listen("tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("serve metrics (--metrics): %w", err)
	}
	guard.local = listener.Addr().(*net.TCPAddr).IP.IsLoopback()
	if o.TokenFile == "" && !guard.local {
		log.Warn("/metrics and /debug/pprof are disabled: the address is not a loopback address, and --metrics-token-file is not set", "address", o.Address)
	}
	server := &http.Server{Handler: handler(o, guard), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics server stopped", "error", err)
		}
	}()
	return listener.Addr(), nil
}

func handler(o Options, g *guard) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", probe(o.Live))
	mux.HandleFunc("GET /readyz", probe(o.Ready))
	mux.Handle("GET /metrics", g.guarded(promhttp.HandlerFor(o.Registry, promhttp.HandlerOpts{})))
	mux.Handle("GET /configz", g.guarded(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		if o.Config != nil {
			_, _ = w.Write(o.Config())
		}
	})))
	if o.Keys {
		return mux
	}
	mux.Handle("/debug/pprof/", g.guarded(http.HandlerFunc(pprof.Index)))
	mux.Handle("/debug/pprof/cmdline", g.guarded(http.HandlerFunc(pprof.Cmdline)))
	mux.Handle("/debug/pprof/profile", g.guarded(http.HandlerFunc(pprof.Profile)))
	mux.Handle("/debug/pprof/symbol", g.guarded(http.HandlerFunc(pprof.Symbol)))
	mux.Handle("/debug/pprof/trace", g.guarded(http.HandlerFunc(pprof.Trace)))
	return mux
}

// probe answers ok, or 503 with the reason that ask gives.
func probe(ask func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if ask != nil {
			if err := ask(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
		}
		fmt.Fprintln(w, "ok")
	}
}

// guard lets in who has the token.
type guard struct {
	file  string
	local bool // only this machine reaches the listener
	log   *slog.Logger

	mu     sync.Mutex
	last   []byte
	failed bool
}

func (g *guard) guarded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.file == "" {
			if !g.local {
				http.Error(w, "this process has no token to ask for: start it with --metrics-token-file", http.StatusForbidden)
				return
			}
			h.ServeHTTP(w, r)
			return
		}
		want, err := g.token()
		given, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		a, b := sha256.Sum256(want), sha256.Sum256([]byte(given)) // of one length, whatever was given
		if err != nil || !bearer || subtle.ConstantTimeCompare(a[:], b[:]) != 1 {
			w.Header().Set("WWW-Authenticate", `Bearer realm="basalt"`)
			http.Error(w, "the bearer token of --metrics-token-file is needed", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// token reads the file. One that cannot be read changes nothing: while a Secret is replaced it may be absent for a moment.
func (g *guard) token() ([]byte, error) {
	text, err := os.ReadFile(g.file)
	text = bytes.TrimSpace(text)
	if err == nil && len(text) < shortest {
		err = fmt.Errorf("%s: a token of %d bytes, at least %d are needed", g.file, len(text), shortest)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		g.last, g.failed = text, false
		return text, nil
	}
	if g.last == nil {
		return nil, err
	}
	if !g.failed {
		g.failed = true
		g.log.Error("cannot read the metrics token, keeping the previous one", "error", err)
	}
	return g.last, nil
}
