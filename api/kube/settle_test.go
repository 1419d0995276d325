package kube_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api/kube"
)

// answer is one of an API server: a pod with code 200, an error with another, and a connection that breaks with none.
type answer struct {
	code    int
	uid     string
	version string
	node    string
	field   string // that is invalid
	owners  []metav1.OwnerReference
}

func found(version, node string) answer {
	return answer{code: 200, uid: "u", version: version, node: node}
}

func (a answer) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	if a.code == 0 { // the answer is lost
		panic(http.ErrAbortHandler)
	}
	failure := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure}
	failure.Code, failure.Reason = int32(a.code), reasons[a.code]
	failure.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: "no", Field: a.field}}}
	var o any = failure
	if a.code == 200 {
		pod := &v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
		pod.Namespace, pod.Name, pod.ResourceVersion = "ns", "p", a.version
		pod.UID, pod.Spec.NodeName, pod.OwnerReferences = types.UID(a.uid), a.node, a.owners
		o = pod
	}
	w.WriteHeader(a.code)
	_ = json.NewEncoder(w).Encode(o)
}

var reasons = map[int]metav1.StatusReason{
	403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound, 409: metav1.StatusReasonConflict, 413: metav1.StatusReasonRequestEntityTooLarge,
	422: metav1.StatusReasonInvalid, 429: metav1.StatusReasonTooManyRequests, 500: metav1.StatusReasonInternalError, 503: metav1.StatusReasonServiceUnavailable, 504: metav1.StatusReasonTimeout,
}

// What Resolve makes of each answer that an API server may give. A pod is said to be free only where it has no node and another
// version than the Binding's, gone only where it is, and nothing that is in doubt is an answer.
func TestResolveAnswers(t *testing.T) {
	const binding = "7" // the version that the Binding names
	lost := answer{}
	code := func(c int) answer { return answer{code: c} }
	other := answer{code: 200, uid: "other", version: "9"}
	for _, test := range []struct {
		what    string
		answers []answer // to get, patch, get
		want    string
	}{
		{"it was edited", []answer{found("8", "")}, "free at 8"},
		{"it went back to an older version, of a server that was restored", []answer{found("3", "")}, "free at 3"},
		{"it is bound", []answer{found("8", "n1")}, "on n1"},
		{"it is bound at the version of the Binding, which cannot be", []answer{found("7", "n1")}, "on n1"},
		{"it is gone", []answer{code(404)}, "gone"},
		{"it is another one", []answer{other}, "gone"},
		{"it may not be read", []answer{code(403)}, "error"},
		{"reading fails", []answer{code(500)}, "error"},
		{"the write lands first", []answer{found("7", ""), found("8", "")}, "free at 8"},
		{"the Binding lands first", []answer{found("7", ""), found("9", "n1")}, "on n1"},
		{"the write changes nothing", []answer{found("7", ""), found("7", "")}, "error"},
		{"it is deleted before the write", []answer{found("7", ""), code(404), code(404)}, "gone"},
		{"it is replaced before the write", []answer{found("7", ""), code(422), other}, "gone"},
		{"the write is answered with another pod", []answer{found("7", ""), other}, "gone"},
		{"the write is refused for ever", []answer{found("7", ""), code(403), found("7", "")}, "error"},
		{"the write is refused, and somebody else changes it", []answer{found("7", ""), code(403), found("8", "")}, "free at 8"},
		{"the write is refused, and the Binding lands", []answer{found("7", ""), code(403), found("8", "n1")}, "on n1"},
		{"the write is invalid", []answer{found("7", ""), code(422), found("7", "")}, "error"},
		{"the write is too large", []answer{found("7", ""), code(413), found("7", "")}, "error"},
		{"the server gave up on concurrent changes", []answer{found("7", ""), code(409), found("12", "")}, "free at 12"},
		{"the server gave up, and cannot be read", []answer{found("7", ""), code(409), code(500)}, "error"},
		{"the answer to the write is lost, and it landed", []answer{found("7", ""), lost, found("8", "")}, "free at 8"},
		{"the answer to the write is lost, and it did not land", []answer{found("7", ""), lost, found("7", "")}, "error"},
		{"the write times out, and it landed", []answer{found("7", ""), code(504), found("8", "")}, "free at 8"},
		{"the server is overloaded", []answer{found("7", ""), code(429), found("7", "")}, "error"},
	} {
		t.Run(test.what, func(t *testing.T) {
			var one sync.Mutex // an answer that is lost ends its connection, and the next request comes on another
			asked := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				one.Lock()
				defer one.Unlock()
				want := "GET /api/v1/namespaces/ns/pods/p"
				if asked == 1 {
					want = "PATCH /api/v1/namespaces/ns/pods/p/status"
				}
				if got := r.Method + " " + r.URL.Path; got != want || r.URL.Query().Get("resourceVersion") != "" {
					t.Errorf("request %d is %s?%s, want %s", asked, got, r.URL.RawQuery, want)
				}
				if asked == len(test.answers) {
					t.Errorf("there is no answer to request %d", asked)
					panic(http.ErrAbortHandler)
				}
				asked++
				test.answers[asked-1].write(w)
			}))
			defer server.Close()
			c, err := kube.ConnectConfig(&rest.Config{Host: server.URL, Timeout: time.Minute}, "test")
			if err != nil {
				t.Fatal(err)
			}
			s, err := c.Resolve(t.Context(), kube.Pod{Namespace: "ns", Name: "p", UID: "u"}, binding, "value")
			var got string
			switch {
			case err != nil:
				got = "error"
				if !strings.Contains(err.Error(), "ns/p") {
					t.Errorf("%v does not name the pod", err)
				}
			case s.Gone:
				got = "gone"
			case s.Node != "":
				got = "on " + s.Node
			default:
				got = fmt.Sprint("free at ", s.Version)
			}
			if got != test.want || asked != len(test.answers) {
				t.Errorf("%s after %d requests, want %s after %d", got, asked, test.want, len(test.answers))
			}
		})
	}
}
