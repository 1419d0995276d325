package local

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// An older program is started without the flags that it does not know.
func TestKnown(t *testing.T) {
	program := filepath.Join(t.TempDir(), "old")
	help := "#!/bin/sh\ntest \"$1 $2\" = 'shard --help' && echo '  --name string  a name\n  -v, --verbose  more'\n"
	if err := os.WriteFile(program, []byte(help), 0o700); err != nil {
		t.Fatal(err)
	}
	got, err := known(t.Context(), program, []string{"shard", "--name=a", "--names=b", "--insecure-plain-text", "--verbose"})
	if want := []string{"shard", "--name=a", "--verbose"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, want %q: %v", got, want, err)
	}
	if _, err := known(t.Context(), program, []string{"coordinator"}); err == nil {
		t.Error("a program that fails is believed")
	}
}

func TestOldNamesWhatIsMissing(t *testing.T) {
	if _, err := Old(t.Context(), t.TempDir(), "HEAD~1"); err == nil || !strings.Contains(err.Error(), "no commit HEAD~1") {
		t.Errorf("sources without history: %v", err)
	}
}
