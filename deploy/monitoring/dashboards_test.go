package monitoring

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the dashboards")

// The files are what this package makes, and no others are there. Whether their queries are right, folder check tests.
func TestDashboards(t *testing.T) {
	all := Dashboards()
	for _, d := range all {
		text, err := d.JSON()
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("dashboards", d.File+".json")
		if *rewrite {
			if err := os.WriteFile(file, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if is, err := os.ReadFile(file); err != nil || !bytes.Equal(is, text) {
			t.Errorf("%s is out of date; run go test ./deploy/monitoring -rewrite (%v)", file, err)
		}
	}
	if files, _ := filepath.Glob("dashboards/*"); len(files) != len(all) {
		t.Errorf("there are %d files of %d dashboards", len(files), len(all))
	}
}
