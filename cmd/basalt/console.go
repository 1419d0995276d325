package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api/visibility/console"
)

// Code is that of HTTP, for the console.
func (r refusal) Code() int { return r.code }

// consoleCommand serves pages to browsers: on this machine with the rights of the kubeconfig, or to whoever logs in.
func consoleCommand() *cobra.Command {
	var u user
	var e endpoint
	var o console.Options
	var cert, key string
	cmd := &cobra.Command{Use: "console", Args: cobra.NoArgs,
		Short: "Show gangs, queues and the cluster in a browser",
		Long: `Show gangs, queues and the cluster in a browser. Nothing can be changed there.

On your machine it prints a URL, which can be opened once, and shows what the kubeconfig allows to see.

With --log-in, as deploy/overlays/console runs it, each viewer logs in with a token of his own, and sees
what that allows.`,
		Example: `  basalt console
  kubectl basalt console -n research
  basalt console --listen=:7604 --log-in --tls-cert=tls.crt --tls-key=tls.key`}
	u.registerAccess(cmd)
	e.register(cmd)
	f := cmd.Flags()
	f.StringVar(&o.Address, "listen", "127.0.0.1:0", "address to listen on; others than of loopback need --log-in and "+
		"TLS; port 0 is any that is free")
	f.BoolVar(&o.LogIn, "log-in", false, "let each viewer log in with a bearer token, and see what its owner may see; "+
		"the kubeconfig, or the ServiceAccount, is used for the watches of PodGroups and Queues alone")
	f.StringVar(&cert, "tls-cert", "", "certificate to show to browsers; it is read again for each connection. While "+
		"there is no such file, one is made, which no browser knows")
	f.StringVar(&key, "tls-key", "", "private key of --tls-cert")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if (cert == "") != (key == "") {
			return errors.New("--tls-cert and --tls-key must be given together")
		}
		if cert != "" {
			made, err := console.SelfSigned(time.Now())
			if err != nil {
				return err
			}
			o.TLS = &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
				GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
					pair, err := tls.LoadX509KeyPair(cert, key)
					if errors.Is(err, os.ErrNotExist) {
						return made, nil
					}
					return &pair, err
				}}
		}
		config, namespace, err := u.config()
		if err != nil {
			return err
		}
		if o.Config = config; !o.LogIn {
			o.Namespace = namespace
		}
		o.Ask = func(ctx context.Context, config *rest.Config, path string, answer any) error {
			return e.call(ctx, config, http.MethodGet, path, answer)
		}
		o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("role", "console")
		url, err := console.Serve(cmd.Context(), o)
		if err != nil {
			return err
		}
		if fmt.Fprintln(cmd.OutOrStdout(), url); !o.LogIn {
			fmt.Fprintln(cmd.ErrOrStderr(), "Open this URL: it can be opened once, within ten minutes, and its browser then "+
				"has the rights of the kubeconfig until this command ends.")
		}
		<-cmd.Context().Done()
		return nil
	}
	return cmd
}
