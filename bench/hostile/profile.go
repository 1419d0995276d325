package hostile

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// profile takes CPU profiles of Basalt's processes and the API server from a time on.
func (r *run) profile(ctx context.Context, attack string, from time.Time, lasts time.Duration) {
	dir := filepath.Join(r.Profiles, attack)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		r.logf("no profiles: %v", err)
		return
	}
	if !pause(ctx, time.Until(from)) {
		return
	}
	seconds := fmt.Sprint(max(1, int(lasts.Seconds())))
	var wg sync.WaitGroup
	defer wg.Wait()
	take := func(name string, get func() ([]byte, error)) {
		wg.Go(func() {
			content, err := get()
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name+".pprof"), content, 0o644)
			}
			if err != nil {
				r.logf("no profile of %s: %v", name, err)
			}
		})
	}
	take("kube-apiserver", func() ([]byte, error) {
		return r.admin.Core.CoreV1().RESTClient().Get().AbsPath("/debug/pprof/profile").Param("seconds", seconds).DoRaw(ctx)
	})
	for _, b := range r.basalts {
		take(b.Name(), func() ([]byte, error) {
			resp, err := b.Get(ctx, "/debug/pprof/profile?seconds="+seconds)
			if err != nil {
				return nil, err
			}
			defer resp.Body.Close()
			return io.ReadAll(resp.Body)
		})
	}
}
