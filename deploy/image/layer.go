package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the name and number that users of images without root know from distroless.
const (
	user   = "nonroot"
	userID = "65532"
)

// file is one of the image. All belong to root, so that the process cannot change them.
type file struct {
	path       string // without a slash at its begin; a folder ends in one
	executable bool
	content    []byte
}

// files returns what the image holds: the program, who it runs as, the roots that a client of an https endpoint trusts, and licences.
// There is no shell, no libc and no /tmp: the program is static and writes no files.
func files(program []byte, licenses []file) []file {
	out := []file{
		{path: "basalt", executable: true, content: program},
		{path: "etc/passwd", content: []byte("root:x:0:0:root:/:/sbin/nologin\n" + user + ":x:" + userID + ":" + userID + ":" + user + ":/:/sbin/nologin\n")},
		{path: "etc/group", content: []byte("root:x:0:\n" + user + ":x:" + userID + ":\n")},
		{path: "etc/ssl/certs/ca-certificates.crt", content: roots()}, // where crypto/x509 looks first
	}
	out = append(out, licenses...)
	slices.SortFunc(out, func(a, b file) int { return cmp.Compare(a.path, b.path) })
	return out
}

// roots returns Mozilla's roots, as Go's maintainers publish them. A root that is trusted with constraints only is left out, because a
// PEM file cannot state them.
func roots() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a Buffer takes all
		}
	}
	return out.Bytes()
}

// writeTar writes files, and the folders above them, in the order given. Only what the arguments say gets into the bytes.
func writeTar(w io.Writer, files []file, at time.Time) error {
	t := tar.NewWriter(w)
	seen := map[string]bool{".": true}
	var folder func(p string) error
	folder = func(p string) error {
		if seen[p] {
			return nil
		}
		seen[p] = true
		if err := folder(path.Dir(p)); err != nil {
			return err
		}
		return t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: p + "/", Mode: 0o755, ModTime: at})
	}
	for _, f := range files {
		if err := folder(path.Dir(f.path)); err != nil {
			return err
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.path, Size: int64(len(f.content)), Mode: 0o644, ModTime: at}
		if f.executable {
			header.Mode = 0o755
		}
		if err := t.WriteHeader(header); err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
		if _, err := t.Write(f.content); err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
	}
	return t.Close()
}

var licenseName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|copyright|notice|patents)([-.].*)?$`)

// readLicenses returns the licences and notices of what is linked into the program, which most of them want handed on with it: the
// toolchain's, and for each package those beside it and in the folders above it in its module.
func readLicenses(ctx context.Context, src *source, env []string) ([]file, error) {
	goroot, err := command(ctx, src.root, env, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	out, err := licensesIn(strings.TrimSpace(goroot), licensesOf(stdlib))
	if err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("find the licence of Go: none in %s", strings.TrimSpace(goroot))
	}
	list, err := command(ctx, src.root, env, "go", "list", "-deps", "-json=Dir,Standard,Module", program)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for d := json.NewDecoder(strings.NewReader(list)); ; {
		var p struct {
			Dir      string
			Standard bool
			Module   struct{ Path, Dir string }
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		for dir := p.Dir; !p.Standard && !seen[dir]; dir = filepath.Dir(dir) {
			seen[dir] = true
			below, err := filepath.Rel(p.Module.Dir, dir)
			if err != nil {
				return nil, err
			}
			more, err := licensesIn(dir, path.Join(licensesOf(p.Module.Path), filepath.ToSlash(below)))
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
			if below == "." {
				break
			}
		}
	}
}

// licensesOf returns the folder of the image for the licences of a module.
func licensesOf(module string) string { return "licenses/" + module }

// licensesIn returns those of one folder, with their paths in the image.
func licensesIn(dir, to string) (out []file, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !licenseName.MatchString(e.Name()) || path.Ext(e.Name()) == ".go" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		out = append(out, file{path: path.Join(to, e.Name()), content: text})
	}
	return out, nil
}
