// Command basalt is everything that runs in production: `basalt shard`, `basalt coordinator`, and what an operator needs
// to look inside, `basalt status` and `basalt audit`.
package main

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/api/audit/follow"
	"basalt.dev/basalt/api/link"
	"basalt.dev/basalt/api/process"
	"basalt.dev/basalt/api/store"
	coordinator "basalt.dev/basalt/coordinator/process"
	shard "basalt.dev/basalt/shard/process"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use:           "basalt",
		Short:         "A sharded batch scheduler for very large Kubernetes clusters",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(shardCommand(), coordinatorCommand(), statusCommand(), follow.Command())
	if err := root.ExecuteContext(ctx); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "basalt:", err)
		os.Exit(1)
	}
}

// common are the flags of both kinds of process.
type common struct {
	name, kubeconfig, etcd, listen, advertise, gossip, metrics, otlp string
	gossipKeyFile, gossipLabel                                       string
	tlsCA, tlsCert, tlsKey                                           string
	etcdCA, etcdCert, etcdKey                                        string
	verbose                                                          bool
}

func (c *common) register(cmd *cobra.Command) {
	host, _ := os.Hostname()
	f := cmd.Flags()
	f.StringVar(&c.name, "name", host, "stable name of this process; one that takes the place of another has the same")
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file; empty: the cluster that this process runs in")
	f.StringVar(&c.etcd, "etcd", "", "endpoints of the control store, separated by commas (an etcd of Basalt's own, never the API server's)")
	f.StringVar(&c.listen, "listen", ":7600", "address for gRPC")
	f.StringVar(&c.gossip, "gossip", ":7601", "address for memberlist, TCP and UDP")
	f.StringVar(&c.advertise, "advertise", "", "IP address that others reach this process at; empty: the host of --listen, or the first of this machine")
	f.StringVar(&c.metrics, "metrics", ":7602", "address for /metrics, /livez and /readyz; empty: none")
	f.StringVar(&c.otlp, "otlp", "", "OTLP gRPC endpoint for traces; empty: none are made")
	f.StringVar(&c.gossipKeyFile, "gossip-key-file", "", "file with the base64 AES key (16, 24 or 32 bytes) that gossip is encrypted with")
	f.StringVar(&c.gossipLabel, "gossip-label", "basalt", "label that keeps apart clusters on one network")
	f.StringVar(&c.tlsCA, "tls-ca", "", "CA that peers' certificates must come from; with --tls-cert and --tls-key")
	f.StringVar(&c.tlsCert, "tls-cert", "", "certificate for gRPC, as server and as client; read again at each handshake")
	f.StringVar(&c.tlsKey, "tls-key", "", "key of --tls-cert")
	f.StringVar(&c.etcdCA, "etcd-ca", "", "CA of the control store")
	f.StringVar(&c.etcdCert, "etcd-cert", "", "client certificate for the control store")
	f.StringVar(&c.etcdKey, "etcd-key", "", "key of --etcd-cert")
	f.BoolVarP(&c.verbose, "verbose", "v", false, "log at debug level")
}

func (c *common) endpoints() ([]string, error) {
	var out []string
	for _, e := range strings.Split(c.etcd, ",") {
		if e = strings.TrimSpace(e); e != "" {
			out = append(out, e)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("--etcd is missing: the endpoints of the control store")
	}
	return out, nil
}

// check finds what is wrong with the flags before anything is started.
func (c *common) check() error {
	if c.name == "" {
		return errors.New("--name is empty")
	}
	for flag, address := range map[string]string{"--listen": c.listen, "--gossip": c.gossip, "--metrics": c.metrics} {
		if flag == "--metrics" && address == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			return fmt.Errorf("%s %q: %w", flag, address, err)
		}
	}
	if c.advertise != "" && net.ParseIP(c.advertise) == nil {
		return fmt.Errorf("--advertise %q is not an IP address", c.advertise)
	}
	if set := c.tlsCA != "" || c.tlsCert != "" || c.tlsKey != ""; set && (c.tlsCA == "" || c.tlsCert == "" || c.tlsKey == "") {
		return errors.New("--tls-ca, --tls-cert and --tls-key belong together")
	}
	return nil
}

func (c *common) logger(role string) *slog.Logger {
	level := slog.LevelInfo
	if c.verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})).With("role", role, "name", c.name)
}

func (c *common) gossipKey() ([]byte, error) {
	if c.gossipKeyFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(c.gossipKeyFile)
	if err != nil {
		return nil, fmt.Errorf("--gossip-key-file: %w", err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("--gossip-key-file %s: %w", c.gossipKeyFile, err)
	}
	if n := len(key); n != 16 && n != 24 && n != 32 {
		return nil, fmt.Errorf("--gossip-key-file %s: a key of %d bytes, 16, 24 or 32 are possible", c.gossipKeyFile, n)
	}
	return key, nil
}

func (c *common) etcdTLS() (*tls.Config, error) {
	return store.ClientTLS(c.etcdCA, c.etcdCert, c.etcdKey)
}

// address is where others reach what listens there.
func (c *common) address(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", err
	}
	switch ip := net.ParseIP(host); {
	case c.advertise != "":
		host = c.advertise
	case host == "" || ip != nil && ip.IsUnspecified():
		if host, err = firstAddress(); err != nil {
			return "", err
		}
	}
	return net.JoinHostPort(host, port), nil
}

func firstAddress() (string, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("find an address of this machine, give --advertise: %w", err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			return n.IP.String(), nil
		}
	}
	return "", errors.New("this machine has no address but loopback: give --advertise")
}

func shardCommand() *cobra.Command {
	var c common
	var o shard.Options
	cmd := &cobra.Command{Use: "shard", Short: "Owns a part of the nodes and queues: orders gangs, places and binds them", Args: cobra.NoArgs}
	c.register(cmd)
	cmd.Flags().StringSliceVar(&o.IgnoredResources, "ignored-resources", nil, "resources that neither placement nor quota looks at")
	cmd.Flags().StringVar(&o.Policy, "placement", "pack", "pack: fill nodes up; spread: keep them evenly used")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p, err := c.process("shard")
		if err != nil {
			return err
		}
		o.Process = *p
		return shard.Run(cmd.Context(), o)
	}
	return cmd
}

func coordinatorCommand() *cobra.Command {
	var c common
	cmd := &cobra.Command{Use: "coordinator", Short: "Serialises reservations of quota and assigns buckets, when it leads", Args: cobra.NoArgs}
	c.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p, err := c.process("coordinator")
		if err != nil {
			return err
		}
		return coordinator.Run(cmd.Context(), coordinator.Options{Process: *p})
	}
	return cmd
}

// process checks the flags and turns them into what a process is started with.
func (c *common) process(role string) (*process.Options, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	o := &process.Options{
		Role: role, Name: c.name, Kubeconfig: c.kubeconfig,
		Listen: c.listen, Gossip: c.gossip, GossipLabel: c.gossipLabel, Metrics: c.metrics, OTLP: c.otlp,
		Log: c.logger(role),
	}
	if c.tlsCA != "" {
		o.TLS = &link.TLS{CAFile: c.tlsCA, CertFile: c.tlsCert, KeyFile: c.tlsKey}
	}
	var err error
	if o.Etcd, err = c.endpoints(); err != nil {
		return nil, err
	}
	if o.EtcdTLS, err = c.etcdTLS(); err != nil {
		return nil, err
	}
	if o.GossipKey, err = c.gossipKey(); err != nil {
		return nil, err
	}
	if o.Address, err = c.address(c.listen); err != nil {
		return nil, err
	}
	if o.GossipAddress, err = c.address(c.gossip); err != nil {
		return nil, err
	}
	return o, nil
}
