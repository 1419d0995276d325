package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"basalt.dev/basalt/api/certs/issue"
)

// certsAgain is the pause after an attempt that failed.
const certsAgain = 10 * time.Second

// certsCommand issues what processes need to trust each other.
func certsCommand() *cobra.Command {
	var o issue.Options
	var kubeconfig, dir string
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "certs",
		Short: "Create the CA, certificates, gossip key and metrics token of an installation, and renew certificates",
		Long: `Fills the Secrets of deploy/certs.yaml where they are empty, and renews certificates a month before they expire. It
never replaces a key, a token, or a certificate of another issuer. Processes read their files again,
	so nothing restarts. The APIService of
deploy/visibility.yaml, if there is one, is told the CA of the shards.

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
	f.BoolVar(&o.RotateCA, "rotate-ca", false, "sign with the next CA from now on; the previous CA stays trusted for 90 days")
	f.BoolVar(&o.KeysOnly, "keys-only", false, "create only the gossip key and the metrics token; another issuer creates the certificates")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if every < 0 || every > 0 && o.RotateCA {
			return errors.New("--every must be positive, and cannot be combined with --rotate-ca")
		}
		store, err := certStore(kubeconfig, dir, &o)
		if err != nil {
			return err
		}
		return ensureCerts(cmd.Context(), store, o, every, slog.New(slog.NewTextHandler(os.Stderr, nil)))
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

// ensureCerts looks once, or again and again; then an error is logged and tried again.
func ensureCerts(ctx context.Context, store issue.Store, o issue.Options, every time.Duration, log *slog.Logger) error {
	for {
		changes, err := issue.Ensure(ctx, store, o, time.Now())
		for _, c := range changes {
			log.Info("certs", "secret", c.Secret, "change", c.What)
		}
		if every == 0 {
			return err
		}
		pause := every
		if err != nil {
			log.Error("cannot update certificates, retrying", "error", err)
			pause = min(pause, certsAgain)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}
