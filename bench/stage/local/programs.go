package local

import (
	"context"
	"io"

	"basalt.dev/basalt/bench/stage/programs"
)

// Root finds the repository, as programs.Root does.
func Root() (string, error) { return programs.Root() }

// Programs builds programs into bin/ of the repository, as programs.Build does.
func Programs(ctx context.Context, root string, progress io.Writer, names ...string) error {
	return programs.Build(ctx, root, progress, names...)
}

func programPath(root, name string) string { return programs.Path(root, name) }
