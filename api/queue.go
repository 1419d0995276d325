package api

import (
	"fmt"
	"strings"
)

// A queue's name is its path. RootQueue lies above every top-level queue.
const (
	RootQueue     = "root"
	DefaultQueue  = "default"
	MaxPathLength = 63 // it is a label value too
	MaxPathLevels = 8
)

// ValidatePath says what is wrong with a queue's name, nil when nothing is.
func ValidatePath(path string) error {
	switch {
	case path == "":
		return fmt.Errorf("a queue needs a name")
	case len(path) > MaxPathLength:
		return fmt.Errorf("queue name %.80q has %d characters, the limit is %d", path, len(path), MaxPathLength)
	case strings.HasPrefix(path, RootQueue+"."):
		return fmt.Errorf("queue name %q: top-level queues are children of root: omit the leading root.", path)
	}
	segments := strings.Split(path, ".")
	if len(segments) > MaxPathLevels {
		return fmt.Errorf("queue name %q has %d levels, the limit is %d", path, len(segments), MaxPathLevels)
	}
	for _, s := range segments {
		if s == "" || s[0] == '-' || s[len(s)-1] == '-' || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return fmt.Errorf("queue name %q: %q must consist of lower-case letters, digits and inner dashes", path, s)
		}
	}
	return nil
}

// Parent returns the queue above, and "" above root.
func Parent(path string) string {
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[:i]
	}
	if path == RootQueue || path == "" {
		return ""
	}
	return RootQueue
}

// Lineage returns the queue and all its ancestors, root last.
func Lineage(path string) []string {
	out := make([]string, 0, 4)
	for p := path; p != ""; p = Parent(p) {
		out = append(out, p)
	}
	return out
}

// Under reports whether path is the ancestor itself or lies below it.
func Under(path, ancestor string) bool {
	return path == ancestor || ancestor == RootQueue && path != "" || strings.HasPrefix(path, ancestor+".")
}

// StandIn is a Queue that stands for a queue of Volcano's (LabelVolcanoQueue). Where several do, the least one counts.
type StandIn struct {
	Queue    string
	Deleting bool
}

// Compare orders those that stand for the same queue: by name, those that are being deleted last.
func (s StandIn) Compare(t StandIn) int {
	if s.Deleting != t.Deleting {
		if t.Deleting {
			return -1
		}
		return 1
	}
	return strings.Compare(s.Queue, t.Queue)
}
