package kube_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
)

// answers returns clients of an API server that gives these answers in turn, and the requests that were made.
func answers(t *testing.T, all ...answer) (c *kube.Clients, requests *[]string) {
	t.Helper()
	requests = &[]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*requests = append(*requests, r.Method+" "+r.URL.Path+" "+string(body))
		if len(*requests) > len(all) {
			t.Errorf("there is no answer to %s %s", r.Method, r.URL.Path)
			panic(http.ErrAbortHandler)
		}
		all[len(*requests)-1].write(w)
	}))
	t.Cleanup(server.Close)
	c, err := kube.ConnectConfig(&rest.Config{Host: server.URL}, "test")
	if err != nil {
		t.Fatal(err)
	}
	return c, requests
}

// A pod is marked, then deleted, and both name its UID. One that is gone, or another one, is no error; one that the API
// server does not let be marked is deleted all the same, and one that it could not mark is not.
func TestEvictAnswers(t *testing.T) {
	ok := found("8", "n")
	code := func(c int) answer { return answer{code: c} }
	for _, c := range []struct {
		what    string
		answers []answer
		err     string
	}{
		{"it is there", []answer{ok, ok}, ""},
		{"it is gone", []answer{code(404), code(404)}, ""},
		{"it is another one", []answer{code(409), code(409)}, ""},
		{"it is another one, which is invalid", []answer{{code: 422, field: "metadata.uid"}, code(409)}, ""},
		{"a policy denies that it is marked", []answer{code(422), ok}, ""},
		{"a policy denies that it is deleted", []answer{ok, code(422)}, "evict pod ns/p"},
		{"it goes in between", []answer{ok, code(404)}, ""},
		{"it may not be marked", []answer{code(403), ok}, ""},
		{"the server fails to mark it", []answer{code(500)}, "mark pod ns/p"},
		{"it may not be deleted", []answer{ok, code(403)}, "evict pod ns/p"},
		{"it is gone when it is marked, and the server fails", []answer{code(404), code(500)}, "evict pod ns/p"},
	} {
		client, requests := answers(t, c.answers...)
		err := client.Evict(t.Context(), kube.Pod{Namespace: "ns", Name: "p", UID: "the-uid"}, "why")
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v", c.what, err)
		}
		for i, want := range []string{"PATCH /api/v1/namespaces/ns/pods/p/status ", "DELETE /api/v1/namespaces/ns/pods/p "}[:len(c.answers)] {
			if i >= len(*requests) || !strings.HasPrefix((*requests)[i], want) || !strings.Contains((*requests)[i], "the-uid") {
				t.Errorf("%s: request %d of %q, want %s with the UID", c.what, i, *requests, want)
			}
		}
	}
}

// A condition is written to the version that it is about, and the version that comes back is returned.
func TestExplainAnswers(t *testing.T) {
	pod := kube.Pod{Namespace: "ns", Name: "p", UID: "the-uid"}
	client, requests := answers(t, found("8", ""), answer{code: 409})
	version, err := client.ExplainPod(t.Context(), pod, "4711", "the-reason", "the message")
	if err != nil || version != "8" {
		t.Errorf("%q, %v", version, err)
	}
	for _, part := range []string{"PATCH /api/v1/namespaces/ns/pods/p/status ", "the-uid", `"4711"`, "the-reason", "the message", `"False"`} {
		if !strings.Contains((*requests)[0], part) {
			t.Errorf("the request lacks %s: %s", part, (*requests)[0])
		}
	}
	if version, err := client.ExplainPod(t.Context(), pod, "4711", "x", "y"); err == nil || version != "" || !strings.Contains(err.Error(), "explain pod ns/p") {
		t.Errorf("%q, %v", version, err)
	}
}

// The controller of a pod is that owner which controls it, of the pod that was meant.
func TestControllerAnswers(t *testing.T) {
	owned := found("8", "")
	owned.owners = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "o"},
		{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "j", Controller: new(true)},
	}
	job := "batch/v1 Job ns/train j"
	for _, c := range []struct {
		what, uid string
		answer    answer
		want      string
		fails     bool
	}{
		{"a pod of a Job", "u", owned, job, false},
		{"another pod of its name", "v", owned, "", false},
		{"a pod without a controller", "u", found("8", ""), "", false},
		{"a pod that is gone", "u", answer{code: 404}, "", false},
		{"a server that fails", "u", answer{code: 500}, "", true},
	} {
		client, _ := answers(t, c.answer)
		owner, err := client.Controller(t.Context(), kube.Pod{Namespace: "ns", Name: "p", UID: c.uid})
		got := ""
		if owner != nil {
			got = fmt.Sprintf("%s %s %s/%s %s", owner.APIVersion, owner.Kind, owner.Namespace, owner.Name, owner.UID)
		}
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("%s: %q, %v", c.what, got, err)
		}
	}
}

// A status is replaced as a whole, of the object with this UID.
func TestReplaceStatusAnswers(t *testing.T) {
	client, requests := answers(t, found("8", ""), found("8", ""), answer{code: 422})
	for _, c := range []struct{ resource, namespace, path, err string }{
		{"queues", "", "PATCH /apis/scheduling.basalt.dev/v1beta1/queues/x/status ", ""},
		{"podgroups", "ns", "PATCH /apis/scheduling.basalt.dev/v1beta1/namespaces/ns/podgroups/x/status ", ""},
		{"queues", "", "PATCH /apis/scheduling.basalt.dev/v1beta1/queues/x/status ", "write status of queues x"},
	} {
		err := client.ReplaceStatus(t.Context(), c.resource, c.namespace, "x", "the-uid", &v1beta1.QueueStatus{AdmittedGangs: 7})
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v", c.path, err)
		}
		last := (*requests)[len(*requests)-1]
		for _, part := range []string{c.path, `"/metadata/uid"`, "the-uid", `"admittedGangs":7`} {
			if !strings.Contains(last, part) {
				t.Errorf("the request lacks %s: %s", part, last)
			}
		}
	}
}

// List reads what can be read, and leaves out the rest.
func TestList(t *testing.T) {
	lists := `{"metadata":{"resourceVersion":"3"},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"},"spec":{"closed":7}},7,{"metadata":{"name":"c"},"status":{"epoch":"x"}}]}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/scheduling.basalt.dev/v1beta1/queues" || r.URL.Query().Get("resourceVersion") != "" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, lists)
	}))
	defer server.Close()
	client, err := kube.ConnectConfig(&rest.Config{Host: server.URL}, "test")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	queues, err := kube.List[*v1beta1.Queue](t.Context(), client.Basalt, "queues", log)
	if err != nil || len(queues) != 2 || queues[0].Name != "a" || queues[1].Name != "c" {
		t.Errorf("%v, %v", queues, err)
	}
	if _, err := kube.List[*v1.Node](t.Context(), client.Core.CoreV1().RESTClient(), "nodes", log); err == nil {
		t.Error("what is not there was listed")
	}
}
