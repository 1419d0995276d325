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
		Short: "Makes the CA, certificates, gossip key and metrics token of an installation, and renews certificates",
		Long: `Fills the Secrets of deploy/certs.yaml where they are empty, and renews certificates a month before they expire. It
never replaces a key, a token, or a certificate of another issuer. Processes read their files again, so nothing restarts.

The CA that signs next is trusted from the beginning; --rotate-ca lets it sign now.`,
		Example: `  basalt certs --every=1h                        # in the cluster: deploy/certs.yaml
  basalt certs --dir=./secrets --host=127.0.0.1  # without one: a folder for each Secret`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file; empty: the cluster that this process runs in")
	f.StringVar(&o.Namespace, "namespace", cmp.Or(os.Getenv("POD_NAMESPACE"), "basalt-system"), "namespace of the Secrets and of the control store")
	f.StringVar(&dir, "dir", "", "write to folders in this one instead of Secrets")
	f.StringSliceVar(&o.Hosts, "host", nil, "further DNS name or IP address of a member of the control store")
	f.DurationVar(&every, "every", 0, "go on, and look again after each such time; 0: once")
	f.BoolVar(&o.RotateCA, "rotate-ca", false, "let the next CA sign from now on; the one before stays trusted for 90 days")
	f.BoolVar(&o.KeysOnly, "keys-only", false, "only the gossip key and the metrics token: another issuer makes the certificates")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if every < 0 || every > 0 && o.RotateCA {
			return errors.New("--every must be above zero, and --rotate-ca is for one run")
		}
		store, err := certStore(kubeconfig, dir, o.Namespace)
		if err != nil {
			return err
		}
		return ensureCerts(cmd.Context(), store, o, every, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	}
	return cmd
}

func certStore(kubeconfig, dir, namespace string) (issue.Store, error) {
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
	return issue.Kubernetes{Secrets: client.CoreV1().Secrets(namespace)}, nil
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
			log.Error("certs: trying again", "error", err)
			pause = min(pause, certsAgain)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}
