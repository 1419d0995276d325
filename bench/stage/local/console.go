package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// StartConsole starts `basalt console` with the rights of an administrator, and returns the URL that opens it once. It
// ends with the cluster.
func (c *Cluster) StartConsole(ctx context.Context) (url string, err error) {
	kubeconfig, err := c.Kubeconfig(Admin)
	if err != nil {
		return "", err
	}
	log := filepath.Join(c.dir, "console.log")
	p, err := startProcess(command{name: "console", path: cmp.Or(c.opts.Basalt, programPath(c.root, "basalt")), log: log,
		args: []string{"console", "--kubeconfig=" + kubeconfig,
			"--basalt-server=" + strings.Join(Answering(c.Basalts()), ",")}})
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	c.schedulers = append(c.schedulers, p)
	c.mu.Unlock()
	at := regexp.MustCompile(`(?m)^http://\S+$`)
	ctx, cancel := context.WithTimeout(ctx, consoleWithin)
	defer cancel()
	for {
		text, err := os.ReadFile(log)
		if url := at.Find(text); url != nil {
			return string(url), nil
		}
		select {
		case <-p.Done():
			return "", fmt.Errorf("the console ended: %w\n%s", cmp.Or(p.Err(), err), Tail(log, 10))
		case <-ctx.Done():
			return "", errors.Join(fmt.Errorf("the console prints no URL: %w", ctx.Err()), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// consoleWithin is how long the console may take until it prints its URL.
const consoleWithin = time.Minute
