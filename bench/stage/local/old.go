package local

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Old builds basalt-faults as it was at a commit of this repository, and returns the program's path. It is kept by the
// commit's id. An error says why there is none, such as that this copy of the sources has no history.
func Old(ctx context.Context, root, commit string) (program string, err error) {
	git := exec.CommandContext(ctx, "git", "-C", root, "rev-parse", "--short=12", "--verify", commit+"^{commit}")
	id, err := git.Output()
	if err != nil {
		return "", fmt.Errorf("git knows no commit %s here: %w", commit, err)
	}
	program = programPath(root, "basalt-faults-"+strings.TrimSpace(string(id)))
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	dir, err := os.MkdirTemp("", "basalt-old-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	archive, next := filepath.Join(dir, "sources.tar"), program+".new"
	defer os.Remove(next)
	for _, args := range [][]string{
		{"git", "-C", root, "archive", "--output=" + archive, strings.TrimSpace(string(id))},
		{"tar", "-C", dir, "-xf", archive},
		{"go", "-C", dir, "build", "-buildvcs=false", "-tags", "faults", "-o", next, "./cmd/basalt"},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w: %s", args[0], err, out)
		}
	}
	return program, os.Rename(next, program)
}
