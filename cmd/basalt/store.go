package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/api/build"
	"basalt.dev/basalt/api/store"
)

// storeCommand has what an operator does with the control store.
func storeCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "store", Short: "Look at, save, defragment or empty the control store",
		Long: `Look at, save, defragment or empty the control store.

There is no restore. A lost store is replaced by an empty one: Basalt rebuilds what it needs from the bound pods. See
deploy/docs/store.md.`}
	cmd.AddCommand(
		maintain("status", "Show members, sizes, alarms and keys of the control store", cobra.NoArgs, storeStatus),
		maintain("save FILE", "Write a snapshot for diagnosis to FILE, and what it is of to FILE.json", cobra.ExactArgs(1), storeSave),
		maintain("defragment", "Give unused space back, one member after another; if the space alarm is raised, compact history first and disarm it", cobra.NoArgs, storeDefragment),
		storeForgetCommand())
	return cmd
}

type maintenance func(ctx context.Context, cmd *cobra.Command, m *store.Maintenance, args []string) error

func maintain(use, short string, args cobra.PositionalArgs, run maintenance) *cobra.Command {
	var c common
	cmd := &cobra.Command{Use: use, Short: short, Args: args}
	cmd.Flags().StringVar(&c.etcd, "etcd", "", "comma-separated endpoints of the control store, one for each member")
	c.registerTLS(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		endpoints, err := c.endpoints()
		if err != nil {
			return err
		}
		if err := c.checkEncrypted(false); err != nil {
			return err
		}
		tls, err := c.etcdTLS(slog.Default())
		if err != nil {
			return err
		}
		m, err := store.Maintain(store.Options{Endpoints: endpoints, TLS: tls})
		if err != nil {
			return err
		}
		defer m.Close()
		return run(cmd.Context(), cmd, m, args)
	}
	return cmd
}

func storeStatus(ctx context.Context, cmd *cobra.Command, m *store.Maintenance, _ []string) error {
	members, err := m.Members(ctx)
	if err != nil {
		return err
	}
	counts, err := m.Keys(ctx)
	if err != nil && !errors.Is(err, store.ErrNotOurs) {
		return err
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MEMBER\tETCD\tSIZE\tIN USE\tQUOTA\tSTATE")
	for _, e := range members {
		state := "follows"
		if e.Leads {
			state = "leads"
		}
		if len(e.Alarms) > 0 {
			state += ", alarm " + strings.Join(e.Alarms, ", ")
		}
		if e.Err != nil {
			fmt.Fprintf(w, "%s\t\t\t\t\tdoes not answer: %v\n", e.Name, e.Err)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", e.Name, e.Version, mebibytes(e.Bytes), mebibytes(e.InUse), mebibytes(e.Quota), state)
	}
	fmt.Fprintln(w, "\nKEYS\tCOUNT")
	for _, kind := range store.Kinds {
		fmt.Fprintf(w, "%s\t%d\n", kind, counts[kind])
	}
	if err != nil {
		fmt.Fprintf(w, "\n%v\n", err)
	}
	return w.Flush()
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// storeSave writes beside and renames: half a snapshot is never found under the name.
func storeSave(ctx context.Context, cmd *cobra.Command, m *store.Maintenance, args []string) error {
	f, err := os.OpenFile(args[0]+".part", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	saved, err := m.Save(ctx, f)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return err
	}
	about, err := json.MarshalIndent(struct {
		store.Snapshot
		Saved  time.Time     `json:"saved"`
		Basalt build.Version `json:"basalt"`
	}{saved, time.Now().UTC(), build.Current()}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(args[0]+".json", append(about, '\n'), 0o600); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), args[0]); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "saved revision %d, %s, to %s; it is for diagnosis: to replace a lost store, start an empty one\n", saved.Revision, mebibytes(saved.Bytes), args[0])
	return nil
}

func storeDefragment(ctx context.Context, cmd *cobra.Command, m *store.Maintenance, _ []string) error {
	return m.Defragment(ctx, func(before, after store.StoreMember) {
		fmt.Fprintf(cmd.OutOrStdout(), "member %s: %s, was %s\n", after.Name, mebibytes(after.Bytes), mebibytes(before.Bytes))
	})
}

func storeForgetCommand() *cobra.Command {
	var yes bool
	cmd := maintain("forget", "Empty the control store, so that Basalt rebuilds it from the bound pods", cobra.NoArgs, func(ctx context.Context, cmd *cobra.Command, m *store.Maintenance, _ []string) error {
		if !yes {
			return errors.New("this deletes all reservations; Basalt charges what is bound again, and admits nothing meanwhile: give --yes")
		}
		counts, err := m.Forget(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(),
			"forgotten: reservations %d, limits of queues %d; kept until they are resolved: intents %d\n",
			counts["reservations"], counts["queues"], counts["intents"])
		return nil
	})
	cmd.Long = `Empty the control store, so that Basalt rebuilds it from the bound pods.

For a store that was restored from a snapshot, that has the records of another cluster, or that a newer version of Basalt wrote.
Running pods are not touched. Running processes start over by themselves. Nothing is admitted until all that is bound is charged.`
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}
