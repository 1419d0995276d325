package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/api/build"
)

// A command that would speak plain text says what is missing, unless it was told to.
func TestPlainTextIsAskedFor(t *testing.T) {
	peers := []string{"--tls-ca=/ca", "--tls-cert=/cert", "--tls-key=/key"}
	etcd := []string{"--etcd-ca=/ca", "--etcd-cert=/cert", "--etcd-key=/key"}
	const plain, secure, gossip, flag = "--etcd=http://127.0.0.1:1", "--etcd=https://127.0.0.1:1", "--gossip-key-file=/gossip", "--insecure-plain-text"
	both := []func() *cobra.Command{shardCommand, coordinatorCommand}
	for _, row := range []struct {
		what     string
		commands []func() *cobra.Command
		args     []string
		says     string
	}{
		{"nothing", both, []string{plain}, "not be encrypted: give --tls-ca, --tls-cert, --tls-key; --etcd-ca, --etcd-cert, --etcd-key; --gossip-key-file (basalt certs"},
		{"no gossip key", both, append([]string{secure}, peers...), "not be encrypted: give --gossip-key-file (basalt certs"},
		{"no files for peers", both, append([]string{secure, gossip}, etcd...), "not be encrypted: give --tls-ca, --tls-cert, --tls-key (basalt certs"},
		{"only the CA of the control store", both, append([]string{secure, gossip, "--etcd-ca=/ca"}, peers...), "not be encrypted: give --etcd-ca, --etcd-cert, --etcd-key (basalt certs"},
		{"the files for peers serve both", both, append([]string{secure, gossip}, peers...), "read certificate /cert"},
		{"a control store without encryption", both, append([]string{plain, gossip}, peers...), "would not be encrypted"},
		{"plain text", both, []string{plain, flag, "--advertise=127.0.0.1", gossip}, "--gossip-key-file: "}, // the next thing that is wrong
		{"status", []func() *cobra.Command{statusCommand}, []string{plain}, "not be encrypted: give --tls-ca, --tls-cert, --tls-key; --etcd-ca, --etcd-cert, --etcd-key (basalt certs"},
		{"status with files", []func() *cobra.Command{statusCommand}, append([]string{secure}, peers...), "read certificate /cert"},
	} {
		for _, command := range row.commands {
			cmd := command()
			cmd.SilenceUsage, cmd.SilenceErrors = true, true
			cmd.SetOut(io.Discard)
			cmd.SetArgs(row.args)
			if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("%s, %s: %v, want %q", cmd.Name(), row.what, err, row.says)
			}
		}
	}
}

func TestVersion(t *testing.T) {
	for _, row := range []struct{ args, says, fails string }{
		{args: "version", says: "basalt " + build.Current().String() + "\n"},
		{args: "--version", says: "basalt " + build.Current().String() + "\n"},
		{args: "version -o json", says: "{\n"},
		{args: "version -o yaml", fails: `--output "yaml" is neither text nor json`},
		{args: "version --short", fails: "unknown flag: --short"},
		{args: "version 1.2", fails: "unknown command"},
	} {
		root, out := rootCommand(), &bytes.Buffer{}
		root.SetOut(out)
		root.SetArgs(strings.Fields(row.args))
		err := root.ExecuteContext(t.Context())
		if row.fails != "" {
			if err == nil || !strings.Contains(err.Error(), row.fails) {
				t.Errorf("basalt %s: %v, want %q", row.args, err, row.fails)
			}
			continue
		}
		if err != nil || !strings.HasPrefix(out.String(), row.says) {
			t.Errorf("basalt %s: %q, %v", row.args, out, err)
		}
		var v build.Version
		if row.says == "{\n" && (json.Unmarshal(out.Bytes(), &v) != nil || v != build.Current()) {
			t.Errorf("basalt %s: %s", row.args, out)
		}
	}
}
