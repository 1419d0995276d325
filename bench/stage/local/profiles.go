package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Profiles takes CPU profiles of the API server and of Basalt's processes, all at once, and writes them into a folder that
// exists. An error names the processes that it has no profile of.
func Profiles(ctx context.Context, dir string, lasts time.Duration, apiServer rest.Interface, basalts []*Basalt) error {
	seconds := fmt.Sprint(max(1, int(lasts.Seconds())))
	errs := make([]error, 1+len(basalts))
	var wg sync.WaitGroup
	take := func(i int, name string, get func() ([]byte, error)) {
		wg.Go(func() {
			content, err := get()
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name+".pprof"), content, 0o644)
			}
			if err != nil {
				errs[i] = fmt.Errorf("profile %s: %w", name, err)
			}
		})
	}
	take(0, "kube-apiserver", func() ([]byte, error) {
		return apiServer.Get().AbsPath("/debug/pprof/profile").Param("seconds", seconds).DoRaw(ctx)
	})
	for i, b := range basalts {
		take(1+i, b.Name(), func() ([]byte, error) {
			resp, err := b.Get(ctx, "/debug/pprof/profile?seconds="+seconds)
			if err != nil {
				return nil, err
			}
			defer resp.Body.Close()
			return io.ReadAll(resp.Body)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
