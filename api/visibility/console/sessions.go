package console

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// session is a viewer who has logged in.
type session struct {
	viewer *viewer
	own    *rate.Limiter
	work   chan struct{} // a place for each request under way
	done   chan struct{} // closed when it ends

	// Of sessions alone, under their lock.
	began, until time.Time
	streams      int
	ended        bool
}

// sessions are those that have logged in. Their keys are hashes: who reads memory by chance finds no cookie.
type sessions struct {
	mu      sync.Mutex
	all     map[[sha256.Size]byte]*session
	streams int
	forever bool          // on a laptop they end with the program
	each    time.Duration // a session, after its last page
}

const cookieName = "basalt-console"

func key(id string) [sha256.Size]byte { return sha256.Sum256([]byte(id)) }

func newSecret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // it never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// add begins a session, and returns its id. Where there are too many, one of the same user ends first, or the one
// that was idle for longest.
func (s *sessions) add(v *viewer, now time.Time) (id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	own := 0
	var oldest, idle *session
	for _, each := range s.all {
		if each.viewer.name == v.name {
			v.asks = each.viewer.asks
			if own++; oldest == nil || each.began.Before(oldest.began) {
				oldest = each
			}
		}
		if idle == nil || each.until.Before(idle.until) {
			idle = each
		}
	}
	switch {
	case own >= maxOwnSessions:
		s.end(oldest)
	case len(s.all) >= maxSessions:
		s.end(idle)
	}
	id = newSecret()
	s.all[key(id)] = &session{viewer: v, own: rate.NewLimiter(ownPerSecond, ownAtOnce),
		work: make(chan struct{}, ownUnderWay), done: make(chan struct{}), began: now, until: now.Add(s.each)}
	return id
}

// find returns the session of a request, nil if there is none. A page that somebody asked for prolongs it.
func (s *sessions) find(r *http.Request, now time.Time, prolong bool) *session {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	found := s.all[key(cookie.Value)]
	if found != nil && prolong {
		found.until = now.Add(s.each)
	}
	return found
}

// expire ends those that are over.
func (s *sessions) expire(now time.Time) {
	if s.forever {
		return
	}
	for _, each := range s.all {
		if !now.Before(each.until) {
			s.end(each)
		}
	}
}

// end is called with the lock.
func (s *sessions) end(which *session) {
	for id, each := range s.all {
		if each == which {
			delete(s.all, id)
		}
	}
	if !which.ended {
		which.ended = true
		close(which.done)
	}
}

// stop ends a session.
func (s *sessions) stop(which *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(which)
}

// stream takes a place for a stream, and reports whether there was one; release gives it back.
func (s *sessions) stream(of *session) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of.ended || of.streams >= maxOwnStreams || s.streams >= maxStreams {
		return nil, false
	}
	of.streams++
	s.streams++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		of.streams--
		s.streams--
	}, true
}

// open returns how many streams there are.
func (s *sessions) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams
}

// setCookie tells the browser the id of its session.
func (s *sessions) setCookie(w http.ResponseWriter, r *http.Request, id string) {
	c := &http.Cookie{Name: cookieName, Value: id, Path: "/", HttpOnly: true, Secure: r.TLS != nil,
		SameSite: http.SameSiteStrictMode}
	if id == "" {
		c.MaxAge = -1
	} else if !s.forever {
		c.MaxAge = int(s.each / time.Second)
	}
	http.SetCookie(w, c)
}
