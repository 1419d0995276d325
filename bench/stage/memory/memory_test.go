package memory_test

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/bench/prove/model/conformance"
	"basalt.dev/basalt/bench/stage/memory"
)

// The scripts and the drawn operations that keep the simulator's API server honest are put to this one: the model has been
// compared with a real kube-apiserver by the same means.
func TestConformsOverHTTP(t *testing.T) {
	server := httptest.NewServer(memory.New(memory.Options{}).Handler())
	defer server.CloseClientConnections()
	clients, err := kube.ConnectConfig(&rest.Config{Host: server.URL}, "test")
	if err != nil {
		t.Fatal(err)
	}
	conformance.API(t, clients)
}

func TestConformsInProcess(t *testing.T) {
	for _, wire := range []bool{false, true} {
		t.Run(fmt.Sprintf("wire=%t", wire), func(t *testing.T) {
			clients, err := memory.New(memory.Options{}).Clients("test", wire)
			if err != nil {
				t.Fatal(err)
			}
			conformance.API(t, clients)
		})
	}
}
