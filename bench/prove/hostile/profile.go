package hostile

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"basalt.dev/basalt/api/wait"
	"basalt.dev/basalt/bench/stage/local"
)

// profile takes CPU profiles of Basalt's processes and the API server from a time on.
func (r *run) profile(ctx context.Context, attack string, from time.Time, lasts time.Duration) {
	dir := filepath.Join(r.Profiles, attack)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		r.logf("no profiles: %v", err)
		return
	}
	if !wait.For(ctx, time.Until(from)) {
		return
	}
	if err := local.Profiles(ctx, dir, lasts, r.admin.Core.CoreV1().RESTClient(), r.basalts); err != nil {
		r.logf("some profiles are missing: %v", err)
	}
}
