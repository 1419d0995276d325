package deploy_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/deploy"
	"basalt.dev/basalt/deploy/install"
)

// The API server says with each answer which FlowSchema a request matched.
func TestRequestsOfBasaltHaveTheirPriority(t *testing.T) {
	c := cluster(t)
	objects := must[[]*unstructured.Unstructured](t)(deploy.Objects("rbac.yaml", "priority.yaml"))
	if err := install.Apply(t.Context(), c.Config(local.Admin), objects, false); err != nil {
		t.Fatal(err)
	}
	admin := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(c.Config(local.Admin)))
	schema := must[*flowcontrolv1.FlowSchema](t)(admin.FlowcontrolV1().FlowSchemas().Get(t.Context(), "basalt", metav1.GetOptions{}))
	for _, row := range []struct {
		user  string
		match bool
	}{
		{local.Shard, true},
		{local.Coordinator, true},
		{"system:serviceaccount:basalt-system:basalt-audit", false}, // reads, and nobody waits for it
		{"system:serviceaccount:default:default", false},
	} {
		matched := ""
		config := c.Config(local.Admin)
		config.Impersonate = rest.ImpersonationConfig{UserName: row.user, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(r)
				if err == nil {
					matched = resp.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)
				}
				return resp, err
			})
		})
		client := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(config))
		localtest.Wait(t, time.Minute, "the priority of "+row.user, func(ctx context.Context) error {
			_, _ = client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{Limit: 1}) // allowed or not, it was ranked
			if matched == "" || (matched == string(schema.UID)) != row.match {
				return fmt.Errorf("it matched FlowSchema %q; that of Basalt is %q", matched, schema.UID)
			}
			return nil
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
