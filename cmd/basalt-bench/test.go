package main

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/bench/prove/suite"
	"basalt.dev/basalt/bench/stage/programs"
)

func testCommand() *cobra.Command {
	o := suite.Options{Out: os.Stdout}
	c := &cobra.Command{
		Use:   "test [PACKAGE]... [-- FLAGS OF GO TEST]",
		Short: "Run the tests: several packages at a time, with a table of the slowest",
		RunE: func(c *cobra.Command, args []string) (err error) {
			if o.Root, err = programs.Root(); err != nil {
				return err
			}
			o.Packages = args
			if dash := c.ArgsLenAtDash(); dash >= 0 {
				o.Packages, o.Flags = args[:dash], args[dash:]
			}
			if err := programs.Build(c.Context(), o.Root, o.Out, programs.Default...); err != nil {
				return err
			}
			if err := os.Setenv(programs.Built, strings.Join(programs.Default, " ")); err != nil {
				return err
			}
			o.Keep = filepath.Join(o.Root, "bin", "test")
			return suite.Run(c.Context(), o)
		},
	}
	c.Flags().BoolVar(&o.Full, "full", false, "run everything in full, as `make nightly` does")
	c.Flags().BoolVar(&o.Rest, "rest", false, "run the packages whose turn it is not today")
	c.Flags().DurationVar(&o.Timeout, "timeout", 30*time.Minute, "how long one package may take before it is stopped")
	return c
}
