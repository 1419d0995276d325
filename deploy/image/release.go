package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"basalt.dev/basalt/api/build"
)

// programPlatforms are what programs are built for: users type on other machines than the cluster's.
var programPlatforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64"}

// releaseOptions say what is released.
type releaseOptions struct {
	version, url, programs string
	dirty                  bool
}

// sums is the file that every release has.
const sums = "SHA256SUMS"

var (
	versionFormat = regexp.MustCompile(`^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?$`)
	chartVersion  = regexp.MustCompile(`(?m)^version: .*$`)
	appVersion    = regexp.MustCompile(`(?m)^appVersion: .*$`)
)

// release builds a release into a folder: archives of the programs, the krew manifest of the plugin for kubectl, the
// image, the chart, SPDX documents, notes and sums. It pushes nothing and makes no tag: it prints the commands that do.
func release(
	ctx context.Context, src *source, o releaseOptions, images []v1.Platform, as *name.Tag, output string, out io.Writer,
) error {
	notes, err := src.prepare(ctx, o)
	if err != nil {
		return err
	}
	targets, err := o.targets()
	if err != nil {
		return err
	}
	if as == nil {
		tag, err := name.NewTag("basalt:" + o.version)
		if err != nil {
			return err
		}
		as = &tag
	}
	err = replace(output, sums, "an earlier release", func(next string) error {
		made, err := buildAll(ctx, src, images, as, filepath.Join(next, "image"))
		if err != nil {
			return err
		}
		if err := takeImage(filepath.Join(next, "image"), next, o.version); err != nil {
			return err
		}
		var programs []archived
		for _, p := range targets {
			of, err := buildArchives(ctx, src, p, o.version, next)
			if err != nil {
				return fmt.Errorf("build the program for %s: %w", p, err)
			}
			programs = append(programs, of)
		}
		if err := os.WriteFile(filepath.Join(next, "basalt.yaml"), krew(o, programs), 0o644); err != nil {
			return err
		}
		if _, err := writeChart(src, o.version, next); err != nil {
			return fmt.Errorf("write the chart: %w", err)
		}
		return writeNotes(next, o.version, notes, made, programs)
	})
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(output, "NOTES.md"))
	if err != nil {
		return err
	}
	_, files, _ := strings.Cut(string(text), filesHeading)
	fmt.Fprintf(out, "%s: %s of commit %s\n%s", output, o.version, src.commit, files)
	fmt.Fprintf(out, `
Nothing was pushed, and no tag was made. Read %[1]s/NOTES.md, then:
  git tag -a %[2]s -m %[2]s %[3]s && git push origin %[2]s
  gh release create %[2]s --verify-tag --notes-file %[1]s/NOTES.md %[1]s/*
  skopeo copy --all --preserve-digests oci-archive:%[1]s/basalt-image-%[2]s.tar docker://REGISTRY/basalt:%[2]s
  helm push %[1]s/basalt-%[4]s.tgz oci://REGISTRY/charts
`, output, o.version, src.commit, o.number())
	return nil
}

// number returns the version without its v, as Helm writes it.
func (o releaseOptions) number() string { return strings.TrimPrefix(o.version, "v") }

// targets returns the platforms of the programs.
func (o releaseOptions) targets() ([]v1.Platform, error) {
	var out []v1.Platform
	for _, p := range strings.Split(o.programs, ",") {
		if !slices.Contains(programPlatforms, p) {
			return nil, fmt.Errorf("there is no program for the platform %q, only for %s",
				p, strings.Join(programPlatforms, ", "))
		}
		system, architecture, _ := strings.Cut(p, "/")
		out = append(out, v1.Platform{OS: system, Architecture: architecture})
	}
	return out, nil
}

// prepare makes the programs and the image report the version, and returns the section of the changelog.
func (s *source) prepare(ctx context.Context, o releaseOptions) (notes string, err error) {
	if !versionFormat.MatchString(o.version) || len(o.version) > 63 {
		return "", fmt.Errorf("--release %q is no version such as v0.1.0 or v0.2.0-rc.1", o.version)
	}
	v := build.Describe(s.described)
	switch {
	case v.Commit == build.Unknown:
		return "", errors.New("a release is of a commit: git does not know this folder")
	case v.Tree == build.Dirty && !o.dirty:
		return "", errors.New("files differ from the commit: commit them first")
	}
	tag := "refs/tags/" + o.version + "^{commit}"
	tagged, err := command(ctx, s.root, nil, "git", "rev-parse", "--quiet", "--verify", tag)
	if at := strings.TrimSpace(tagged); err == nil && at != v.Commit {
		return "", fmt.Errorf("%s is the tag of another commit, %s: choose the next version", o.version, at)
	}
	text, err := os.ReadFile(filepath.Join(s.root, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	if notes = changesOf(string(text), o.version); notes == "" {
		return "", fmt.Errorf("CHANGELOG.md has no section \"## %s\", or an empty one", o.version)
	}
	s.described = o.version + "-0-g" + v.Commit
	s.version, s.commit = o.version, v.Commit
	if v.Tree == build.Dirty {
		s.described, s.version, s.commit = s.described+"-dirty", o.version+"-dirty", v.Commit+"-dirty"
	}
	return notes, nil
}

// changesOf returns the section of a version.
func changesOf(changelog, version string) string {
	_, rest, found := strings.Cut("\n"+changelog, "\n## "+version+"\n")
	if !found {
		return ""
	}
	section, _, _ := strings.Cut(rest, "\n## ")
	return strings.TrimSpace(section)
}

// takeImage moves what is handed on of an image, and removes the rest.
func takeImage(from, to, version string) error {
	archive := filepath.Join(to, "basalt-image-"+version+".tar")
	if err := os.Rename(filepath.Join(from, archiveName), archive); err != nil {
		return err
	}
	documents, err := filepath.Glob(filepath.Join(from, "*.spdx.json"))
	if err != nil {
		return err
	}
	for _, d := range documents {
		name := strings.Replace(filepath.Base(d), "basalt-", "basalt-image-"+version+"-", 1)
		if err := os.Rename(d, filepath.Join(to, name)); err != nil {
			return err
		}
	}
	return os.RemoveAll(from)
}

// archived is the program for a platform, in its two archives.
type archived struct {
	v1.Platform
	size        int64  // of the program
	plugin, sum string // the archive of kubectl-basalt, and its SHA-256
}

// buildArchives builds the program for a platform, and writes it into two archives: as basalt, and as the plugin of
// kubectl.
func buildArchives(ctx context.Context, src *source, p v1.Platform, version, dir string) (archived, error) {
	content, info, err := buildProgram(ctx, src, p, dir)
	if err != nil {
		return archived{}, err
	}
	licenses, err := readLicenses(ctx, src, goEnv(p))
	if err != nil {
		return archived{}, fmt.Errorf("read licences: %w", err)
	}
	own, err := os.ReadFile(filepath.Join(src.root, "LICENSE"))
	if err != nil {
		return archived{}, err
	}
	archive := func(program string) (as, sum string, err error) {
		files := []file{{path: program, executable: true, content: content}, {path: "LICENSE", content: own}}
		files = append(files, licenses...)
		slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.path, b.path) })
		as = fmt.Sprintf("%s_%s_%s_%s.tar.gz", program, version, p.OS, p.Architecture)
		sum, err = writeArchiveOf(src, files, filepath.Join(dir, as))
		return as, sum, err
	}
	as, sum, err := archive("basalt")
	if err != nil {
		return archived{}, err
	}
	of := artifact{
		id: "Archive", name: "basalt-archive", purpose: "ARCHIVE", file: as, licenses: "in the archive's folder "}
	document := newSBOM(src, p, info, content, v1.Hash{Algorithm: "sha256", Hex: sum}, of)
	if err := writeDocument(filepath.Join(dir, strings.TrimSuffix(as, ".tar.gz")+".spdx.json"), document); err != nil {
		return archived{}, err
	}
	a := archived{Platform: p, size: int64(len(content))}
	a.plugin, a.sum, err = archive("kubectl-basalt")
	return a, err
}

// writeArchiveOf writes a tar.gz, and returns its SHA-256.
func writeArchiveOf(src *source, files []file, to string) (string, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return "", err
	}
	// The header of gzip gets no name and no time.
	if err := errors.Join(writeTar(z, files, src.time), z.Close()); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(out.Bytes())), os.WriteFile(to, out.Bytes(), 0o644)
}

// krew returns the manifest of the plugin, for krew-index or an index of one's own.
func krew(o releaseOptions, programs []archived) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: basalt
spec:
  version: %s
  homepage: https://basalt.dev/basalt
  shortDescription: Say why a gang waits, and show and change Basalt's queues
  description: |
    For clusters with Basalt, a sharded batch scheduler. "kubectl basalt why NAMESPACE/NAME" says why a PodGroup or
    a pod waits, its place in the order, what it lacks, and what happens next; --what-if says what another limit
    would do. "kubectl basalt queue list" shows the tree of queues, and "kubectl basalt status" shards, queues, and
    all gangs that wait.
  platforms:
`, o.version)
	for _, p := range programs {
		fmt.Fprintf(&b, `  - selector: {matchLabels: {os: %s, arch: %s}}
    uri: %s/%s/%s
    sha256: %s
    bin: kubectl-basalt
`, p.OS, p.Architecture, strings.TrimSuffix(o.url, "/"), o.version, p.plugin, p.sum)
	}
	return b.Bytes()
}

// writeChart packs the chart, as helm package does, but with the time of the commit: files take the place of links.
// With a version, the chart and its default image are of that one. It returns the archive's path in the folder.
func writeChart(src *source, version, folder string) (string, error) {
	var files []file
	root := filepath.Join(src.root, "deploy", "chart")
	var walk func(dir, name string, depth int) error
	walk = func(dir, name string, depth int) error {
		if depth > 8 { // a link to a folder above it
			return fmt.Errorf("%s: too deep", dir)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			at, as := filepath.Join(dir, e.Name()), path.Join(name, e.Name())
			info, err := os.Stat(at) // follows links
			if err != nil {
				return err
			}
			if info.IsDir() {
				if err := walk(at, as, depth+1); err != nil {
					return err
				}
				continue
			}
			content, err := os.ReadFile(at)
			if err != nil {
				return err
			}
			files = append(files, file{path: as, content: content})
		}
		return nil
	}
	if err := walk(root, "basalt", 0); err != nil {
		return "", err
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.path, b.path) })
	i := slices.IndexFunc(files, func(f file) bool { return f.path == "basalt/Chart.yaml" })
	if i < 0 {
		return "", fmt.Errorf("%s has no Chart.yaml: %w", root, fs.ErrNotExist)
	}
	about := &files[i].content
	if version != "" {
		*about = chartVersion.ReplaceAll(*about, []byte("version: "+strings.TrimPrefix(version, "v")))
		*about = appVersion.ReplaceAll(*about, []byte("appVersion: "+version))
	}
	number := bytes.TrimSpace(bytes.TrimPrefix(chartVersion.Find(*about), []byte("version:")))
	to := filepath.Join(folder, fmt.Sprintf("basalt-%s.tgz", number))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	_, err := writeArchiveOf(src, files, to)
	return to, err
}

// filesHeading begins the part of the notes that the build writes.
const filesHeading = "\n## Sizes and sums\n"

// writeNotes writes the notes of a release, with the size and the sum of each file, and the sums for sha256sum --check.
func writeNotes(dir, version, changes string, made built, programs []archived) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var notes, list bytes.Buffer
	fmt.Fprintf(&notes, "# Basalt %s\n%s\n%s\n| | MB |\n|---|---|\n", version, changes, filesHeading)
	for _, i := range made.images {
		fmt.Fprintf(&notes, "| image, %s | %.1f; %.1f to pull |\n", i.platform, mega(i.unpacked), mega(i.compressed))
	}
	for _, p := range programs {
		fmt.Fprintf(&notes, "| program, %s | %.1f |\n", p.Platform, mega(p.size))
	}
	fmt.Fprintf(&notes, "\nThe image's digest is `%s`.\n\n| file | MB | SHA-256 |\n|---|---|---|\n", made.digest)
	for _, e := range entries { // sorted
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&notes, "| %s | %.1f | `%x` |\n", e.Name(), mega(int64(len(content))), sha256.Sum256(content))
		fmt.Fprintf(&list, "%x  %s\n", sha256.Sum256(content), e.Name())
	}
	fmt.Fprintf(&list, "%x  NOTES.md\n", sha256.Sum256(notes.Bytes()))
	return errors.Join(os.WriteFile(filepath.Join(dir, "NOTES.md"), notes.Bytes(), 0o644),
		os.WriteFile(filepath.Join(dir, sums), list.Bytes(), 0o644))
}
