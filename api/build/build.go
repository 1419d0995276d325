// Package build says which Basalt a program is: the tag and commit that it was built from, whether the tree had other changes, the Go
// version and the platform. It reports what the linker and the go tool recorded, and "unknown" where neither recorded anything.
package build

import (
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
)

// Values of fields of a Version that are no tag and no commit.
const (
	Unknown  = "unknown"  // nothing was recorded
	Untagged = "untagged" // the commit is known, and no tag precedes it
	Clean    = "clean"    // the tree is exactly the commit
	Dirty    = "dirty"    // files were changed, added or removed after the commit
)

// described is set by the linker: -ldflags "-X basalt.dev/basalt/api/build.described=$(api/build/describe.sh)". This is not left to the
// go tool, which refuses to build in a folder that git does not trust unless it is told to record nothing.
var described string

// Version identifies the sources and the build of a program.
type Version struct {
	Tag      string `json:"tag"`    // v1.2.0; v1.2.0-3-g0123456789ab for the third commit after it; Untagged; Unknown
	Commit   string `json:"commit"` // all digits, or Unknown
	Tree     string `json:"tree"`   // Clean, Dirty or Unknown
	Go       string `json:"go"`
	Platform string `json:"platform"` // linux/amd64
}

func (v Version) String() string {
	tree := v.Tree
	if tree == Unknown {
		tree = "unknown whether clean"
	}
	return fmt.Sprintf("%s (commit %s, %s, %s, %s)", v.Tag, v.Commit, tree, v.Go, v.Platform)
}

// Short returns the tag, or the first digits of the commit where there is no tag.
func (v Version) Short() string {
	if v.Tag == Untagged {
		return v.Commit[:12]
	}
	return v.Tag
}

// Current returns the version of the running program.
var Current = sync.OnceValue(func() Version {
	info, _ := debug.ReadBuildInfo()
	return read(described, info)
})

// read prefers what git described to what the go tool recorded. The latter is nil in a program built without modules.
func read(described string, info *debug.BuildInfo) Version {
	v := Describe(described)
	v.Go, v.Platform = runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
	if v.Commit != Unknown || info == nil {
		return v
	}
	// Built by `go install basalt.dev/basalt/cmd/basalt@v1.2.0`, or by `go build` with a VCS stamp.
	if version := info.Main.Version; version != "" && version != "(devel)" {
		v.Tag, _ = strings.CutSuffix(version, "+dirty")
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			v.Commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "false":
			v.Tree = Clean
		case s.Key == "vcs.modified":
			v.Tree = Dirty
		}
	}
	return v
}

var describeFormat = regexp.MustCompile(`^(?:(.+)-(\d+)-g)?([0-9a-f]{40,64})(-dirty)?$`)

// Describe parses what describe.sh prints. Everything is Unknown for any other text.
func Describe(text string) Version {
	m := describeFormat.FindStringSubmatch(text)
	if m == nil {
		return Version{Tag: Unknown, Commit: Unknown, Tree: Unknown}
	}
	v := Version{Tag: m[1], Commit: m[3], Tree: Clean}
	if v.Tag == "" {
		v.Tag = Untagged
	} else if m[2] != "0" {
		v.Tag += "-" + m[2] + "-g" + v.Commit[:12]
	}
	if m[4] != "" {
		v.Tree = Dirty
	}
	return v
}
