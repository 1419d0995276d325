package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"basalt.dev/basalt/bench/stage/local/network"
)

// here is this machine, by its loopback interface.
var here = network.Place{Host: "127.0.0.1"}

// EtcdOptions describe an etcd.
type EtcdOptions struct {
	Root   string // the repository
	Dir    string // takes the folder <Name> with the data, and <Name>.log
	Name   string
	NoSync bool // do not sync the disk: faster, for what need not survive the machine
	// Places are where its members run, one a member; one member here if empty.
	Places []network.Place
}

// Etcd is a member of an etcd, the only one if not asked otherwise, with a data folder and a port that it keeps over
// restarts. It never compacts by itself, so that an auditor can watch from the first revision.
type Etcd struct {
	opts         EtcdOptions
	place        network.Place
	member       string // random: tells our etcd from another that got our port first
	client, peer int
	initial      string // all members, as the flag has them
	proc         *Process
}

// StartEtcd starts an etcd of one member and waits until it answers.
func StartEtcd(ctx context.Context, o EtcdOptions) (*Etcd, error) {
	members, err := StartEtcdMembers(ctx, o)
	if err != nil {
		return nil, err
	}
	return members[0], nil
}

// StartEtcdMembers starts an etcd with as many members as there are places, and waits until it answers.
func StartEtcdMembers(ctx context.Context, o EtcdOptions) ([]*Etcd, error) {
	if len(o.Places) == 0 {
		o.Places = []network.Place{here}
	}
	members := make([]*Etcd, len(o.Places))
	for i, place := range o.Places {
		one := o
		if len(members) > 1 {
			one.Name = fmt.Sprintf("%s-%d", o.Name, i)
		}
		members[i] = &Etcd{opts: one, place: place, member: one.Name + "-" + randomHex(4)}
	}
	err := onFreePorts(false, 2*len(members), func(ports []int) error {
		var initial []string
		for i, e := range members {
			e.client, e.peer = ports[2*i], ports[2*i+1]
			initial = append(initial, e.member+"="+e.peerURL())
			if err := os.RemoveAll(e.DataDir()); err != nil { // of an attempt on other ports
				return fmt.Errorf("clear %s: %w", e.opts.Name, err)
			}
		}
		for _, e := range members {
			e.initial = strings.Join(initial, ",")
		}
		return startAll(ctx, members)
	})
	if err != nil {
		return nil, err
	}
	return members, nil
}

// startAll starts members side by side: none of them is ready before most are.
func startAll(ctx context.Context, members []*Etcd) error {
	errs := make([]error, len(members))
	var wg sync.WaitGroup
	for i, e := range members {
		wg.Go(func() { errs[i] = e.Start(ctx) })
	}
	wg.Wait()
	err := errors.Join(errs...)
	if err != nil {
		for i, e := range members {
			if errs[i] == nil {
				e.Kill()
			}
		}
	}
	return err
}

// DataDir is where it keeps its data.
func (e *Etcd) DataDir() string { return filepath.Join(e.opts.Dir, e.opts.Name) }

func (e *Etcd) peerURL() string { return fmt.Sprintf("http://%s:%d", e.place.Host, e.peer) }

// Place is where it runs.
func (e *Etcd) Place() network.Place { return e.place }

// Name is what the member is called here; its process and its folder have the same name.
func (e *Etcd) Name() string { return e.opts.Name }

// Endpoints is what a client needs that wants this member.
func (e *Etcd) Endpoints() []string {
	return []string{fmt.Sprintf("http://%s:%d", e.place.Host, e.client)}
}

// Process gives the process, to signal it for example.
func (e *Etcd) Process() *Process { return e.proc }

// Start starts a stopped or killed member with its data and its port, and waits until it answers.
func (e *Etcd) Start(ctx context.Context) error {
	if err := e.Spawn(); err != nil {
		return err
	}
	if err := e.waitReady(ctx, e.proc); err != nil {
		e.proc.Kill()
		return err
	}
	return nil
}

// Spawn is Start without the wait, for a member that cannot answer while others are away.
func (e *Etcd) Spawn() (err error) {
	e.proc, err = startProcess(e.command())
	return err
}

func (e *Etcd) command() command {
	client, peer := e.Endpoints()[0], e.peerURL()
	args := []string{
		"--name=" + e.member,
		"--data-dir=" + e.DataDir(),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=" + e.initial,
		"--quota-backend-bytes=8589934592",
		"--max-txn-ops=128",
		"--auto-compaction-mode=periodic",
		"--auto-compaction-retention=10m", // as in deploy: history is most of what is stored
		"--log-level=warn",
	}
	if e.opts.NoSync {
		args = append(args, "--unsafe-no-fsync")
	}
	if e.opts.NoSync && len(e.opts.Places) == 1 {
		// A member that is alone need not wait long before it elects itself. Only here: the control store keeps the
		// production value, because the shortest lease follows from it.
		args = append(args, "--election-timeout=500", "--heartbeat-interval=100")
	}
	return command{
		name: "etcd " + e.opts.Name, path: programPath(e.opts.Root, "etcd"), args: args, namespace: e.place.Namespace,
		log: filepath.Join(e.opts.Dir, e.opts.Name+".log"),
	}
}

func (e *Etcd) waitReady(ctx context.Context, p *Process) error {
	retry := backoff.DefaultConfig
	retry.BaseDelay, retry.MaxDelay = 20*time.Millisecond, 100*time.Millisecond // the first dial often comes too early
	c, err := clientv3.New(clientv3.Config{
		Endpoints: e.Endpoints(), Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: time.Second})},
	})
	if err != nil {
		return fmt.Errorf("make client of %s: %w", p.name, err)
	}
	defer c.Close()
	return p.waitReady(ctx, 0, func(ctx context.Context) error {
		members, err := c.MemberList(ctx) // answered by a leader only
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(members.Members, func(m *etcdserverpb.Member) bool { return m.Name == e.member }) {
			return fmt.Errorf("%s: address already in use by another etcd", e.Endpoints()[0])
		}
		return nil
	})
}

// Stop ends the etcd in order.
func (e *Etcd) Stop() error { return e.proc.Stop() }

// Kill ends the etcd with SIGKILL.
func (e *Etcd) Kill() { e.proc.Kill() }
