package visibility

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"

	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
)

// Who asks with a hundred ServiceAccounts of one namespace leaves others their turn: why a gang waits, and what would
// be.
func TestTenantsAskInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reviews := NewReviews(nil, nil)
		handler := newServer(Options{Reviews: reviews,
			Answer: func(context.Context, *wire.WhyRequest) (*wire.WhyReply, error) {
				return &wire.WhyReply{Known: true}, nil
			},
			WhatIf: func(context.Context, *wire.WhatIfRequest) (*wire.WhatIfReply,
				error) {
				return &wire.WhatIfReply{}, nil
			}})
		knows := func(token, name string) {
			bearer, err := tokenOf("Bearer " + token)
			if err != nil {
				t.Fatal(err)
			}
			reviews.tokens.Add(bearer.key, &user{UserInfo: authentication.UserInfo{Username: name}, key: bearer.key}, time.Hour)
			for _, to := range []authorization.ResourceAttributes{
				{Verb: "get", Group: v1beta1.GroupName, Resource: "podgroups", Namespace: "ns", Name: "g"},
				{Verb: "get", Group: v1beta1.GroupName, Resource: "queues", Name: "q"},
			} {
				reviews.accesses.Add(access{bearer.key, to}, true, time.Hour)
			}
		}
		ask := func(token, path string) int {
			r := httptest.NewRequest(http.MethodGet, path, nil).WithContext(t.Context())
			r.Header.Set("Authorization", "Bearer "+token)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			return w.Code
		}
		for what, path := range map[string]string{
			"why": "/v1/namespaces/ns/gangs/g/why", "what if": "/v1/what-if?change=q:weight=2&queue=q"} {
			var loud sync.WaitGroup
			end := time.Now().Add(20 * time.Second)
			for i := range 100 {
				token := fmt.Sprint("loud-", i)
				knows(token, fmt.Sprintf("system:serviceaccount:loud:robot-%d", i))
				loud.Go(func() {
					for time.Now().Before(end) {
						ask(token, path)
						time.Sleep(100 * time.Millisecond)
					}
				})
			}
			for i, name := range []string{"system:serviceaccount:quiet:robot", "somebody"} {
				token := fmt.Sprint("quiet-", i)
				knows(token, name)
				for range 5 {
					time.Sleep(time.Second)
					began := time.Now()
					if code := ask(token, path); code != http.StatusOK || time.Since(began) > 2*time.Second {
						t.Errorf("%s, asked by %s: %d after %s", what, name, code, time.Since(began))
					}
				}
			}
			loud.Wait()
		}
	})
}
