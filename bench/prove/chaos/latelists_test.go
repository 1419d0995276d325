package chaos

import (
	"net/http/httptest"
	"testing"
)

func TestIsList(t *testing.T) {
	for _, c := range []struct {
		method, path string
		want         bool
	}{
		{"GET", "/api/v1/pods", true},
		{"GET", "/api/v1/namespaces/chaos/pods?resourceVersion=0", true},
		{"GET", "/apis/scheduling.basalt.dev/v1beta1/queues?limit=1", true},
		{"GET", "/api/v1/pods?watch=true&resourceVersion=7", false},
		{"GET", "/api/v1/namespaces/chaos/pods/p", false},
		{"POST", "/api/v1/namespaces/chaos/pods", false},
		{"PATCH", "/apis/scheduling.basalt.dev/v1beta1/queues/q/status", false},
	} {
		if got := isList(httptest.NewRequest(c.method, c.path, nil)); got != c.want {
			t.Errorf("%s %s: %t", c.method, c.path, got)
		}
	}
}
