package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/deploy/uninstall"
)

// uninstallCommand takes out of a cluster what the removal of Basalt's manifests leaves there.
func uninstallCommand() *cobra.Command {
	var u user
	var o uninstall.Options
	cmd := &cobra.Command{Use: "uninstall", Args: cobra.NoArgs,
		Short: "After Basalt was removed, free its Queues, or delete them and all PodGroups; say what remains",
		Long: `After Basalt was removed ("kubectl delete -k deploy", "helm uninstall"), take its finalizer off all Queues,
which without a coordinator could never be deleted, and say what remains, with the commands that remove it.

Queues and PodGroups are kept, so that Basalt can be installed again. With --delete-objects all of them are deleted,
with their definitions. What runs is not touched in either case.

It can be interrupted and run again. It needs the rights of an administrator, and neither Basalt nor its ClusterRoles.`,
		Example: `  basalt uninstall
  basalt uninstall --save queues.yaml
  basalt uninstall --delete-objects --yes`}
	f := cmd.Flags()
	u.register(cmd, "unused")
	_, _ = f.MarkHidden("output"), f.MarkHidden("namespace")
	f.StringVar(&o.Namespace, "basalt-namespace", "basalt-system", "namespace that Basalt ran in")
	f.StringVar(&o.Save, "save", "",
		"before anything is done, write all Queues and PodGroups to this new file, for kubectl apply")
	f.BoolVar(&o.DeleteObjects, "delete-objects", false, "delete all Queues and PodGroups, and their definitions")
	f.BoolVar(&o.Yes, "yes", false, "really delete them")
	f.DurationVar(&o.Timeout, "timeout", 5*time.Minute, "how long to wait for what others have to end")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Yes && !o.DeleteObjects {
			return errors.New("--yes is for --delete-objects, which is not given")
		}
		config, _, err := u.config()
		if err != nil {
			return err
		}
		if err := uninstall.Run(cmd.Context(), config, o, cmd.OutOrStdout()); cmd.Context().Err() == nil {
			return err
		}
		return errors.New("interrupted: run it again")
	}
	return cmd
}
