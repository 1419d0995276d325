// Command basalt-bench runs Basalt on this machine: a local cluster that stays up, and the demo. It is a program for people
// who try or measure Basalt; the one that runs in production is basalt.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	root := &cobra.Command{
		Use:           "basalt-bench",
		Short:         "Run Basalt on a local Kubernetes control plane",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(
		clusterCommand(), soakCommand(), demoCommand(), engineCommand(), fairCommand(), kubeCommand(),
		failoverCommand(), restartCommand(),
		simCommand(), exploreCommand(), orderCommand(), claimsCommand(), chaosCommand(), hostileCommand(), mutantsCommand(),
		gaugeCommand(), testCommand(), upCommand(), downCommand(), holdCommand(),
	)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // who asks twice does not want to wait
	err := root.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}
