package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"basalt.dev/basalt/api/build"
)

// source is what an image is built from.
type source struct {
	root      string
	described string // of api/build/describe.sh
	version   string // the tag, with -dirty if the tree is
	commit    string // likewise
	time      time.Time
}

// readSource warns if the image will not name a commit that others can build again.
func readSource(ctx context.Context, root string, warnings io.Writer) (*source, error) {
	s := &source{root: root}
	described, err := command(ctx, root, nil, filepath.Join("api", "build", "describe.sh"))
	if err != nil {
		fmt.Fprintf(warnings, "image: the version will be %q: %v\n", build.Unknown, err)
	}
	s.described = strings.TrimSpace(described)
	v := build.Describe(s.described)
	s.version, s.commit = v.Tag, v.Commit
	if v.Tree == build.Dirty {
		fmt.Fprintln(warnings, "image: files differ from the commit: the version will end in -dirty")
		s.version, s.commit = v.Tag+"-dirty", v.Commit+"-dirty"
	}
	s.time, err = s.readTime(ctx)
	return s, err
}

// readTime returns SOURCE_DATE_EPOCH (reproducible-builds.org), else the time of the commit, else 1970.
func (s *source) readTime(ctx context.Context) (time.Time, error) {
	text, name := os.Getenv("SOURCE_DATE_EPOCH"), "SOURCE_DATE_EPOCH"
	if text == "" && s.described == "" {
		text = "0"
	}
	if text == "" {
		var err error
		if text, err = command(ctx, s.root, nil, "git", "-c", "log.showSignature=false", "log", "-1", "--format=%ct"); err != nil {
			return time.Time{}, fmt.Errorf("read the time of the commit: %w", err)
		}
		name = "the time of the commit"
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || seconds < 0 || seconds > 1<<32 { // a tar header has room for 1<<33
		return time.Time{}, fmt.Errorf("%s is %q, not a number of seconds since 1970", name, text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// command runs a program in a folder with more variables in its environment, and returns what it prints.
func command(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	return string(out), nil
}
