package console

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// axe-core is what finds faults of pages for people with impairments. It is fetched for the full run alone, by npm.
const (
	axeVersion = "4.14.1"
	axeSum     = "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745" // SHA-256 of the package
)

// axe returns the script, "" where it cannot be had; then the test says so.
func axe(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "npm", "pack", "--silent", "axe-core@"+axeVersion)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Logf("axe-core cannot be fetched, so nothing is said of it: %v: %s", err, out)
		return ""
	}
	packed, err := os.ReadFile(filepath.Join(dir, "axe-core-"+axeVersion+".tgz"))
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(packed); hex.EncodeToString(sum[:]) != axeSum {
		t.Fatalf("axe-core %s has the sum %x", axeVersion, sum)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	for files := tar.NewReader(unzipped); ; {
		file, err := files.Next()
		if errors.Is(err, io.EOF) {
			t.Fatal("axe-core has no axe.min.js")
		} else if err != nil {
			t.Fatal(err)
		}
		if file.Name == "package/axe.min.js" {
			text, err := io.ReadAll(files)
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
	}
}

// clean fails for each fault that axe-core finds in the page.
func (p *person) clean(script, what string) {
	p.t.Helper()
	if script == "" {
		return
	}
	p.value(script+"; 1", nil)
	var found json.RawMessage
	p.value(`axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.map(v => ({
		id: v.id, help: v.help, nodes: v.nodes.slice(0, 3).map(n => n.html.slice(0, 200) + ' ' +
			n.failureSummary)})))`, &found)
	var faults []struct {
		ID, Help string
		Nodes    []string
	}
	p.check(json.Unmarshal(found, &faults))
	for _, f := range faults {
		p.t.Errorf("%s: %s: %s\n%s", what, f.ID, f.Help, strings.Join(f.Nodes, "\n"))
	}
}
