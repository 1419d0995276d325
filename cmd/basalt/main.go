// Command basalt is everything that runs in production: `basalt shard`, `basalt coordinator`, `basalt certs`; what an
// operator needs: `basalt status`, `basalt drain`, `basalt config`, `basalt store`, `basalt audit`, `basalt migrate`,
// `basalt uninstall` and `basalt version`; and what every user does: `basalt why`, `basalt queue` and `basalt console`.
// What needs a kubeconfig alone is a command of kubectl as well when the program is also installed as kubectl-basalt.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/credentials"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit/follow"
	"basalt.dev/basalt/api/build"
	"basalt.dev/basalt/api/config"
	"basalt.dev/basalt/api/doors/migrate"
	"basalt.dev/basalt/api/gossip"
	"basalt.dev/basalt/api/link"
	"basalt.dev/basalt/api/page"
	"basalt.dev/basalt/api/process"
	"basalt.dev/basalt/api/store"
	coordinator "basalt.dev/basalt/coordinator/server"
	shard "basalt.dev/basalt/shard/server"
)

func main() {
	if len(os.Args) > 1 && (os.Args[1] == "shard" || os.Args[1] == "coordinator") {
		withSlack()
	}
	process.SetGC()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := rootCommand().ExecuteContext(ctx); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "basalt:", err)
		var coded interface{ ExitCode() int }
		if errors.As(err, &coded) {
			os.Exit(coded.ExitCode())
		}
		os.Exit(1)
	}
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "basalt",
		Short:         "A sharded batch scheduler for very large Kubernetes clusters",
		Version:       build.Current().String(), // of --version
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate("basalt {{.Version}}\n")
	root.AddCommand(shardCommand(), coordinatorCommand(), whyCommand(), queueCommand(), configCommand(), statusCommand(),
		drainCommand(), storeCommand(), certsCommand(), uninstallCommand(), follow.Command(), migrate.Command(),
		versionCommand(), consoleCommand())
	foldHelp(root)
	return root
}

// foldHelp has the help of a command, and of those below it, fit the terminal.
func foldHelp(root *cobra.Command) {
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		out := cmd.OutOrStdout()
		var b bytes.Buffer
		cmd.Long = page.Prose(cmd.Long)
		cmd.SetOut(&b)
		help(cmd, args)
		cmd.SetOut(out)
		_, _ = io.WriteString(out, page.Fold(b.String(), page.Width(out)))
	})
}

// common are the flags of both kinds of process.
type common struct {
	name, kubeconfig, etcd, listen, advertise, gossip, metrics string
	gossipKeyFile, gossipLabel, metricsTokenFile               string
	tlsCA, tlsCert, tlsKey                                     string
	etcdCA, etcdCert, etcdKey                                  string
	plain, verbose                                             bool

	configFile string
	config     config.Configuration // of the file and the flags; what is set by both is the flag's
	level      slog.LevelVar
	podEvents  atomic.Bool // they and level may change while the process runs
}

func (c *common) register(cmd *cobra.Command) {
	host, _ := os.Hostname()
	f := cmd.Flags()
	f.StringVar(&c.name, "name", host, "stable name of this process; a replacement uses the same name")
	f.StringVar(&c.configFile, "config", "", "configuration file, the same for all processes (see basalt config); it is read again while the process runs, and a flag that is given wins over it")
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file; if empty, the in-cluster configuration is used")
	f.StringVar(&c.etcd, "etcd", "", "comma-separated endpoints of the control store (an etcd for Basalt alone, never the API server's)")
	f.StringVar(&c.listen, "listen", ":7600", "address to listen on for gRPC")
	f.StringVar(&c.gossip, "gossip", ":7601", "address to listen on for gossip (memberlist), TCP and UDP")
	f.StringVar(&c.advertise, "advertise", "", "IP address to advertise to other processes; if empty, the host of --listen, or else the first address of this machine that is not loopback")
	f.StringVar(&c.metrics, "metrics", ":7602", "address to serve /livez, /readyz, /metrics and /debug/pprof on; if empty, they are not served")
	f.StringVar(&c.metricsTokenFile, "metrics-token-file", "", "file with the bearer token that /metrics and /debug/pprof require; if empty, they are served only on a loopback address")
	f.String("otlp", "", "OTLP gRPC endpoint for traces; if empty, tracing is off")
	f.StringVar(&c.gossipKeyFile, "gossip-key-file", "", "file with base64-encoded AES keys (16, 24 or 32 bytes), one per line: the first encrypts gossip, all of them decrypt it; reloaded every 5 s")
	c.registerTLS(cmd)
	f.StringVar(&c.gossipLabel, "gossip-label", "basalt", "label that separates the gossip of several installations on one network")
	f.BoolVarP(&c.verbose, "verbose", "v", false, "log at debug level")
}

// registerTLS registers the flags that `basalt status` has, too.
func (c *common) registerTLS(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.tlsCA, "tls-ca", "", "CA of the certificates of Basalt's processes; requires --tls-cert and --tls-key")
	f.StringVar(&c.tlsCert, "tls-cert", "", "certificate of this process (see basalt certs); all three files are reloaded for each handshake")
	f.StringVar(&c.tlsKey, "tls-key", "", "private key of --tls-cert")
	f.StringVar(&c.etcdCA, "etcd-ca", "", "CA of the control store; if this, --etcd-cert and --etcd-key are empty, the --tls-* files are used")
	f.StringVar(&c.etcdCert, "etcd-cert", "", "client certificate for the control store")
	f.StringVar(&c.etcdKey, "etcd-key", "", "private key of --etcd-cert")
	f.BoolVar(&c.plain, "insecure-plain-text", false, "allow unencrypted connections where no TLS files or gossip keys are given; anyone who can reach the control store or this process's ports then controls the cluster's pods")
}

func (c *common) endpoints() ([]string, error) {
	var out []string
	for _, e := range strings.Split(c.etcd, ",") {
		if e = strings.TrimSpace(e); e != "" {
			out = append(out, e)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("--etcd is required: the endpoints of the control store")
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
		return errors.New("--tls-ca, --tls-cert and --tls-key must be given together")
	}
	return nil
}

// checkEncrypted refuses to speak plain text where nobody asked for it.
func (c *common) checkEncrypted(gossip bool) error {
	if c.plain {
		return nil
	}
	var missing []string
	if c.tlsCA == "" {
		missing = append(missing, "--tls-ca, --tls-cert, --tls-key")
	}
	if ca, cert, _ := c.etcdFiles(); ca == "" || cert == "" {
		missing = append(missing, "--etcd-ca, --etcd-cert, --etcd-key")
	}
	if gossip && c.gossipKeyFile == "" {
		missing = append(missing, "--gossip-key-file")
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("connections would not be encrypted: give %s (basalt certs creates the files), or --insecure-plain-text", strings.Join(missing, "; "))
}

// etcdFiles returns the files for the control store: those of --etcd-ca, --etcd-cert and --etcd-key, else those for peers. With
// --insecure-plain-text a control store at http:// needs none.
func (c *common) etcdFiles() (ca, cert, key string) {
	if c.etcdCA != "" || c.etcdCert != "" || c.etcdKey != "" || c.plain && !strings.Contains(c.etcd, "https://") {
		return c.etcdCA, c.etcdCert, c.etcdKey
	}
	return c.tlsCA, c.tlsCert, c.tlsKey
}

func (c *common) logger(role string) *slog.Logger {
	options := &slog.HandlerOptions{Level: &c.level}
	var handler slog.Handler = slog.NewTextHandler(os.Stderr, options)
	if c.config.Log.Format == "json" {
		handler = slog.NewJSONHandler(os.Stderr, options)
	}
	return slog.New(handler).With("role", role, "name", c.name)
}

// checkGossipKeys reads the file once, so that what is wrong with it is said with the flag's name.
func (c *common) checkGossipKeys() error {
	if c.gossipKeyFile == "" {
		return nil
	}
	if _, err := gossip.ReadKeys(c.gossipKeyFile); err != nil {
		return fmt.Errorf("--gossip-key-file: %w", err)
	}
	return nil
}

func (c *common) etcdTLS(log *slog.Logger) (credentials.TransportCredentials, error) {
	endpoints, err := c.endpoints()
	if err != nil {
		return nil, err
	}
	ca, cert, key := c.etcdFiles()
	return store.ClientTLS(endpoints, ca, cert, key, log)
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
		return "", fmt.Errorf("cannot find an address of this machine, set --advertise: %w", err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			return n.IP.String(), nil
		}
	}
	return "", errors.New("this machine has only loopback addresses: set --advertise")
}

// registerShard registers the flags of shards that a configuration file can say, too.
func registerShard(cmd *cobra.Command) {
	cmd.Flags().StringSlice("scheduler-names", []string{api.SchedulerName}, "names in spec.schedulerName of the pods that Basalt places, the same at every shard; no other scheduler may serve one of them. With --volcano=write, names other than basalt count only while Basalt holds the Lease of Volcano's scheduler")
	cmd.Flags().String("volcano", "off", "Volcano's PodGroups, the same at every shard: off (their pods wait), observe (they are gangs here; the objects are read, never written) or write (also their statuses, while Basalt holds the Lease of Volcano's scheduler, volcano-system/volcano)")
	cmd.Flags().StringSlice("ignored-resources", nil, "resources that placement and quota ignore")
	cmd.Flags().String("placement", "pack", "pack (fill nodes), spread (use nodes evenly), least-allocated or most-allocated (by cpu and memory)")
	cmd.Flags().Bool("pod-events", false, "write an event on each pod that is bound, as kube-scheduler does: one more request to the API server for each pod")
}

func shardCommand() *cobra.Command {
	var c common
	var o shard.Options
	cmd := &cobra.Command{Use: "shard", Short: "Run a shard: schedule the gangs of its queues and bind pods to its nodes", Args: cobra.NoArgs}
	c.register(cmd)
	registerShard(cmd)
	cmd.Flags().StringVar(&o.Visibility, "visibility", "", "address to answer users' questions on (basalt why), such as :7603; with TLS by --tls-cert, and without TLS only on a loopback address; if empty, they are not answered")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p, err := c.process(cmd, "shard")
		if err != nil {
			return err
		}
		o.Process = *p
		o.Volcano, o.Schedulers, o.IgnoredResources, o.Policy, o.ImageLocality, o.PodEvents = string(c.config.Volcano), c.config.SchedulerNames, c.config.IgnoredResources, c.config.Placement, c.config.ImageLocality, &c.podEvents
		o.TopologyLevels, o.NodeTiers = c.config.TopologyLevels, c.config.NodeTiers
		c.follow(cmd, p.Log)
		return shard.Run(cmd.Context(), o)
	}
	return cmd
}

func coordinatorCommand() *cobra.Command {
	var c common
	var o coordinator.Options
	cmd := &cobra.Command{Use: "coordinator", Short: "Run a coordinator: admit gangs against quota and assign buckets to shards; one leads, the others stand by", Args: cobra.NoArgs}
	c.register(cmd)
	cmd.Flags().String("volcano", "off", "Volcano's Queues, as given to the shards: off, observe (a Queue of Basalt is made of each, and kept as it says; Volcano's are never written) or write (also their statuses, while Basalt holds the Lease of Volcano's scheduler)")
	gate := cmd.Flags().Bool("supply-gate", true, "admit no more than the nodes have, so that queues share nodes that no capability limits; without it, all that quota allows is admitted at once, and nodes go to whoever was admitted first")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p, err := c.process(cmd, "coordinator")
		if err != nil {
			return err
		}
		o.Process = *p
		o.Volcano = string(c.config.Volcano)
		o.Config.Ungated = !*gate
		c.follow(cmd, p.Log)
		return coordinator.Run(cmd.Context(), o)
	}
	return cmd
}

// process checks the flags and turns them into what a process is started with.
func (c *common) process(cmd *cobra.Command, role string) (*process.Options, error) {
	if err := c.configure(cmd); err != nil {
		return nil, err
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	o := &process.Options{
		Role: role, Name: c.name, Kubeconfig: c.kubeconfig,
		Listen: c.listen, Gossip: c.gossip, GossipKeyFile: c.gossipKeyFile, GossipLabel: c.gossipLabel,
		Metrics: c.metrics, MetricsTokenFile: c.metricsTokenFile, OTLP: c.config.OTLP, Config: c.inForce,
		Log: c.logger(role),
	}
	if c.tlsCA != "" {
		o.TLS = &link.TLS{CAFile: c.tlsCA, CertFile: c.tlsCert, KeyFile: c.tlsKey, Log: o.Log}
	}
	var err error
	if o.Etcd, err = c.endpoints(); err != nil {
		return nil, err
	}
	if err := c.checkEncrypted(true); err != nil {
		return nil, err
	}
	if o.EtcdTLS, err = c.etcdTLS(o.Log); err != nil {
		return nil, err
	}
	if err := c.checkGossipKeys(); err != nil {
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
