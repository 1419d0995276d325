package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"strings"
	"time"
)

// stream sends the main part of a page, and again when it is another, as Server-Sent Events.
func (s *server) stream(w http.ResponseWriter, r *http.Request, make render) {
	of, leave, err := s.enter(r, false)
	if err != nil {
		http.Error(w, problemOf(err).text, problemOf(err).code)
		return
	}
	leave() // it is counted with the streams
	release, ok := s.sessions.stream(of)
	if !ok {
		http.Error(w, "too many pages are open", http.StatusTooManyRequests)
		return
	}
	defer release()
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{})
	var wrote time.Time
	send := func(text string) bool {
		wrote = time.Now()
		_ = out.SetWriteDeadline(wrote.Add(s.timing.write))
		_, err := w.Write([]byte(text))
		err = errors.Join(err, out.Flush())
		_ = out.SetWriteDeadline(time.Time{}) // with HTTP/2 it would end a stream that has nothing to say
		return err == nil
	}
	if !send(fmt.Sprintf("retry: %d\n\n", streamAgain/time.Millisecond)) {
		return
	}
	r.URL.Path = strings.TrimPrefix(r.URL.Path, "/stream")
	q := &query{Request: r, values: r.URL.Query(), viewer: of.viewer, reviews: s.timing.streamReview, memo: &memo{},
		stream: true}
	var sent uint64
	var version string
	var looked time.Time
	tick := time.NewTicker(s.timing.streamEach)
	defer tick.Stop()
	for wait := time.Duration(0); ; {
		if since := time.Since(looked); since >= s.timing.streamIdle || since >= wait && version != s.version(q) {
			looked, version, q.memo.stale = time.Now(), s.version(q), false
			text, err := s.main(r.Context(), q, make)
			if q.memo.stale {
				version = ""
			}
			took := time.Since(looked)
			wait = max(s.timing.streamEach/2, renderShare*took, allShare*time.Duration(s.sessions.open())*took)
			switch {
			case err != nil:
				p := problemOf(err)
				if p.code == http.StatusUnauthorized {
					s.sessions.stop(of)
				}
				said, _ := json.Marshal(p.text) // a string can always be
				if p.code == http.StatusUnauthorized || p.code == http.StatusForbidden {
					_ = send("event: end\ndata: " + string(said) + "\n\n")
					return
				}
				if sent = 0; !send("event: trouble\ndata: " + string(said) + "\n\n") {
					return
				}
			case sum(text) != sent:
				sent = sum(text)
				said, _ := json.Marshal(string(text))
				if !send("event: main\ndata: " + string(said) + "\n\n") {
					return
				}
			}
		}
		// Somebody still listens. It comes at fixed times: not when others' changes had the page looked at.
		if time.Since(wrote) >= s.timing.streamIdle && !send(": \n\n") {
			return
		}
		select {
		case <-tick.C:
		case <-of.done:
			_ = send("event: end\ndata: \"the session is over: log in again\"\n\n")
			return
		case <-r.Context().Done():
			return
		case <-s.ctx.Done():
			return
		}
	}
}

func sum(text []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(text)
	return h.Sum64()
}

// main renders what a stream sends.
func (s *server) main(ctx context.Context, q *query, make render) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, pageWithin)
	defer cancel()
	v, err := make(ctx, q)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, v.Body, v); err != nil {
		return nil, err
	}
	text := plain(b.Bytes())
	if len(text) > maxMain {
		return nil, problem{http.StatusRequestEntityTooLarge, "this page is too long to be kept up to date: load it again"}
	}
	return text, nil
}

// version changes when what a stream's page shows may be another. It says nothing to the viewer.
func (s *server) version(q *query) string {
	switch namespace := q.PathValue("namespace"); {
	case namespace != "":
		if g := s.objects.gang(namespace, q.PathValue("name")); g != nil {
			return g.ResourceVersion
		}
		return ""
	case strings.HasPrefix(q.URL.Path, "/queues"):
		return s.objects.queuesSeen()
	case strings.HasPrefix(q.URL.Path, "/work"):
		if in, is := q.memo.said["scope"].value.(scope); is {
			return s.objects.seen(in)
		}
	}
	return ""
}
