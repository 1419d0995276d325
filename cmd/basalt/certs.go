package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"basalt.dev/basalt/api/certs/issue"
	"basalt.dev/basalt/api/metric"
	"basalt.dev/basalt/api/serve"
)

// certsAgain is the pause after an attempt that failed.
const certsAgain = 10 * time.Second

// certsCommand issues what processes need to trust each other.
func certsCommand() *cobra.Command {
	var o issue.Options
	var kubeconfig, dir string
	var every time.Duration
	var show serve.Options
	cmd := &cobra.Command{
		Use:   "certs",
		Short: "Create the CA, certificates, gossip key and metrics token of an installation, and renew certificates",
		Long: `Fills the Secrets of deploy/certs.yaml where they are empty, and renews certificates a month before they expire. It
never replaces a key, a token, or a certificate of another issuer. Processes read their files again, so nothing
restarts. The APIService of deploy/visibility.yaml, if there is one, is told the CA of the shards.

The CA that signs next is trusted from the beginning; --rotate-ca lets it sign now.`,
		Example: `  basalt certs --every=1h                        # in the cluster: deploy/certs.yaml
  basalt certs --dir=./secrets --host=127.0.0.1  # without one: a folder for each Secret`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file; if empty, the in-cluster configuration is used")
	f.StringVar(&o.Namespace, "namespace", cmp.Or(os.Getenv("POD_NAMESPACE"), "basalt-system"), "namespace of the Secrets and of the control store")
	f.StringVar(&dir, "dir", "", "write to subdirectories of this directory instead of Secrets")
	f.StringSliceVar(&o.Hosts, "host", nil, "additional DNS name or IP address of a control store member")
	f.DurationVar(&every, "every", 0, "keep running and check at this interval; 0 means run once")
	f.StringVar(&show.Address, "metrics", "", "with --every: address for /metrics, /livez and /readyz; empty: none")
	f.StringVar(&show.TokenFile, "metrics-token-file", "",
		"file with the bearer token that /metrics requires; if empty, it is served only on a loopback address")
	f.BoolVar(&o.RotateCA, "rotate-ca", false, "sign with the next CA from now on; the previous CA stays trusted for 90 days")
	f.BoolVar(&o.KeysOnly, "keys-only", false, "create only the gossip key and the metrics token; another issuer creates the certificates")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if every < 0 || every > 0 && o.RotateCA {
			return errors.New("--every must be positive, and cannot be combined with --rotate-ca")
		}
		if every == 0 && show.Address != "" {
			return errors.New("--metrics needs --every: metrics are of a process that keeps running")
		}
		store, err := certStore(kubeconfig, dir, &o)
		if err != nil {
			return err
		}
		k := keeper{store: store, options: o, every: every, log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
		return k.run(cmd.Context(), show)
	}
	return cmd
}

// certStore returns where Secrets are kept. In a cluster, the API server is told which CA shards have.
func certStore(kubeconfig, dir string, o *issue.Options) (issue.Store, error) {
	if dir != "" {
		return issue.Directory(dir), nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %q: %w", kubeconfig, err)
	}
	config.Timeout = 30 * time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %q: %w", kubeconfig, err)
	}
	o.Publish = issue.Publish(client.CoreV1().RESTClient())
	return issue.Kubernetes{Secrets: client.CoreV1().Secrets(o.Namespace)}, nil
}

// keeper checks the keys of an installation.
type keeper struct {
	store   issue.Store
	options issue.Options
	every   time.Duration // 0: once
	log     *slog.Logger

	last     atomic.Pointer[error] // of the last check, nil before the first
	checked  prometheus.Gauge      // nil without metrics, as the others
	failures prometheus.Counter
	expiry   *prometheus.GaugeVec
}

// run checks once, or again and again; then an error is logged, and the check is repeated.
func (k *keeper) run(ctx context.Context, show serve.Options) error {
	if k.every == 0 {
		return k.check(ctx)
	}
	if err := k.show(ctx, show); err != nil {
		return err
	}
	for {
		pause := k.every
		err := k.check(ctx)
		k.last.Store(&err)
		if err != nil {
			k.failures.Inc()
			k.log.Error("cannot update certificates, retrying", "error", err)
			pause = min(pause, certsAgain)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// check issues what has to be issued.
func (k *keeper) check(ctx context.Context) error {
	now := time.Now()
	changes, err := issue.Ensure(ctx, k.store, k.options, now)
	for _, c := range changes {
		k.log.Info("certs", "secret", c.Secret, "change", c.What)
	}
	if err != nil || k.checked == nil {
		return err
	}
	if !k.options.KeysOnly {
		expiries, err := issue.Expiries(ctx, k.store)
		if err != nil {
			return err
		}
		for secret, at := range expiries {
			k.expiry.WithLabelValues(secret).Set(float64(at.Unix()))
		}
	}
	k.checked.Set(float64(now.Unix()))
	return nil
}

// show serves metrics and probes.
func (k *keeper) show(ctx context.Context, o serve.Options) error {
	k.checked, k.failures = metric.CertsCheck.Gauge(), metric.CertsFailures.Counter()
	k.expiry = metric.CertificateExpiry.Gauges()
	if o.Registry == nil {
		o.Registry = serve.Registry()
	}
	o.Keys, o.Ready, o.Log = true, k.ready, k.log
	o.Registry.MustRegister(k.checked, k.failures, k.expiry)
	return serve.HTTP(ctx, o)
}

// ready returns nil if the last check succeeded.
func (k *keeper) ready() error {
	last := k.last.Load()
	if last == nil {
		return errors.New("checking for the first time")
	}
	return *last
}
