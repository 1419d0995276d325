package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"basalt.dev/basalt/api/page"
)

// TestHelpFits: no command's help is wider than a page, or loses a word of its flags.
func TestHelpFits(t *testing.T) {
	commands := rootCommand().Commands()
	for i := 0; i < len(commands); i++ {
		commands = append(commands, commands[i].Commands()...)
	}
	for _, found := range commands {
		path := strings.Fields(found.CommandPath())[1:]
		root := rootCommand()
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetArgs(append(path, "--help"))
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if utf8.RuneCountInString(strings.TrimRight(line, "\n")) > page.Widest {
				t.Errorf("%s: %s", path, line)
			}
		}
		words := strings.Join(strings.Fields(out.String()), " ")
		found.LocalFlags().VisitAll(func(f *pflag.Flag) {
			_, usage := pflag.UnquoteUsage(f)
			if text := strings.Join(strings.Fields(usage), " "); !f.Hidden &&
				(!strings.Contains(words, "--"+f.Name+" ") || !strings.Contains(words, text)) {
				t.Errorf("%s does not have --%s, %s:\n%s", path, f.Name, text, out.String())
			}
		})
	}
}
