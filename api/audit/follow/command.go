package follow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"k8s.io/client-go/tools/clientcmd"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/certs"
	"basalt.dev/basalt/api/config"
	"basalt.dev/basalt/api/serve"
	"basalt.dev/basalt/api/store"
)

// Violated is the error of an audit that found something.
type Violated struct{ Violations int }

func (v Violated) Error() string { return fmt.Sprintf("audit: %d violations", v.Violations) }

// ExitCode is 2: 1 is for an audit that could not judge, or not everything.
func (Violated) ExitCode() int { return 2 }

// firstSight is how long reading everything once may take.
const firstSight = 2 * time.Minute

// Command is `basalt audit`.
func Command() *cobra.Command {
	var c command
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Check from outside that quotas, gangs, nodes and fences hold; read-only",
		Long: `Watches the control store and the API server and checks the invariants at every revision. It writes nothing. Each violation
is printed once, with the revisions that prove it; a summary follows at the end (Ctrl-C, or after --for).

Exit code: 0 if there were no violations, 2 if there were, 1 if it could not check, or not all the time (the reason is printed).

It needs the rights of the ClusterRole basalt-audit (deploy/rbac.yaml), and to read the control store.`,
		Example: `  basalt audit --etcd=https://basalt-etcd:2379 --etcd-ca=ca.crt --etcd-cert=tls.crt --etcd-key=tls.key
  basalt audit --insecure-plain-text --etcd=http://127.0.0.1:2379 --kubeconfig=admin.conf --for=10m --json   # in CI`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file; if empty, the in-cluster configuration is used")
	f.StringVar(&c.etcd, "etcd", "", "comma-separated endpoints of the control store")
	f.StringVar(&c.prefix, "prefix", "", "prefix of Basalt's keys in the control store")
	f.StringVar(&c.ca, "etcd-ca", "", "CA of the control store; it, --etcd-cert and --etcd-key are reloaded for each handshake")
	f.StringVar(&c.cert, "etcd-cert", "", "client certificate for the control store")
	f.StringVar(&c.key, "etcd-key", "", "private key of --etcd-cert")
	f.BoolVar(&c.plain, "insecure-plain-text", false, "allow an unencrypted connection to the control store if no TLS files are given")
	f.Int64Var(&c.from, "from-revision", 0, "first control store revision to check; 0 means now. If it was compacted, the check starts at the oldest revision available")
	f.DurationVar(&c.duration, "for", 0, "stop after this time, counted from the end of the initial read; 0 means never")
	f.BoolVar(&c.json, "json", false, "print one JSON object per line: each violation, then a summary")
	f.DurationVar(&c.judge.Grace, "grace", 30*time.Second, "how long a gang may be partly bound, a reservation may have no pods, and a bound pod may have no reservation")
	f.DurationVar(&c.judge.Unresolved, "unresolved", time.Minute, "how long an intent may remain unresolved")
	f.StringVar(&c.configFile, "config", "", "the configuration file that shards and coordinators are given; schedulerNames, volcano and ignoredResources count here")
	f.StringSliceVar(&c.judge.Schedulers, "scheduler-names", []string{api.SchedulerName}, "names in spec.schedulerName of the pods that Basalt places, as given to the shards")
	f.StringVar(&c.volcano, "volcano", "off", "off, observe or write, as given to the shards")
	f.StringSliceVar(&c.ignored, "ignored-resources", nil, "resources that placement ignores, as given to the shards")
	f.StringVar(&c.metrics, "metrics", "", "address for /metrics, /livez, /readyz and /debug/pprof; empty: none")
	f.StringVar(&c.metricsTokenFile, "metrics-token-file", "", "file with the bearer token that /metrics and /debug/pprof require; if empty, they are served only on a loopback address")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := c.configure(f.Changed); err != nil {
			return err
		}
		return c.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}

type command struct {
	kubeconfig, etcd, prefix, ca, cert, key string
	from                                    int64
	duration                                time.Duration
	plain, json                             bool
	judge                                   audit.Config
	ignored                                 []string
	metrics, metricsTokenFile, volcano      string
	configFile                              string
}

// configure takes from the configuration file what no flag says.
func (c *command) configure(given func(flag string) bool) error {
	if c.configFile == "" {
		return nil
	}
	file, err := config.Read(c.configFile)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	if !given("scheduler-names") {
		c.judge.Schedulers = file.SchedulerNames
	}
	if !given("volcano") {
		c.volcano = string(file.Volcano)
	}
	if !given("ignored-resources") {
		c.ignored = file.IgnoredResources
	}
	return nil
}

func (c *command) run(ctx context.Context, out, errOut io.Writer) error {
	switch {
	case c.etcd == "":
		return errors.New("--etcd is required: the endpoints of the control store")
	case !c.plain && (c.ca == "" || c.cert == "" || c.key == ""):
		return errors.New("the connection would not be encrypted: give --etcd-ca, --etcd-cert, --etcd-key (basalt certs creates the files), or --insecure-plain-text")
	case c.from < 0:
		return fmt.Errorf("--from-revision %d: revisions begin with 1", c.from)
	case c.duration < 0 || c.judge.Grace < 0 || c.judge.Unresolved < 0:
		return errors.New("--for, --grace and --unresolved cannot be negative")
	}
	if err := api.CheckVolcano(c.volcano); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(errOut, nil))
	endpoints := strings.Split(c.etcd, ",")
	tls, err := store.ClientTLS(endpoints, c.ca, c.cert, c.key, log)
	if err != nil {
		return err
	}
	kube, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig %q: %w", c.kubeconfig, err)
	}
	options := []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{ // gRPC's own longest pause is two minutes
		Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}, MinConnectTimeout: 3 * time.Second,
	})}
	if tls != nil {
		options = append(options, grpc.WithTransportCredentials(tls))
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, DialTimeout: 5 * time.Second, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		DialOptions: options, Logger: zap.NewNop(),
	})
	if err != nil {
		return fmt.Errorf("--etcd %s: %w", c.etcd, err)
	}
	defer client.Close()
	c.judge.Volcano = c.volcano != "off"
	c.judge.Ignore = map[string]bool{}
	for _, r := range c.ignored {
		c.judge.Ignore[r] = true
	}
	registry := serve.Registry()
	registry.MustRegister(certs.Expiries{"control_store": tls})
	a, err := New(Options{
		Etcd: client, Kube: kube, Prefix: c.prefix, StartRevision: c.from, Judge: c.judge, Log: log, Registry: registry,
		Found: func(v audit.Violation) { c.print(out, v) },
	})
	if err != nil {
		return err
	}
	ready := func() error {
		select {
		case <-a.Seen():
			return nil
		default:
			return errors.New("reading the control store and the cluster for the first time")
		}
	}
	if err := serve.HTTP(ctx, serve.Options{Address: c.metrics, TokenFile: c.metricsTokenFile, Registry: registry, Ready: ready, Log: log}); err != nil {
		return err
	}
	if c.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		go c.end(ctx, cancel, a.Seen())
	}
	began := time.Now()
	if err := a.Run(ctx); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return c.conclude(out, a, ready(), time.Since(began))
}

// end ends the audit some time after everything was seen, or when that takes too long.
func (c *command) end(ctx context.Context, cancel func(), seen <-chan struct{}) {
	defer cancel()
	select {
	case <-seen:
	case <-time.After(firstSight):
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-time.After(c.duration):
	case <-ctx.Done():
	}
}

func (c *command) print(out io.Writer, v audit.Violation) {
	if !c.json {
		fmt.Fprintln(out, v.Time.Format(time.RFC3339Nano), "VIOLATION", v)
		return
	}
	line, _ := json.Marshal(struct { // strings and numbers: it cannot fail
		Time      time.Time  `json:"time"`
		Kind      audit.Kind `json:"kind"`
		Object    string     `json:"object"`
		Message   string     `json:"message"`
		Revisions []int64    `json:"revisions,omitempty"`
		Versions  []string   `json:"resourceVersions,omitempty"`
	}{v.Time, v.Kind, v.Object, v.Message, v.Revisions, v.Versions})
	fmt.Fprintln(out, string(line))
}

// conclude prints the summary and says how it ended.
func (c *command) conclude(out io.Writer, a *Auditor, unread error, took time.Duration) error {
	r, sight := a.Report(), a.Sight()
	if c.json {
		line, _ := json.Marshal(struct {
			Summary    bool               `json:"summary"`
			From       int64              `json:"fromRevision"`
			Revision   int64              `json:"revision"`
			Pods       int                `json:"pods"`
			Gangs      int                `json:"gangs"`
			Intents    int                `json:"intents"`
			Violations map[audit.Kind]int `json:"violations"`
			Standing   map[string]int     `json:"standing"`
			Gaps       int                `json:"gaps"`
			Blind      float64            `json:"blindSeconds"`
			Seconds    float64            `json:"seconds"`
		}{true, sight.From, r.Revision, r.Pods, r.Gangs, r.Intents, r.Counts, r.Standing, sight.Gaps, sight.Blind.Seconds(), took.Seconds()})
		fmt.Fprintln(out, string(line))
	} else {
		fmt.Fprintf(out, "judged revisions %d to %d in %s: %d pods, %d gangs, %d intents at the end\n", sight.From, r.Revision, took.Round(time.Second), r.Pods, r.Gangs, r.Intents)
		if sight.Gaps > 0 || sight.Blind > 0 {
			fmt.Fprintf(out, "not all was seen: %d gaps in the revisions, %s without the control store or the API server\n", sight.Gaps, sight.Blind.Round(100*time.Millisecond))
		}
		Summary(out, r)
	}
	switch n := r.Sum(); {
	case n > 0:
		return Violated{n}
	case unread != nil:
		return errors.New("audit: it ended before everything was read once: the control store, the API server, or the rights to list what it needs, see above")
	case sight.Gaps > 0:
		return fmt.Errorf("audit: no violations, but %d gaps: revisions were compacted, or the store replaced, before they were judged", sight.Gaps)
	}
	return nil
}

// Summary prints the counts of a report: objects concerned, and, of what may pass, how many still are.
func Summary(out io.Writer, r audit.Report) {
	for _, k := range audit.Kinds {
		fmt.Fprintf(out, "  %-12s %d", k, r.Counts[k])
		if n := r.StandingOf(k); n > 0 {
			fmt.Fprintf(out, " (%d still)", n)
		}
		fmt.Fprintln(out)
	}
	if r.Sum() == 0 {
		fmt.Fprintln(out, "no violations")
	}
}
