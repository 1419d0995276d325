// Package browser drives a headless Chromium for tests, by the DevTools protocol over two pipes.
//
// It decides nothing about pages. Each Page has cookies of its own, as a person with a browser of his own has. What
// goes wrong in a page without anybody's asking, an exception of a script or a load that the page's policy forbids,
// is kept for the test (Complaints).
//
// Considered: chromedp does the same with generated code for the whole protocol, 100,000 lines of it, and two more
// modules. A dozen commands are needed here.
package browser

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Browser is a running Chromium.
type Browser struct {
	cmd     *exec.Cmd
	to      io.WriteCloser
	profile string

	mu    sync.Mutex
	next  int
	calls map[int]chan answer
	pages map[string]*Page // by session
	ended error
	done  chan struct{}
}

type answer struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

// Path returns where Chromium is, "" if it is not installed.
func Path() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// Start starts one, with an empty profile in a folder.
func Start(ctx context.Context, profile string) (*Browser, error) {
	path := Path()
	if path == "" {
		return nil, errors.New("chromium is not installed")
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	back, theirBack, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(
		ctx,
		path,
		"--headless",
		"--no-sandbox",
		"--disable-gpu",
		"--disable-dev-shm-usage",
		"--no-first-run",
		"--disable-extensions",
		"--disable-background-networking",
		"--disable-component-update",
		"--hide-scrollbars",
		"--ignore-certificate-errors",
		"--font-render-hinting=none",
		"--remote-debugging-pipe",
		"--user-data-dir="+profile,
	)
	cmd.ExtraFiles = []*os.File{theirs, theirBack}        // 3 and 4
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it has children
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err = cmd.Start()
	_, _ = theirs.Close(), theirBack.Close()
	if err != nil {
		return nil, err
	}
	b := &Browser{cmd: cmd, to: ours, profile: profile, calls: map[int]chan answer{}, pages: map[string]*Page{},
		done: make(chan struct{})}
	go b.read(back)
	return b, nil
}

// Close ends it, and all that belongs to it.
func (b *Browser) Close() {
	_ = b.to.Close()
	_ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL)
	_ = b.cmd.Wait()
	<-b.done
}

// Pid returns the process group of the browser, to measure it.
func (b *Browser) Pid() int { return b.cmd.Process.Pid }

// read takes what comes from the browser, until it ends.
func (b *Browser) read(from io.ReadCloser) {
	defer close(b.done)
	defer from.Close()
	in := bufio.NewReaderSize(from, 1<<20)
	for {
		text, err := in.ReadBytes(0)
		if err != nil {
			b.mu.Lock()
			b.ended = fmt.Errorf("the browser ended: %w", err)
			for id, c := range b.calls {
				close(c)
				delete(b.calls, id)
			}
			b.mu.Unlock()
			return
		}
		var m struct {
			ID        int
			SessionID string
			Method    string
			Params    json.RawMessage
			answer
		}
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		call, page := b.calls[m.ID], b.pages[m.SessionID]
		delete(b.calls, m.ID)
		b.mu.Unlock()
		switch {
		case m.ID != 0 && call != nil:
			call <- m.answer
		case page != nil:
			page.heard(m.Method, m.Params)
		}
	}
}

// call sends a command and waits for its answer.
func (b *Browser) call(ctx context.Context, session, method string, params, result any) error {
	b.mu.Lock()
	if b.ended != nil {
		defer b.mu.Unlock()
		return b.ended
	}
	b.next++
	id, c := b.next, make(chan answer, 1)
	b.calls[id] = c
	text, err := json.Marshal(map[string]any{"id": id, "sessionId": session, "method": method, "params": params})
	if err == nil {
		_, err = b.to.Write(append(text, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case a, ok := <-c:
		switch {
		case !ok:
			return b.ended
		case a.Error != nil:
			return fmt.Errorf("%s: %s", method, a.Error.Message)
		case result != nil:
			return json.Unmarshal(a.Result, result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, ctx.Err())
	}
}

type none struct{}

// Page is a tab.
type Page struct {
	browser *Browser
	session string

	mu         sync.Mutex
	loaded     chan struct{}
	complaints []string
}

// Page opens a tab with no cookies.
func (b *Browser) Page(ctx context.Context) (*Page, error) {
	var of struct{ BrowserContextID string }
	if err := b.call(ctx, "", "Target.createBrowserContext", none{}, &of); err != nil {
		return nil, err
	}
	return b.tab(ctx, of.BrowserContextID)
}

func (b *Browser) tab(ctx context.Context, in string) (*Page, error) {
	var target struct{ TargetID string }
	if err := b.call(ctx, "", "Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": in},
		&target); err != nil {
		return nil, err
	}
	var to struct{ SessionID string }
	if err := b.call(ctx, "", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true},
		&to); err != nil {
		return nil, err
	}
	p := &Page{browser: b, session: to.SessionID, loaded: make(chan struct{}, 1)}
	b.mu.Lock()
	b.pages[p.session] = p
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		if err := p.Call(ctx, domain+".enable", none{}, nil); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Call sends a command of the protocol.
func (p *Page) Call(ctx context.Context, method string, params, result any) error {
	return p.browser.call(ctx, p.session, method, params, result)
}

func (p *Page) heard(method string, params json.RawMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch method {
	case "Page.loadEventFired":
		select {
		case p.loaded <- struct{}{}:
		default:
		}
	case "Runtime.exceptionThrown":
		p.complaints = append(p.complaints, string(params))
	case "Log.entryAdded":
		var of struct {
			Entry struct{ Source, Level, Text, URL string }
		}
		if json.Unmarshal(params, &of) == nil && of.Entry.Level == "error" && of.Entry.Source != "network" {
			p.complaints = append(p.complaints, of.Entry.Text+" "+of.Entry.URL)
		}
	}
}

// Complaints are exceptions of scripts and what a policy forbade, since the page was opened.
func (p *Page) Complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.complaints...)
}

// Go loads a URL and waits until it is loaded.
func (p *Page) Go(ctx context.Context, url string) error {
	select {
	case <-p.loaded:
	default:
	}
	var of struct{ ErrorText string }
	if err := p.Call(ctx, "Page.navigate", map[string]any{"url": url}, &of); err != nil {
		return err
	}
	if of.ErrorText != "" {
		return fmt.Errorf("load %s: %s", url, of.ErrorText)
	}
	return p.Loaded(ctx)
}

// Loaded waits for the end of a load that something else began.
func (p *Page) Loaded(ctx context.Context) error {
	select {
	case <-p.loaded:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Eval evaluates an expression of JavaScript in the page, a promise until it is kept, and reads its value.
func (p *Page) Eval(ctx context.Context, expression string, value any) error {
	var said struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	if err := p.Call(ctx, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true,
		"awaitPromise": true}, &said); err != nil {
		return err
	}
	if said.ExceptionDetails != nil {
		return fmt.Errorf("%.80s: %s", expression, said.ExceptionDetails)
	}
	if value == nil || said.Result.Value == nil {
		return nil
	}
	return json.Unmarshal(said.Result.Value, value)
}

// Until waits until an expression is true.
func (p *Page) Until(ctx context.Context, expression string) error {
	for {
		var is bool
		err := p.Eval(ctx, "Boolean("+expression+")", &is)
		if err == nil && is {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%.120s does not become true: %w", expression, errors.Join(ctx.Err(), err))
		}
	}
}

// Size sets the width and height of the window, and whether its owner likes it dark.
func (p *Page) Size(ctx context.Context, width, height int, dark bool) error {
	if err := p.Call(ctx, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height,
		"deviceScaleFactor": 1, "mobile": false}, nil); err != nil {
		return err
	}
	scheme := map[bool]string{false: "light", true: "dark"}[dark]
	return p.Call(ctx, "Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
		{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}}}, nil)
}

// Picture returns a PNG of the whole page, as far as a window of that height would show it if it is not 0.
func (p *Page) Picture(ctx context.Context) ([]byte, error) {
	var size struct {
		CSSContentSize struct{ Width, Height float64 }
	}
	if err := p.Call(ctx, "Page.getLayoutMetrics", none{}, &size); err != nil {
		return nil, err
	}
	var said struct{ Data string }
	if err := p.Call(ctx, "Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true,
		"clip": map[string]any{"x": 0, "y": 0, "width": size.CSSContentSize.Width, "height": size.CSSContentSize.Height,
			"scale": 1}}, &said); err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(said.Data)
}

// Key presses a key, such as Tab or Enter.
func (p *Page) Key(ctx context.Context, key string) error {
	codes := map[string]int{"Tab": 9, "Enter": 13}
	params := map[string]any{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
	if key == "Enter" {
		params["text"] = "\r"
	}
	if err := p.Call(ctx, "Input.dispatchKeyEvent", params, nil); err != nil {
		return err
	}
	params["type"] = "keyUp"
	return p.Call(ctx, "Input.dispatchKeyEvent", params, nil)
}

// Type types text where the focus is.
func (p *Page) Type(ctx context.Context, text string) error {
	return p.Call(ctx, "Input.insertText", map[string]any{"text": text}, nil)
}
