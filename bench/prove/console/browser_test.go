package console

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/prove/console/browser"
	"basalt.dev/basalt/bench/prove/seeds"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/layout.txt anew")

var pictures = flag.String("pictures", "", "write the pictures of deploy/docs/console.md to this folder")

// chromium starts one, or skips the test where there is none. In full there has to be one.
func chromium(t *testing.T) *browser.Browser {
	t.Helper()
	if browser.Path() == "" {
		if seeds.InFull() {
			t.Fatal("chromium is not installed: make nightly needs it")
		}
		t.Skip("chromium is not installed")
	}
	b, err := browser.Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// person is somebody who looks at a page.
type person struct {
	t *testing.T
	*browser.Page
	at string
}

func (w *world) person(t *testing.T, b *browser.Browser) *person {
	t.Helper()
	page, err := b.Page(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := &person{t, page, w.at}
	p.size(1280, false)
	t.Cleanup(func() {
		for _, c := range page.Complaints() {
			t.Errorf("the browser complains: %s", c)
		}
	})
	return p
}

func (p *person) check(err error) {
	p.t.Helper()
	if err != nil {
		var text string
		_ = p.Eval(context.WithoutCancel(p.t.Context()), "document.body.innerText", &text)
		p.t.Fatalf("%v; the page:\n%s", err, text)
	}
}

func (p *person) size(width int, dark bool) {
	p.t.Helper()
	p.check(p.Size(p.t.Context(), width, 900, dark))
}

func (p *person) goes(path string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	p.check(p.Go(ctx, p.at+path))
}

// sees waits until an expression is true.
func (p *person) sees(expression string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	p.check(p.Until(ctx, expression))
}

func (p *person) says(words string) {
	p.t.Helper()
	p.sees(fmt.Sprintf("document.body.innerText.includes(%q)", words))
}

func (p *person) presses(keys ...string) {
	p.t.Helper()
	for _, key := range keys {
		p.check(p.Key(p.t.Context(), key))
	}
}

func (p *person) value(expression string, value any) {
	p.t.Helper()
	p.check(p.Eval(p.t.Context(), expression, value))
}

// logsIn types a token, with the keyboard alone.
func (p *person) logsIn(token string) {
	p.t.Helper()
	p.goes("/")
	p.sees("document.activeElement.id == 'token'")
	p.check(p.Type(p.t.Context(), token))
	p.presses("Enter")
	p.says("My work")
}

// picture keeps one as an artefact, and returns it.
func (p *person) picture(name string) []byte {
	p.t.Helper()
	png, err := p.Picture(p.t.Context())
	p.check(err)
	p.check(os.WriteFile(artefact(p.t, name+".png"), png, 0o644))
	return png
}

// look has a tenant log in and wait for a change, an administrator go through all pages with the keyboard, and nobody's
// browser find something that the policy of the pages forbids.
func (w *world) look(t *testing.T, root string) {
	b := chromium(t)
	red := w.person(t, b)
	red.logsIn(w.token("red", "red"))
	red.sees("document.querySelectorAll('table.gangs tbody tr').length == 3")
	red.sees("document.getElementById('live').textContent == 'live'")

	// What she types stays while rows change, and so do the rows.
	red.value("document.querySelector('input[name=text]').focus()", nil)
	red.check(red.Type(t.Context(), "half a wo"))
	red.value("window.row = document.getElementById('g/red/crimson-few'); 1", nil)
	w.gang("red", "lost", "no-such-queue", 1, "1")
	red.says(`queue "no-such-queue" does not exist`)
	red.sees("document.activeElement.value == 'half a wo' && window.row.isConnected")

	// A condition appears by itself, soon after the API server has it.
	w.group("red", "late", "no-such-queue", 1)
	red.goes("/gangs/red/late")
	red.sees("document.getElementById('live').textContent == 'live'")
	w.pods("red", "late", 0, 1, "1")
	w.reason("red", "late", v1beta1.ReasonQueueNotFound)
	began := time.Now()
	red.says(`queue "no-such-queue" does not exist`)
	t.Attr("condition-appears-after", time.Since(began).Round(time.Millisecond).String())
	if took := time.Since(began); seeds.InFull() && took > 2*time.Second {
		t.Errorf("a condition appears %v after the API server has it", took)
	}

	script := ""
	if seeds.InFull() {
		script = axe(t)
	}
	w.cut(t, b)

	admin := w.person(t, b)
	layout := &strings.Builder{}
	admin.goes("/login")
	admin.clean(script, "/login")
	admin.logsIn(root)
	for _, path := range []string{"/work", "/gangs/red/crimson-wait", "/queues", "/queues/research.vision", "/cluster"} {
		admin.goes(path)
		admin.sees("document.getElementById('live').textContent == 'live'")
		admin.tour(path)
		for _, width := range []int{1280, 390} {
			for _, dark := range []bool{false, true} {
				if admin.size(width, dark); !seeds.InFull() {
					break
				}
				name := strings.ReplaceAll(strings.Trim(path, "/"), "/", "-")
				admin.clean(script, fmt.Sprintf("%s, %d wide, dark %v", path, width, dark))
				admin.picture(fmt.Sprintf("%s-%d-%s", name, width, map[bool]string{false: "light", true: "dark"}[dark]))
			}
			admin.fits(path, width)
			fmt.Fprintf(layout, "# %s, %d wide\n%s\n\n", path, width, admin.outline())
		}
		admin.size(320, false) // 1280 at 400 %
		admin.fits(path, 320)
		admin.size(1280, false)
	}
	const golden = "testdata/layout.txt"
	if *rewrite {
		admin.check(os.WriteFile(golden, []byte(layout.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	admin.check(err)
	if string(want) != layout.String() {
		t.Errorf("the pages are laid out otherwise than %s says (-rewrite):\n%s", golden, layout)
	}
	admin.goes("/cluster")
	admin.sees("document.querySelectorAll('#cells canvas').length == 2") // a zone each
	var labels string
	admin.value("[...document.querySelectorAll('#cells canvas')].map(c => c.getAttribute('aria-label')).join()", &labels)
	if !strings.Contains(labels, "2 ready, 0 cordoned, 0 not ready; cpu free: under 10 % on ") {
		t.Errorf("the pictures of nodes are called %q", labels)
	}
	if *pictures != "" {
		for page, name := range map[string]string{"/gangs/red/crimson-wait": "console-gang.png",
			"/queues": "console-queues.png"} {
			admin.goes(page)
			admin.sees("document.getElementById('live').textContent == 'live'")
			admin.check(admin.Size(t.Context(), 1280, 400, false))
			png, err := admin.Picture(t.Context())
			admin.check(err)
			admin.check(os.WriteFile(filepath.Join(*pictures, name), png, 0o644))
		}
	}
}

// cut has a tenant look by way of something that cuts all connections each second. Changes appear all the same, what
// she types stays.
func (w *world) cut(t *testing.T, b *browser.Browser) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	w.check(err)
	defer listener.Close()
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	cuts := 0
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", strings.TrimPrefix(w.at, "https://"))
			if err != nil {
				from.Close()
				continue
			}
			mu.Lock()
			open[from], open[to] = true, true
			mu.Unlock()
			pass := func(into, of net.Conn) { _, _ = io.Copy(into, of); into.Close(); of.Close() }
			go pass(from, to)
			go pass(to, from)
		}
	}()
	red := w.person(t, b)
	red.at = "https://" + listener.Addr().String()
	red.logsIn(w.token("red", "red"))
	red.sees("document.getElementById('live').textContent == 'live'")
	red.value("window.same = 1; document.querySelector('input[name=text]').focus()", nil)
	red.check(red.Type(t.Context(), "half a wo"))
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for tick := time.NewTicker(time.Second); ; {
			mu.Lock()
			for c := range open {
				c.Close()
			}
			clear(open)
			cuts++
			mu.Unlock()
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	for _, name := range []string{"cut-1", "cut-2"} {
		w.group("red", name, "research.vision", 4)
		red.sees(fmt.Sprintf("document.getElementById('g/red/%s')", name))
	}
	stop()
	wg.Wait()
	red.sees("document.getElementById('live').textContent == 'live' && document.getElementById('trouble').hidden")
	red.sees("window.same && document.activeElement.value == 'half a wo'")
	for _, name := range []string{"cut-1", "cut-2"} {
		w.check(w.kube.Basalt.Delete().Namespace("red").Resource("podgroups").Name(name).Do(t.Context()).Error())
	}
	red.sees("!document.getElementById('g/red/cut-2')")
	t.Attr("cuts", fmt.Sprint(cuts))
}

// outline says which boxes a page has, in their order, and from where to where each goes in twelfths of the window:
// fonts, data and anti-aliasing do not change those. It fails where text is out of the window, but in what scrolls.
func (p *person) outline() (text string) {
	p.t.Helper()
	p.value(`[...document.querySelectorAll('header, main > :is(h1, nav, form, section, figure, div, table),' +
		'.two > section')].filter(e => e.checkVisibility()).map(e => {
			const r = e.getBoundingClientRect(), at = x => Math.round(12 * x / innerWidth);
			return [e.tagName.toLowerCase(), e.id || e.getAttribute('aria-labelledby') || e.getAttribute('aria-label') ||
				e.className, at(r.left), at(r.right)].join(' ');
		}).join('\n')`, &text)
	var out string
	p.value(`[...document.querySelectorAll('h1,h2,p,li,a,button,input,textarea,summary,label,pre,td,th')].filter(e => {
		const r = e.getBoundingClientRect();
		return e.checkVisibility() && !e.closest('.hidden, .skip, .scroll, pre') && r.width > 0 &&
			(r.left < -1 || r.right > innerWidth + 1) }).map(e => e.outerHTML.slice(0, 200)).join('\n')`, &out)
	if out != "" {
		p.t.Errorf("out of the window: %s", out)
	}
	return text
}

// fits fails where a page is wider than its window: what is, scrolls by itself.
func (p *person) fits(path string, width int) {
	p.t.Helper()
	var is int
	p.value("document.documentElement.scrollWidth", &is)
	if is > width {
		p.t.Errorf("%s is %d wide in a window of %d", path, is, width)
	}
}

// tour goes through a page with the key Tab: it reaches whatever can be clicked or scrolls, each is seen to have the
// focus, and the order is that of the page.
func (p *person) tour(path string) {
	p.t.Helper()
	p.value(`document.activeElement.blur(); window.tour = [...document.querySelectorAll(
		'a[href],button,input:not([type=hidden]),select,textarea,summary,[tabindex="0"]')].filter(
		e => e.checkVisibility() && !e.closest('details:not([open]) > :not(summary)')); window.at = 0`, nil)
	var all int
	p.value("window.tour.length", &all)
	for i := range all {
		p.presses("Tab")
		var is bool
		p.value(fmt.Sprintf(`(() => { const e = document.activeElement, s = getComputedStyle(e);
			return e === window.tour[%d] && (s.outlineStyle != 'none' || s.boxShadow != 'none') })()`, i), &is)
		if !is {
			var where string
			p.value(
				fmt.Sprintf("document.activeElement.outerHTML.slice(0, 200) + ' and not ' + (window.tour[%d] || {}).outerHTML", i),
				&where,
			)
			p.t.Errorf("%s: the key Tab leads to %s", path, where)
			return
		}
	}
}
