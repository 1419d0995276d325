package memory

import (
	"bytes"
	"io"
	"net/http"
)

// transport carries requests to the handler without a network.
func (s *Server) transport() http.RoundTripper { return roundTripper{s} }

type roundTripper struct{ server *Server }

func (t roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	if r.URL.Query().Get("watch") != "" {
		return t.watch(r)
	}
	defer r.Body.Close()
	var body bytes.Buffer
	w := &recorder{header: http.Header{}, status: http.StatusOK, Writer: &body}
	t.server.serve(w, r)
	return w.response(r, io.NopCloser(&body)), nil
}

// watch answers as soon as the handler has said what it will answer; the body is what it says from then on.
func (t roundTripper) watch(r *http.Request) (*http.Response, error) {
	out, in := io.Pipe()
	w := &recorder{header: http.Header{}, status: http.StatusOK, Writer: in, begun: make(chan struct{})}
	go func() {
		t.server.serve(w, r)
		_ = in.Close()
	}()
	select {
	case <-w.begun:
		return w.response(r, out), nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

type recorder struct {
	io.Writer
	header http.Header
	status int
	begun  chan struct{}
}

func (w *recorder) Header() http.Header { return w.header }

func (w *recorder) WriteHeader(status int) {
	w.status = status
	if w.begun != nil {
		close(w.begun)
	}
}

func (w *recorder) response(r *http.Request, body io.ReadCloser) *http.Response {
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: body, ContentLength: -1, Request: r,
	}
}
