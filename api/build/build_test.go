package build

import (
	"runtime/debug"
	"strings"
	"testing"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

func TestRead(t *testing.T) {
	stamped := &debug.BuildInfo{Main: debug.Module{Version: "v0.3.0+dirty"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: strings.Repeat("f", 40)}, {Key: "vcs.modified", Value: "true"}}}
	clean := &debug.BuildInfo{Main: debug.Module{Version: "v0.3.0"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: commit}, {Key: "vcs.modified", Value: "false"}}}
	for _, row := range []struct {
		what, described   string
		info              *debug.BuildInfo
		tag, commit, tree string
	}{
		{"a tagged commit", "v1.2.0-0-g" + commit, nil, "v1.2.0", commit, Clean},
		{"a changed tree", "v1.2.0-0-g" + commit + "-dirty", nil, "v1.2.0", commit, Dirty},
		{"a later commit", "v1.2.0-3-g" + commit, nil, "v1.2.0-3-g0123456789ab", commit, Clean},
		{"a tag with hyphens", "v1.2.0-rc.1-0-g" + commit, nil, "v1.2.0-rc.1", commit, Clean},
		{"no tag", commit, nil, Untagged, commit, Clean},
		{"no tag, a changed tree", commit + "-dirty", nil, Untagged, commit, Dirty},
		{"a repository of SHA-256", strings.Repeat("a", 64), nil, Untagged, strings.Repeat("a", 64), Clean},
		{"git before the go tool", "v1.2.0-0-g" + commit, stamped, "v1.2.0", commit, Clean},
		{"the go tool alone", "", stamped, "v0.3.0", strings.Repeat("f", 40), Dirty},
		{"the go tool alone, clean", "", clean, "v0.3.0", commit, Clean},
		{"go install", "", &debug.BuildInfo{Main: debug.Module{Version: "v0.3.0"}}, "v0.3.0", Unknown, Unknown},
		{"no git", "", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, Unknown, Unknown, Unknown},
		{"no module", "", nil, Unknown, Unknown, Unknown},
		{"a changed tree that git does not describe", "-dirty", nil, Unknown, Unknown, Unknown},
		{"an error of git", "fatal: not a git repository", nil, Unknown, Unknown, Unknown},
	} {
		v := read(row.described, row.info)
		if v.Tag != row.tag || v.Commit != row.commit || v.Tree != row.tree {
			t.Errorf("%s: %s", row.what, v)
		}
		if !strings.HasPrefix(v.Go, "go1.") || !strings.Contains(v.Platform, "/") {
			t.Errorf("%s: built by %s for %s", row.what, v.Go, v.Platform)
		}
	}
}
