package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// EtcdOptions describe an etcd of one member.
type EtcdOptions struct {
	Root   string // the repository
	Dir    string // takes the folder <Name> with the data, and <Name>.log
	Name   string
	NoSync bool // do not sync the disk: faster, for what need not survive the machine
}

// Etcd is an etcd of one member with a data folder and a port that it keeps over restarts. It never compacts by itself, so
// that an auditor can watch from the first revision.
type Etcd struct {
	opts         EtcdOptions
	member       string // random: tells our etcd from another that got our port first
	client, peer int
	proc         *Process
}

// StartEtcd starts an etcd and waits until it answers.
func StartEtcd(ctx context.Context, o EtcdOptions) (*Etcd, error) {
	e := &Etcd{opts: o, member: o.Name + "-" + randomHex(4)}
	err := onFreePorts(false, 2, func(ports []int) error {
		e.client, e.peer = ports[0], ports[1]
		if err := os.RemoveAll(e.data()); err != nil { // of an attempt on other ports
			return fmt.Errorf("clear %s: %w", o.Name, err)
		}
		return e.Start(ctx)
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

func (e *Etcd) data() string { return filepath.Join(e.opts.Dir, e.opts.Name) }

// Endpoints is what a client needs.
func (e *Etcd) Endpoints() []string { return []string{fmt.Sprintf("http://127.0.0.1:%d", e.client)} }

// Process gives the process, to signal it for example.
func (e *Etcd) Process() *Process { return e.proc }

// Start starts a stopped or killed etcd with its data and its port.
func (e *Etcd) Start(ctx context.Context) error {
	client, peer := e.Endpoints()[0], fmt.Sprintf("http://127.0.0.1:%d", e.peer)
	args := []string{
		"--name=" + e.member,
		"--data-dir=" + e.data(),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=" + e.member + "=" + peer,
		"--quota-backend-bytes=8589934592",
		"--max-txn-ops=128",
		"--auto-compaction-retention=0",
		"--log-level=warn",
	}
	if e.opts.NoSync {
		// A member that is alone need not wait a second before it elects itself. Only here: the control store keeps the
		// production value, because the shortest lease follows from it.
		args = append(args, "--unsafe-no-fsync", "--election-timeout=100", "--heartbeat-interval=10")
	}
	p, err := startProcess(command{
		name: "etcd " + e.opts.Name, path: programPath(e.opts.Root, "etcd"), args: args,
		log: filepath.Join(e.opts.Dir, e.opts.Name+".log"),
	})
	if err != nil {
		return err
	}
	if err := e.waitReady(ctx, p); err != nil {
		p.Kill()
		return err
	}
	e.proc = p
	return nil
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
		if len(members.Members) != 1 || members.Members[0].Name != e.member {
			return fmt.Errorf("%s: address already in use by another etcd", e.Endpoints()[0])
		}
		return nil
	})
}

// Stop ends the etcd in order.
func (e *Etcd) Stop() error { return e.proc.Stop() }

// Kill ends the etcd with SIGKILL.
func (e *Etcd) Kill() { e.proc.Kill() }
