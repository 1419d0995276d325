package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// needed is how many bytes a run of all tests may take at its peak: control planes, of which each etcd reserves 128 MB,
// test programs, and build outputs that are not in the cache of Go yet. Measured with a warm cache: 3 GB.
const needed = 6 << 30

// room returns an error that says what to do if a folder that the tests write to has less than needed bytes left.
// Without it each test that starts an etcd fails by itself, and says so in words of etcd.
func room(needed uint64, folders ...string) error {
	var short []error
	for _, f := range folders {
		var s syscall.Statfs_t
		if err := syscall.Statfs(f, &s); err != nil {
			continue // whoever writes there says what is wrong with it
		}
		if free := s.Bavail * uint64(s.Bsize); free < needed {
			short = append(short, fmt.Errorf("%s has %.1f GB left; a run of all tests takes up to %.1f GB",
				f, gigabytes(free), gigabytes(needed)))
		}
	}
	if len(short) == 0 {
		return nil
	}
	return fmt.Errorf("too little disk space: %w; `go clean -cache` frees what earlier builds left", errors.Join(short...))
}

func gigabytes(bytes uint64) float64 { return float64(bytes) / (1 << 30) }

// written are the folders that tests write to.
func written(ctx context.Context) []string {
	folders := []string{os.TempDir()}
	if out, err := exec.CommandContext(ctx, "go", "env", "GOCACHE").Output(); err == nil {
		folders = append(folders, strings.TrimSpace(string(out)))
	}
	return folders
}
