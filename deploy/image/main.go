// Command image builds Basalt's container image for each platform, without Docker and without a base image: an OCI layout, the same as
// one archive, and an SPDX document for each platform. `make image` runs it. With --release, as `make release` runs it,
// it builds a whole release: programs, image, chart.
//
// The result is a function of the commit and the Go version alone: two builds have one digest, whatever the folder, user, umask or time
// zone. So nothing of the machine is read, apart from the sources, the modules that go.sum names, and the Go toolchain.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "image:", err)
		}
		os.Exit(1)
	}
}

// platforms are what Basalt is built for, and in which order images are listed.
var platforms = []string{"linux/amd64", "linux/arm64"}

func run(ctx context.Context, args []string, out, warnings io.Writer) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.SetOutput(warnings)
	root := flags.String("root", "../..", "folder of Basalt's sources")
	output := flags.String("output", "../../bin/image", "folder for the result; one that holds anything else is left alone")
	wanted := flags.String("platforms", strings.Join(platforms, ","), "platforms, separated by commas")
	called := flags.String("name", "", "name and tag of the image for tools that import the archive, such as basalt:dev")
	chart := flags.String("chart", "", "write the archive of the Helm chart into this folder, and nothing else")
	var o releaseOptions
	flags.StringVar(&o.version, "release", "", "build the release of this version, such as v0.1.0, into the folder")
	flags.StringVar(&o.url, "url", "https://basalt.dev/releases",
		"of a release: the address below which VERSION/FILE is downloaded")
	flags.StringVar(&o.programs, "programs", strings.Join(programPlatforms, ","),
		"of a release: platforms of the programs")
	flags.BoolVar(&o.dirty, "dirty", false, "of a release: allow files that differ from the commit")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	targets, err := parsePlatforms(*wanted)
	if err != nil {
		return err
	}
	var as *name.Tag
	if *called != "" {
		tag, err := name.NewTag(*called, name.WithDefaultTag(""))
		if err != nil || tag.TagStr() == "" || strings.Contains(*called, "//") {
			return fmt.Errorf("--name %q is not a name and a tag, such as basalt:dev (%v)", *called, err)
		}
		as = &tag
	}
	src, err := readSource(ctx, *root, warnings)
	if err != nil {
		return err
	}
	if *chart != "" {
		to, err := writeChart(src, "", *chart)
		if err == nil {
			fmt.Fprintln(out, to)
		}
		return err
	}
	if o.version != "" {
		return release(ctx, src, o, targets, as, *output, out)
	}
	made, err := buildAll(ctx, src, targets, as, *output)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %s\n", *output, src.version)
	if as != nil {
		fmt.Fprintf(out, "  called %s\n", as)
	}
	for _, i := range made.images {
		fmt.Fprintf(out, "  %-12s %5.1f MB, compressed %5.1f MB; %s\n",
			i.platform, mega(i.unpacked), mega(i.compressed), sbomName(i.platform))
	}
	fmt.Fprintf(out, "  %s\n", made.digest)
	return nil
}

// parsePlatforms returns platforms in the order of the table, whatever the order that they are named in.
func parsePlatforms(text string) ([]v1.Platform, error) {
	named := strings.Split(text, ",")
	for _, n := range named {
		if !slices.Contains(platforms, n) {
			return nil, fmt.Errorf("there is no image for the platform %q, only for %s", n, strings.Join(platforms, " and "))
		}
	}
	var out []v1.Platform
	for _, p := range platforms {
		if slices.Contains(named, p) {
			system, architecture, _ := strings.Cut(p, "/")
			out = append(out, v1.Platform{OS: system, Architecture: architecture})
		}
	}
	return out, nil
}

// built is the image of all platforms.
type built struct {
	images []*image
	digest v1.Hash // of the index
}

// buildAll builds the image of all platforms into a folder.
func buildAll(
	ctx context.Context, src *source, targets []v1.Platform, as *name.Tag, output string,
) (built, error) {
	var b built
	mark := filepath.Join(layoutName, "oci-layout")
	err := replace(output, mark, "an image of an earlier build", func(next string) error {
		for _, p := range targets {
			i, err := buildImage(ctx, src, p, next)
			if err != nil {
				return fmt.Errorf("build the image for %s: %w", p, err)
			}
			b.images = append(b.images, i)
		}
		digest, err := writeLayout(src, b.images, as, filepath.Join(next, layoutName))
		if err == nil && as != nil {
			err = writeManifest(b.images[0], as, filepath.Join(next, layoutName))
		}
		if err != nil {
			return fmt.Errorf("write the OCI layout: %w", err)
		}
		b.digest = digest
		if err := writeArchive(src, filepath.Join(next, layoutName), filepath.Join(next, archiveName)); err != nil {
			return fmt.Errorf("write the OCI archive: %w", err)
		}
		return nil
	})
	return b, err
}

// replace has write fill a folder beside output, which takes the place of output when it is complete: half a result
// is never found there. An output that holds anything but an earlier result, which has the file mark, is left alone.
func replace(output, mark, earlier string, write func(next string) error) error {
	if err := checkReplaceable(output, mark, earlier); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
		return err
	}
	next, err := os.MkdirTemp(filepath.Dir(output), "."+filepath.Base(output)+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(next)
	if err := write(next); err != nil {
		return err
	}
	if err := os.Chmod(next, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(output); err != nil {
		return err
	}
	return os.Rename(next, output)
}

func mega(bytes int64) float64 { return float64(bytes) / 1e6 }

// checkReplaceable returns an error for a folder that a mistyped --output must not remove.
func checkReplaceable(output, mark, earlier string) error {
	entries, err := os.ReadDir(output)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(output, mark)); err != nil {
		return fmt.Errorf("%s holds something else than %s", output, earlier)
	}
	return nil
}
