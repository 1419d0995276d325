package deploy_test

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// The page for kind installs the image that it builds, and an etcd that a node can pull, with either tool.
func TestKindPage(t *testing.T) {
	page := string(must[[]byte](t)(os.ReadFile("docs/kind.md")))
	_, kustomization, _ := strings.Cut(page, "```yaml\n")
	kustomization, _, _ = strings.Cut(kustomization, "```")
	_, command, found := strings.Cut(page, "\nhelm install basalt deploy/chart ")
	command, _, _ = strings.Cut(command, "\n```")
	if !found {
		t.Fatal("the page has no command for Helm")
	}
	args := strings.Fields(strings.NewReplacer("\\\n", " ", "deploy/chart/", "chart/").Replace(command))
	args = slices.DeleteFunc(args, func(a string) bool { return a == "--create-namespace" })
	chart := must[string](t)(run(t, "", "helm", append([]string{"template", "basalt", "chart"}, args...)...))
	for how, objects := range map[string]string{"kustomize": render(t, kustomization), "helm": chart} {
		all := pods(t, parse(t, objects))
		if len(all) != 5 {
			t.Errorf("%s: %d workloads", how, len(all))
		}
		for name, pod := range all {
			want := "basalt:dev"
			if name == "basalt-etcd" {
				want = "quay.io/coreos/etcd:v3.7.3"
			}
			if got := pod.Containers[0].Image; got != want {
				t.Errorf("%s: %s runs %s, not %s", how, name, got, want)
			}
		}
	}
}
