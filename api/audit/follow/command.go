package follow

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/client-go/tools/clientcmd"

	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/store"
)

// Command is `basalt audit`: it prints violations as they are found, and a summary when it is ended. It fails if there were
// any.
func Command() *cobra.Command {
	var kubeconfig, etcd, prefix, ca, cert, key string
	var from int64
	var ignore []string
	cmd := &cobra.Command{
		Use: "audit", Short: "Checks from outside that nothing is broken: quotas, gangs, nodes, fences; reads only, until it is ended",
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file; empty: the cluster that this process runs in")
	f.StringVar(&etcd, "etcd", "", "endpoints of the control store, separated by commas")
	f.StringVar(&prefix, "prefix", "", "prefix of Basalt's keys in the control store")
	f.StringVar(&ca, "etcd-ca", "", "CA of the control store")
	f.StringVar(&cert, "etcd-cert", "", "client certificate for the control store")
	f.StringVar(&key, "etcd-key", "", "key of --etcd-cert")
	f.Int64Var(&from, "from-revision", 0, "first revision of the control store to judge; 0: from now on")
	f.StringSliceVar(&ignore, "ignored-resources", nil, "extended resources that placement does not look at")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if etcd == "" {
			return errors.New("--etcd is missing: the endpoints of the control store")
		}
		tlsConfig, err := store.ClientTLS(ca, cert, key)
		if err != nil {
			return err
		}
		kube, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return fmt.Errorf("--kubeconfig %q: %w", kubeconfig, err)
		}
		client, err := clientv3.New(clientv3.Config{
			Endpoints: strings.Split(etcd, ","), DialTimeout: 5 * time.Second, TLS: tlsConfig, Context: cmd.Context(), Logger: zap.NewNop(),
		})
		if err != nil {
			return fmt.Errorf("--etcd %s: %w", etcd, err)
		}
		defer client.Close()
		out := cmd.OutOrStdout()
		judge := audit.Config{Ignore: map[string]bool{}}
		for _, r := range ignore {
			judge.Ignore[r] = true
		}
		a, err := New(Options{
			Etcd: client, Kube: kube, Prefix: prefix, StartRevision: from, Judge: judge,
			Log:   slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)),
			Found: func(v audit.Violation) { fmt.Fprintln(out, v.Time.Format(time.RFC3339Nano), v) },
		})
		if err != nil {
			return err
		}
		if err := a.Run(cmd.Context()); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		r := a.Report()
		Summary(out, r)
		if n := r.Sum(); n > 0 {
			return fmt.Errorf("audit: %d violations", n)
		}
		return nil
	}
	return cmd
}

// Summary prints the counts of a report.
func Summary(out io.Writer, r audit.Report) {
	fmt.Fprintf(out, "judged up to revision %d: %d pods, %d gangs\n", r.Revision, r.Pods, r.Gangs)
	for _, k := range audit.Kinds {
		fmt.Fprintf(out, "  %-12s %d\n", k, r.Counts[k])
	}
}
