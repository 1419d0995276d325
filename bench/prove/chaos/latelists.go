package chaos

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"basalt.dev/basalt/api/wait"
	"basalt.dev/basalt/bench/stage/local/network"
)

// listProxy stands between a process and the API server, understands HTTP, and can hold back the answers to lists while
// watches run on: a list then shows a state that events have already passed, as one from a lagging cache does.
type listProxy struct {
	server *http.Server
	target string
	lag    atomic.Int64 // nanoseconds
}

func newListProxy(in network.Place, dir, target string) (*listProxy, string, error) {
	certificate, err := tls.LoadX509KeyPair(filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key"))
	if err != nil {
		return nil, "", err
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, "", err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	p := &listProxy{target: target}
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "https", Host: target})
	forward.Transport = &http.Transport{
		ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots},
		DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
			err = in.In(func() (err error) {
				c, err = (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, network, address)
				return err
			})
			return c, err
		},
	}
	forward.FlushInterval = -1
	forward.ErrorLog = log.New(io.Discard, "", 0)
	forward.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) } // as a broken connection
	forward.ModifyResponse = func(r *http.Response) error {
		if lag := time.Duration(p.lag.Load()); lag > 0 && isList(r.Request) {
			wait.For(r.Request.Context(), lag) // the server read its state before this
		}
		return nil
	}
	p.server = &http.Server{Handler: forward, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}}, ErrorLog: forward.ErrorLog, ReadHeaderTimeout: 10 * time.Second}
	var l net.Listener
	if err := in.In(func() (err error) { l, err = net.Listen("tcp", "127.0.0.1:0"); return err }); err != nil {
		return nil, "", fmt.Errorf("listen: %w", err)
	}
	go func() {
		if err := p.server.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
			panic(err)
		}
	}()
	return p, l.Addr().String(), nil
}

// isList reports whether a request lists a kind.
func isList(r *http.Request) bool {
	last := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	switch last {
	case "pods", "nodes", "queues", "podgroups", "persistentvolumeclaims", "persistentvolumes", "priorityclasses", "namespaces",
		"storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments", "deviceclasses", "poddisruptionbudgets":
		return r.Method == http.MethodGet && r.URL.Query().Get("watch") == ""
	}
	return false
}

// lateLists holds back the lists of all processes for a while, and kills one of them, so that somebody lists.
func (a *attack) lateLists() {
	lag, d := between(a.rand, 500*time.Millisecond, 5*time.Second), between(a.rand, 5*time.Second, 15*time.Second)
	victim := a.shard()
	ok, done := a.once("late lists")
	if !ok {
		return
	}
	for _, m := range a.members {
		m.lists.lag.Store(int64(lag))
	}
	a.lasting(d, func() {
		defer done()
		for _, m := range a.members {
			m.lists.lag.Store(0)
		}
	})
	a.kill(victim, 300*time.Millisecond)
	a.about = fmt.Sprintf("lists arrive %s late for %s, and %s starts again", lag.Round(time.Millisecond), d.Round(time.Millisecond), victim.name)
}
