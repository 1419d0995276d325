package console

import (
	"bytes"
	"embed"
	"fmt"
	"hash/fnv"
	"html/template"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"
)

//go:embed assets
var assets embed.FS

// frame fills in what is around the main part.
func (v *view) frame(s *server, r *http.Request, of *session) {
	if of == nil {
		return
	}
	v.User, v.LogIn = of.viewer.name, s.LogIn
	in := ""
	if names := r.URL.Query()["n"]; len(names) > 0 && r.URL.Path != "/cluster" {
		in = "?" + url.Values{"n": names}.Encode()
	}
	for _, l := range []link{{"My work", "/work", false}, {"Queues", "/queues", false}, {"Cluster", "/cluster", false}} {
		l.Here = r.URL.Path == l.URL || l.URL != "/cluster" && strings.HasPrefix(r.URL.Path, l.URL+"/") ||
			l.URL == "/work" && strings.HasPrefix(r.URL.Path, "/gangs/")
		if l.URL != "/cluster" {
			l.URL += in
		}
		v.Nav = append(v.Nav, l)
	}
	if v.Body != "problem" {
		v.Stream = "/stream" + r.URL.RequestURI()
		if asked := "&asked=" + url.QueryEscape(v.Asked); v.Asked != "" && len(v.Stream)+len(asked) <= maxQuery {
			v.Stream += asked // there is a query: it has the changes
		}
	}
}

// assetURL names a file and what is in it, so that a browser keeps it until it is another.
func assetURL(name string) string {
	b, err := assets.ReadFile("assets/" + name)
	if err != nil {
		panic(err) // it is built in
	}
	h := fnv.New64a()
	_, _ = h.Write(b)
	return fmt.Sprintf("/assets/%s?%x", name, h.Sum64())
}

var styleURL, scriptURL = assetURL("console.css"), assetURL("console.js")

func asset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	b, err := assets.ReadFile("assets/" + name)
	if err != nil || path.Ext(name) == ".html" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	w.Header().Set("Cache-Control", "public, max-age=86400, immutable")
	_, _ = w.Write(b)
}

// write answers with a page.
func (s *server) write(w http.ResponseWriter, code int, v *view) {
	v.Style, v.Script = styleURL, scriptURL
	var b, main bytes.Buffer
	err := pages.ExecuteTemplate(&main, v.Body, v)
	if err == nil {
		v.Main = template.HTML(main.String()) // which the template has escaped
		err = pages.ExecuteTemplate(&b, "page", v)
	}
	if err != nil {
		s.Log.Error("a page cannot be written", "page", v.Body, "error", err)
		http.Error(w, "this page cannot be written: the console's log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(plain(b.Bytes()))
}

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"ago": ago, "stamp": stamp,
}).ParseFS(assets, "assets/*.html"))
