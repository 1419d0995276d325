// Command build builds the named programs into bin/, those that the tests need if none is named. See package programs.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"basalt.dev/basalt/bench/stage/programs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	names := os.Args[1:]
	if len(names) == 0 {
		names = programs.Default
	}
	root, err := programs.Root()
	if err == nil {
		err = programs.Build(ctx, root, os.Stdout, names...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}
