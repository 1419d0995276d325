package local

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"basalt.dev/basalt/bench/stage/local/network"
)

// BasaltOptions say how one of Basalt's processes is run.
type BasaltOptions struct {
	// Restart starts a process that died again, under the same name and on the same ports, as a StatefulSet would.
	Restart bool
	// RestartAfter is the pause before that; 1 s if 0.
	RestartAfter time.Duration
	// OTLP is the endpoint for traces; none if empty.
	OTLP string
	// Flags and Env are added to the process's own.
	Flags, Env []string
	// ShardFlags are added to those of shards, CoordinatorFlags to those of coordinators.
	ShardFlags, CoordinatorFlags []string
	// Program is run instead of the cluster's, without the flags that it does not know: it may be older.
	Program string
	// Place is where it runs: here if zero.
	Place network.Place
	// NoWait returns before the process listens, for tests of a process that cannot start.
	NoWait bool
}

// Basalt is a shard or a coordinator that runs as a process.
type Basalt struct {
	*Process
	Role                    string // "shard" or "coordinator"
	Listen, Gossip, Metrics string // addresses: gRPC, memberlist, HTTP
	Visibility              string // URL at which a shard on this machine answers users
	token                   string // that /metrics asks for where others than this machine could reach it
}

// StartShard starts a shard.
func (c *Cluster) StartShard(ctx context.Context, name string, o BasaltOptions) (*Basalt, error) {
	o.Flags = slices.Concat(o.Flags, o.ShardFlags)
	return c.startBasalt(ctx, "shard", Shard, name, o)
}

// StartCoordinator starts a coordinator.
func (c *Cluster) StartCoordinator(ctx context.Context, name string, o BasaltOptions) (*Basalt, error) {
	o.Flags = slices.Concat(o.Flags, o.CoordinatorFlags)
	return c.startBasalt(ctx, "coordinator", Coordinator, name, o)
}

// StartBasalt starts coordinators and shards together, named coordinator-0, shard-0 and so on, and returns those that
// were started, in this order.
func (c *Cluster) StartBasalt(ctx context.Context, coordinators, shards int, o BasaltOptions) ([]*Basalt, error) {
	out, failed := make([]*Basalt, coordinators+shards), make([]error, coordinators+shards)
	var wg sync.WaitGroup
	for i := range out {
		wg.Go(func() {
			if i < coordinators {
				out[i], failed[i] = c.StartCoordinator(ctx, fmt.Sprintf("coordinator-%d", i), o)
			} else {
				out[i], failed[i] = c.StartShard(ctx, fmt.Sprintf("shard-%d", i-coordinators), o)
			}
		})
	}
	wg.Wait()
	return slices.DeleteFunc(out, func(b *Basalt) bool { return b == nil }), errors.Join(failed...)
}

// Basalts returns the shards and coordinators in the order of their start, those that ended too.
func (c *Cluster) Basalts() []*Basalt {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*Basalt(nil), c.basalts...)
}

// Answering returns where those of these processes answer questions that do, which are shards.
func Answering(all []*Basalt) (urls []string) {
	for _, b := range all {
		if b.Visibility != "" {
			urls = append(urls, b.Visibility)
		}
	}
	return urls
}

// WaitReady returns when each of these processes calls itself ready.
func WaitReady(ctx context.Context, all []*Basalt) error {
	for _, b := range all {
		if err := b.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// WaitReady returns when the process calls itself ready, after a Kill the one that followed. A shard is not ready before a
// coordinator gave it buckets, so start them all first. Dying again and again while it waits is an error.
func (b *Basalt) WaitReady(ctx context.Context) error {
	return b.waitReady(ctx, b.deaths()+2, func(ctx context.Context) error {
		status, err := b.get(ctx, "/readyz")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("/readyz answers %d", status)
		}
		return err
	})
}

// Get asks the process's HTTP server, for "/metrics" for example.
func (b *Basalt) Get(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.Metrics+path, nil)
	if err != nil {
		return nil, err
	}
	if b.token != "" {
		req.Header.Set("Authorization", "Bearer "+b.token)
	}
	return http.DefaultClient.Do(req)
}

// Samples reads what the process shows at /metrics; names carry their labels as they are printed.
func (b *Basalt) Samples(ctx context.Context) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	resp, err := b.Get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read metrics of %s: the answer is %s", b.Name(), resp.Status)
	}
	out := map[string]float64{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		line := lines.Text()
		at := strings.LastIndexByte(line, ' ')
		if at <= 0 || line[0] == '#' {
			continue
		}
		if v, err := strconv.ParseFloat(line[at+1:], 64); err == nil {
			out[line[:at]] = v
		}
	}
	return out, lines.Err()
}

// get returns the status of an answer, whichever it is.
func (b *Basalt) get(ctx context.Context, path string) (int, error) {
	resp, err := b.Get(ctx, path)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// known leaves out the flags that a program's help does not name.
func known(ctx context.Context, program string, args []string) ([]string, error) {
	help, err := exec.CommandContext(ctx, program, args[0], "--help").Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s --help: %w", program, args[0], err)
	}
	return slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		flag, _, _ := strings.Cut(arg, "=")
		return strings.HasPrefix(flag, "--") && !strings.Contains(string(help), flag+" ")
	}), nil
}

func (c *Cluster) startBasalt(ctx context.Context, role, user, name string, o BasaltOptions) (*Basalt, error) {
	kubeconfig, err := c.Kubeconfig(user)
	if err != nil {
		return nil, err
	}
	program := cmp.Or(o.Program, c.opts.Basalt, programPath(c.root, "basalt"))
	restartAfter := o.RestartAfter
	if o.Restart && restartAfter == 0 {
		restartAfter = time.Second
	} else if !o.Restart {
		restartAfter = 0
	}
	if o.Place.Host == "" {
		o.Place = here
	}
	var b *Basalt
	err = onFreePorts(false, 4, func(ports []int) error {
		addr := func(i int) string { return fmt.Sprintf("%s:%d", o.Place.Host, ports[i]) }
		b = &Basalt{Role: role, Listen: addr(0), Gossip: addr(1), Metrics: addr(2)}
		args := []string{
			role,
			"--name=" + name,
			"--kubeconfig=" + kubeconfig,
			"--etcd=" + strings.Join(c.ControlStore(), ","),
			"--listen=" + b.Listen,
			"--gossip=" + b.Gossip,
			"--metrics=" + b.Metrics,
		}
		if o.Place.Namespace != "" {
			b.token = randomHex(16)
			file := filepath.Join(c.dir, name+".metrics-token")
			if err := os.WriteFile(file, []byte(b.token), 0o600); err != nil {
				return fmt.Errorf("write token: %w", err)
			}
			args = append(args, "--metrics-token-file="+file)
		}
		scheme := "https://"
		if !slices.ContainsFunc(o.Flags, func(f string) bool { return strings.HasPrefix(f, "--tls-ca=") }) {
			scheme, args = "http://", append(args, "--insecure-plain-text")
		}
		if role == "shard" && o.Place.Namespace == "" {
			b.Visibility = scheme + addr(3)
			args = append(args, "--visibility="+addr(3))
		}
		if o.OTLP != "" {
			args = append(args, "--otlp="+o.OTLP)
		}
		args = append(args, o.Flags...)
		if o.Program != "" {
			if args, err = known(ctx, program, args); err != nil {
				return err
			}
		}
		p, err := startProcess(command{
			name: name, path: program, args: args, env: o.Env, namespace: o.Place.Namespace,
			log: filepath.Join(c.dir, name+".log"), restartAfter: restartAfter,
		})
		if err != nil {
			return err
		}
		b.Process = p
		if o.NoWait {
			return nil
		}
		err = p.waitReady(ctx, 0, func(ctx context.Context) error {
			_, err := b.get(ctx, "/livez")
			return err
		})
		if err != nil {
			_ = p.Stop()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.basalts = append(c.basalts, b)
	c.mu.Unlock()
	return b, nil
}
