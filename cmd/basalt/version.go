package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/api/build"
)

// versionCommand prints what this program was built from.
func versionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{Use: "version", Short: "Print the tag and commit that this program was built from, the Go version and the platform", Args: cobra.NoArgs}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch output {
		case "text":
			fmt.Fprintln(cmd.OutOrStdout(), "basalt", build.Current())
			return nil
		case "json":
			e := json.NewEncoder(cmd.OutOrStdout())
			e.SetIndent("", "  ")
			return e.Encode(build.Current())
		}
		return fmt.Errorf("--output %q is neither text nor json", output)
	}
	return cmd
}
