package deploy_test

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"basalt.dev/basalt/deploy"
)

// served are the versions of the API.
var served = []string{"v1beta1"}

// TestVersions: each CRD serves and stores what the types of package v1beta1 are, and every policy about the group names it. A policy that
// missed a version would be a way around it.
func TestVersions(t *testing.T) {
	for _, crd := range must[[]*unstructured.Unstructured](t)(deploy.CRDs()) {
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		var names []string
		for i, v := range versions {
			v := v.(map[string]any)
			names = append(names, v["name"].(string))
			if v["storage"] != (i == 0) || v["served"] != true {
				t.Errorf("%s: of %s, storage is %v and served is %v", crd.GetName(), v["name"], v["storage"], v["served"])
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
