package migrate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"basalt.dev/basalt/api/page"
)

// InUse is the error of a check that found something in use which is refused.
type InUse struct{ Rows int }

func (e InUse) Error() string { return fmt.Sprintf("migrate: %d rows are refused", e.Rows) }

// ExitCode is 2: 1 is for a check that could not read something.
func (InUse) ExitCode() int { return 2 }

type command struct {
	kubeconfig, file, configMap string
	schedulers, levels          []string
	json                        bool
}

// Command is `basalt migrate`.
func Command() *cobra.Command {
	var c command
	cmd := &cobra.Command{
		Use: "migrate", Short: "Say what becomes of a cluster's Volcano objects under Basalt; read-only", Args: cobra.NoArgs,
		Long: `Reads Volcano's Queues, PodGroups and Jobs, the pods of its scheduler, and the scheduler's configuration. It writes nothing.
It needs the right to list these, or a file with what kubectl has printed:
  kubectl get queues.scheduling.volcano.sh,podgroups.scheduling.volcano.sh,jobs.batch.volcano.sh,pods -A -o yaml > dump.yaml`,
	}
	f := cmd.PersistentFlags()
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file; if empty, the one that kubectl takes, or the in-cluster configuration")
	f.StringVarP(&c.file, "filename", "f", "", "file with objects as kubectl prints them, to be read instead of a cluster; - for standard input")
	f.StringVar(&c.configMap, "config-map", "volcano-system/volcano-scheduler-configmap", "namespace and name of the ConfigMap with the configuration of Volcano's scheduler")
	f.StringSliceVar(&c.schedulers, "scheduler-names", []string{"volcano"}, "names in spec.schedulerName of the pods that Basalt is to place")
	check := &cobra.Command{
		Use: "check", Short: "List what is in use: refused, ignored, honoured", Args: cobra.NoArgs,
		Long: `Lists what the objects use, with the number of objects and the first of them.

Exit code: 0 if nothing in use is refused, 2 if something is, 1 if something could not be read.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.check(cmd) },
	}
	check.Flags().StringSliceVar(&c.levels, "topology-levels", nil, "topologyLevels in the configuration of Basalt: labels of nodes that stand for tiers of HyperNodes, the largest first")
	check.Flags().BoolVar(&c.json, "json", false, "print one JSON object per row")
	cmd.AddCommand(check)
	return cmd
}

func (c *command) read(cmd *cobra.Command) (*Objects, error) {
	switch c.file {
	case "":
	case "-":
		o, err := ReadFile(cmd.InOrStdin())
		if err != nil {
			err = fmt.Errorf("read standard input: %w", err)
		}
		return o, err
	default:
		f, err := os.Open(c.file)
		if err != nil {
			return nil, fmt.Errorf("--filename: %w", err)
		}
		defer f.Close()
		o, err := ReadFile(f)
		if err != nil {
			err = fmt.Errorf("read %s: %w", c.file, err)
		}
		return o, err
	}
	namespace, configMap, ok := strings.Cut(c.configMap, "/")
	if !ok || namespace == "" || configMap == "" {
		return nil, fmt.Errorf("--config-map=%s: want NAMESPACE/NAME", c.configMap)
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return ReadCluster(cmd.Context(), client, configMap, namespace)
}

func (c *command) check(cmd *cobra.Command) error {
	o, err := c.read(cmd)
	if err != nil {
		return err
	}
	rows := Check(o, c.schedulers, c.levels)
	refused := 0
	for _, row := range rows {
		if row.Verdict == Refused {
			refused++
		}
	}
	if err := c.print(cmd.OutOrStdout(), rows); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	if refused > 0 {
		return InUse{refused}
	}
	return nil
}

func (c *command) print(out io.Writer, rows []Row) error {
	if c.json {
		e := json.NewEncoder(out)
		for _, row := range rows {
			if err := e.Encode(row); err != nil {
				return err
			}
		}
		return nil
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(out, "nothing of Volcano's is in use")
		return err
	}
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	_, err := fmt.Fprintln(t, "VERDICT\tOBJECTS\tFIRST\tWHAT IS IN USE, AND WHAT BASALT DOES")
	for _, row := range rows {
		what := row.What
		if row.Note != "" {
			what += ": " + row.Note
		}
		_, e := fmt.Fprintf(t, "%s\t%d\t%s\t%s\n", row.Verdict, row.Count, row.First, what)
		err = errors.Join(err, e)
	}
	err = errors.Join(err, t.Flush())
	_, e := io.WriteString(out, page.Fold(b.String(), page.Width(out)))
	return errors.Join(err, e)
}
