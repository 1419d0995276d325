package deploy_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api/v1alpha1/client"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/deploy"
	"basalt.dev/basalt/deploy/install"
)

// served are the versions of the API, that of storage first.
var served = []string{"v1alpha1", "v1beta1"}

// TestVersionsAreTheSame: the versions of a CRD differ in nothing but their names and which is stored, and every policy about the group
// names all of them.
func TestVersionsAreTheSame(t *testing.T) {
	for _, crd := range must[[]*unstructured.Unstructured](t)(deploy.CRDs()) {
		if conversion, set, _ := unstructured.NestedString(crd.Object, "spec", "conversion", "strategy"); set && conversion != "None" {
			t.Errorf("%s is converted by %s", crd.GetName(), conversion)
		}
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		var names []string
		for i, v := range versions {
			v := v.(map[string]any)
			names = append(names, v["name"].(string))
			if v["storage"] != (i == 0) || v["served"] != true {
				t.Errorf("%s: of %s, storage is %v and served is %v", crd.GetName(), v["name"], v["storage"], v["served"])
			}
			delete(v, "name")
			delete(v, "storage")
			if !reflect.DeepEqual(v, versions[0]) {
				t.Errorf("%s: %s is not what %s is", crd.GetName(), names[i], names[0])
			}
		}
		if !slices.Equal(names, served) {
			t.Errorf("%s has the versions %q", crd.GetName(), names)
		}
	}
	found := 0
	for _, o := range base(t) {
		rules, _, _ := unstructured.NestedSlice(o.Object, "spec", "matchConstraints", "resourceRules")
		for _, r := range rules {
			groups, _, _ := unstructured.NestedStringSlice(r.(map[string]any), "apiGroups")
			versions, _, _ := unstructured.NestedStringSlice(r.(map[string]any), "apiVersions")
			if slices.Contains(groups, "scheduling.basalt.dev") {
				if found++; !slices.Equal(versions, served) {
					t.Errorf("%s %s is about the versions %q", o.GetKind(), o.GetName(), versions)
				}
			}
		}
	}
	if found == 0 {
		t.Error("no policy is about the group")
	}
}

// TestVersionsAreInterchangeable: what is created in one version is read in the other, and neither is a way around what the other refuses:
// the rules of the schema, the order of statuses, the policies of deploy, and one that names only v1alpha1.
func TestVersionsAreInterchangeable(t *testing.T) {
	c := cluster(t)
	request := func(verb, version, path, body string) (*unstructured.Unstructured, error) {
		at := "/apis/scheduling.basalt.dev/" + version + path
		r := basalt(t).Verb(verb).AbsPath(at)
		if verb == "PATCH" {
			r = basalt(t).Patch(types.MergePatchType).AbsPath(at)
		}
		if body != "" {
			r = r.Body([]byte(body))
		}
		if verb == "POST" {
			r = r.SetHeader("Content-Type", "application/json")
		}
		raw, err := r.DoRaw(t.Context())
		out := &unstructured.Unstructured{}
		if err != nil {
			return nil, fmt.Errorf("%w: %s", err, raw)
		}
		return out, out.UnmarshalJSON(raw)
	}
	object := func(version, kind, name, metadata, spec string) string {
		return fmt.Sprintf(`{"apiVersion":"scheduling.basalt.dev/%s","kind":%q,"metadata":{"name":%q%s},"spec":%s}`, version, kind, name, metadata, spec)
	}
	kinds := []struct{ kind, path, spec, bad string }{
		{"Queue", "/queues", `{"capability":{"cpu":"2"}}`, `{"capability":{"cpu":"-1"}}`},
		{"PodGroup", "/namespaces/default/podgroups", `{"schedulingPolicy":{"gang":{"minCount":2}}}`, `{"schedulingPolicy":{"gang":{"minCount":0}}}`},
	}
	objects := must[[]*unstructured.Unstructured](t)(deploy.Objects("policy.yaml"))
	objects = append(objects, parse(t, onlyAlpha)...)
	if err := install.Apply(t.Context(), c.Config(local.Admin), objects, false); err != nil {
		t.Fatal(err)
	}
	forbidden := `,"labels":{"forbidden":"x"}`
	localtest.Wait(t, time.Minute, "the policy to be in force", func(context.Context) error {
		if _, err := request("POST", "v1alpha1", "/queues", object("v1alpha1", "Queue", "not-yet", forbidden, "{}")); err == nil || !strings.Contains(err.Error(), "not in v1alpha1") {
			_, _ = request("DELETE", "v1alpha1", "/queues/not-yet", "")
			return fmt.Errorf("answer: %v", err)
		}
		return nil
	})
	for _, k := range kinds {
		for i, version := range served {
			other, name := served[1-i], "made-as-"+version
			t.Run(k.kind+" as "+version, func(t *testing.T) {
				made, err := request("POST", version, k.path, object(version, k.kind, name, "", k.spec))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _, _ = request("DELETE", version, k.path+"/"+name, "") })
				read, err := request("GET", other, k.path+"/"+name, "")
				if err != nil {
					t.Fatal(err)
				}
				if read.GetAPIVersion() != "scheduling.basalt.dev/"+other || read.GetUID() != made.GetUID() || !reflect.DeepEqual(read.Object["spec"], made.Object["spec"]) {
					t.Errorf("made as %v, read as %v", made.Object, read.Object)
				}
				status := func(epoch int) string {
					return fmt.Sprintf(`{"status":{"epoch":%d,"writer":"w","sequence":1,"pods":0,"bound":0,"admittedGangs":0,"waitingGangs":0}}`, epoch)
				}
				if _, err := request("PATCH", version, k.path+"/"+name+"/status", status(5)); err != nil {
					t.Fatal(err)
				}
				if _, err := request("PATCH", other, k.path+"/"+name+"/status", status(4)); err == nil || !strings.Contains(err.Error(), "larger epoch") {
					t.Errorf("an older status: %v", err)
				}
				for what, row := range map[string][3]string{
					"a bad spec":        {"", k.bad, "Invalid value"},
					"a forbidden label": {forbidden, k.spec, "not in v1alpha1"},
					"large metadata":    {`,"annotations":{"a":"` + strings.Repeat("x", 20_000) + `"}`, k.spec, "at most 16384 bytes"},
				} {
					if _, err := request("POST", version, k.path, object(version, k.kind, "bad", row[0], row[1])); err == nil || !strings.Contains(err.Error(), row[2]) {
						t.Errorf("%s: %.300v", what, err)
						_, _ = request("DELETE", version, k.path+"/bad", "")
					}
				}
			})
		}
	}
}

// onlyAlpha is a policy that somebody wrote when there was one version.
const onlyAlpha = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: only-v1alpha1}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [scheduling.basalt.dev], apiVersions: [v1alpha1], operations: [CREATE], resources: [queues, podgroups]}
  validations:
  - {expression: "!('forbidden' in object.metadata.?labels.orValue({}))", message: not in v1alpha1}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: only-v1alpha1}
spec: {policyName: only-v1alpha1, validationActions: [Deny]}
`

// TestOlderCRDsReadEverything: CRDs that serve nothing but v1alpha1 can take the place of these, and what was made as v1beta1 is there.
func TestOlderCRDsReadEverything(t *testing.T) {
	c := localtest.Cluster(t, local.Options{})
	crds := must[[]*unstructured.Unstructured](t)(deploy.CRDs())
	if err := install.Apply(t.Context(), c.Config(local.Admin), crds, false); err != nil {
		t.Fatal(err)
	}
	api := must[*rest.RESTClient](t)(client.New(c.Config(local.Admin)))
	body := []byte(`{"apiVersion":"scheduling.basalt.dev/v1beta1","kind":"Queue","metadata":{"name":"q"},"spec":{"capability":{"cpu":"2"}}}`)
	localtest.Wait(t, time.Minute, "v1beta1 to be served", func(ctx context.Context) error {
		return api.Post().AbsPath("/apis/scheduling.basalt.dev/v1beta1/queues").SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
	})
	for _, crd := range crds {
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		if err := unstructured.SetNestedSlice(crd.Object, versions[:1], "spec", "versions"); err != nil {
			t.Fatal(err)
		}
	}
	if err := install.Apply(t.Context(), c.Config(local.Admin), crds, false); err != nil {
		t.Fatal(err)
	}
	localtest.Wait(t, time.Minute, "v1beta1 to be gone", func(ctx context.Context) error {
		if err := api.Get().AbsPath("/apis/scheduling.basalt.dev/v1beta1/queues/q").Do(ctx).Error(); !apierrors.IsNotFound(err) {
			return fmt.Errorf("answer: %v", err)
		}
		return nil
	})
	raw, err := api.Get().AbsPath("/apis/scheduling.basalt.dev/v1alpha1/queues/q").DoRaw(t.Context())
	if err != nil || !strings.Contains(string(raw), `"cpu":"2"`) {
		t.Errorf("%v: %s", err, raw)
	}
}
