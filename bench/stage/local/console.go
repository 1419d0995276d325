package local

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// StartConsole starts `basalt console` with the rights of an administrator, and returns the URL that opens it once. It
// ends with the cluster.
func (c *Cluster) StartConsole(ctx context.Context) (url string, err error) {
	kubeconfig, err := c.Kubeconfig(Admin)
	if err != nil {
		return "", err
	}
	return c.startConsole(ctx, `(?m)^http://\S+$`, "--kubeconfig="+kubeconfig)
}

// startConsole returns the URL that a console prints.
func (c *Cluster) startConsole(ctx context.Context, prints string, args ...string) (string, error) {
	log := filepath.Join(c.dir, "console.log")
	p, err := startProcess(command{name: "console", path: cmp.Or(c.opts.Basalt, programPath(c.root, "basalt")), log: log,
		args: append([]string{"console", "--basalt-server=" + strings.Join(Answering(c.Basalts()), ",")}, args...)})
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	c.schedulers = append(c.schedulers, p)
	c.mu.Unlock()
	at := regexp.MustCompile(prints)
	ctx, cancel := context.WithTimeout(ctx, consoleWithin)
	defer cancel()
	for {
		text, err := os.ReadFile(log)
		if url := at.Find(text); url != nil {
			return string(url), nil
		}
		select {
		case <-p.Done():
			return "", fmt.Errorf("the console ended: %w\n%s", cmp.Or(p.Err(), err), Tail(log, 10))
		case <-ctx.Done():
			return "", errors.Join(fmt.Errorf("the console prints no URL: %w", ctx.Err()), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// consoleWithin is how long the console may take until it prints its URL.
const consoleWithin = time.Minute

// viewsOfSession is how many streams one session of the console may have.
const viewsOfSession = 8

// Browse starts a console to which people log in, and has so many pages open there until ctx ends: lists of gangs and
// queues, which change all the time, and the cluster. It returns when all of them have shown something.
func (c *Cluster) Browse(ctx context.Context, views int) error {
	kubeconfig, err := c.Kubeconfig(Admin)
	if err != nil {
		return err
	}
	at, err := c.startConsole(ctx, `(?m)^https://\S+$`, "--kubeconfig="+kubeconfig, "--log-in", "--listen=127.0.0.1:0",
		"--tls-cert="+filepath.Join(c.dir, "none.crt"), "--tls-key="+filepath.Join(c.dir, "none.key"))
	if err != nil {
		return err
	}
	pages := []string{"work", "queues", "work?show=waits", "cluster", "work?sort=place", "queues?resource=memory",
		"work?show=runs&page=2", "work?text=gang"}
	shown := make(chan error, views)
	var browser *http.Client
	for i := range views {
		if i%viewsOfSession == 0 {
			jar, _ := cookiejar.New(nil)
			browser = &http.Client{Jar: jar, Transport: &http.Transport{ForceAttemptHTTP2: true,
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // it is self-made
			who := []string{Admin, Load}[i/viewsOfSession%2] // a user has a bound, too
			answer, err := browser.PostForm(at+"login", url.Values{"token": {c.Config(who).BearerToken}})
			if err != nil {
				return fmt.Errorf("log in to the console: %w", err)
			}
			_ = answer.Body.Close()
		}
		go view(ctx, browser, at+"stream/"+pages[i%len(pages)], shown)
	}
	for range views {
		select {
		case err := <-shown:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// view reads a stream of the console until it or ctx ends, and tells when something was shown, or why nothing is.
func view(ctx context.Context, browser *http.Client, at string, shown chan<- error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		shown <- err
		return
	}
	answer, err := browser.Do(request)
	if err != nil {
		shown <- fmt.Errorf("open %s: %w", at, err)
		return
	}
	defer answer.Body.Close()
	first := make([]byte, 4096)
	n, err := io.ReadAtLeast(answer.Body, first, 200)
	if answer.StatusCode != http.StatusOK || err != nil {
		shown <- fmt.Errorf("open %s: %s, %w: %.200s", at, answer.Status, err, first[:n])
		return
	}
	shown <- nil
	_, _ = io.Copy(io.Discard, answer.Body)
}
