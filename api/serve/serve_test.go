package serve

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const secret = "0123456789abcdef0123"

func TestWhoMaySeeWhat(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(secret + "\n")
	var log strings.Builder
	ready, live := error(nil), error(nil)
	get := func(g *guard, path, authorization string) (int, string) {
		t.Helper()
		g.log = slog.New(slog.NewTextHandler(&log, nil))
		r := httptest.NewRequest(http.MethodGet, path, nil)
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		w := httptest.NewRecorder()
		handler(Options{Registry: Registry(), Ready: func() error { return ready }, Live: func() error { return live }}, g).ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	remote, local, guarded := &guard{}, &guard{local: true}, &guard{file: file}
	guardedLocal := &guard{file: file, local: true}
	for _, row := range []struct {
		name          string
		guard         *guard
		path, bearer  string
		code          int
		says, saysNot string
	}{
		{"probe", remote, "/livez", "", 200, "ok", ""},
		{"probe with a token around", guarded, "/readyz", "", 200, "ok", ""},
		{"metrics of others without any token", remote, "/metrics", "", 403, "--metrics-token-file", "go_goroutines"},
		{"the same with one that nobody gave", remote, "/metrics", "Bearer " + secret, 403, "--metrics-token-file", "go_goroutines"},
		{"profiles likewise", remote, "/debug/pprof/heap", "", 403, "--metrics-token-file", ""},
		{"metrics on this machine", local, "/metrics", "", 200, "go_goroutines", ""},
		{"profiles on this machine", local, "/debug/pprof/goroutine?debug=1", "", 200, "goroutine profile", ""},
		{"metrics with the token", guarded, "/metrics", "Bearer " + secret, 200, "go_goroutines", ""},
		{"profiles with the token", guarded, "/debug/pprof/goroutine?debug=1", "Bearer " + secret, 200, "goroutine profile", ""},
		{"no token", guarded, "/metrics", "", 401, "bearer token", "go_goroutines"},
		{"a wrong token", guarded, "/metrics", "Bearer " + secret + "4", 401, "bearer token", "go_goroutines"},
		{"a part of it", guarded, "/metrics", "Bearer " + secret[:10], 401, "bearer token", "go_goroutines"},
		{"another scheme", guarded, "/metrics", "Basic " + secret, 401, "bearer token", "go_goroutines"},
		{"profiles without a token", guarded, "/debug/pprof/", "", 401, "bearer token", "heap"},
		{"a token asked for on this machine too", guardedLocal, "/metrics", "", 401, "bearer token", "go_goroutines"},
		{"another path", local, "/", "", 404, "", ""},
	} {
		code, body := get(row.guard, row.path, row.bearer)
		if code != row.code || !strings.Contains(body, row.says) || row.saysNot != "" && strings.Contains(body, row.saysNot) {
			t.Errorf("%s: %d %.200s; want %d, %q, not %q", row.name, code, body, row.code, row.says, row.saysNot)
		}
	}

	// The token is replaced while the process runs; a file that is no token changes nothing.
	write("another-token-of-some-length")
	if code, _ := get(guarded, "/metrics", "Bearer "+secret); code != 401 {
		t.Errorf("the old token: %d", code)
	}
	write("")
	if code, _ := get(guarded, "/metrics", "Bearer another-token-of-some-length"); code != 200 {
		t.Errorf("the new token, with an empty file now: %d", code)
	}
	if code, _ := get(guarded, "/metrics", "Bearer "); code != 401 {
		t.Errorf("an empty token for an empty file: %d", code)
	}
	if !strings.Contains(log.String(), "cannot read the metrics token") {
		t.Errorf("nobody was told: %s", log.String())
	}
	ready = errors.New("table: waiting")
	if code, body := get(local, "/readyz", ""); code != 503 || !strings.Contains(body, "waiting") {
		t.Errorf("not ready: %d %s", code, body)
	}
	if code, body := get(remote, "/livez", ""); code != 200 {
		t.Errorf("not ready is not dead: %d %s", code, body)
	}
	live = errors.New("the main loop has not turned for 31s")
	if code, body := get(remote, "/livez", ""); code != 503 || !strings.Contains(body, "not turned") {
		t.Errorf("stuck: %d %s", code, body)
	}
}

func TestHTTP(t *testing.T) {
	short := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(short, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	for says, o := range map[string]Options{
		"5 bytes": {Address: "127.0.0.1:0", TokenFile: short}, "/no/such/file": {Address: "127.0.0.1:0", TokenFile: "/no/such/file"}, "--metrics": {Address: "nowhere"},
	} {
		if err := HTTP(t.Context(), o); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not say %q", err, says)
		}
	}
	if err := HTTP(t.Context(), Options{}); err != nil {
		t.Errorf("no address: %v", err)
	}
	// What others reach is known by the address that is listened on, not by its spelling.
	for address, want := range map[string]int{"127.0.0.1": 200, "localhost": 200, "0.0.0.0": 403, "": 403} {
		at, err := listen(t.Context(), Options{Address: net.JoinHostPort(address, "0"), Registry: Registry()})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", at.(*net.TCPAddr).Port))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("listening on %q: %d, want %d", address, resp.StatusCode, want)
		}
	}
}
