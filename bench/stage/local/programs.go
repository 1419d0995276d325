package local

import (
	"context"
	"io"
	"os"

	"basalt.dev/basalt/bench/stage/programs"
)

// Root finds the repository, as programs.Root does.
func Root() (string, error) { return programs.Root() }

// Programs builds programs into bin/ of the repository, as programs.Build does.
func Programs(ctx context.Context, root string, progress io.Writer, names ...string) error {
	return programs.Build(ctx, root, progress, names...)
}

// Release is an environment variable that names an older release of Kubernetes, such as 1.35, whose API server runs in
// place of the newest. kube-controller-manager stays the newest.
const Release = "BASALT_KUBERNETES"

// APIServer names the program of the API server that Start runs.
func APIServer() string {
	if of := os.Getenv(Release); of != "" {
		return "kube-apiserver-" + of
	}
	return "kube-apiserver"
}

func programPath(root, name string) string { return programs.Path(root, name) }
