package security

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"basalt.dev/basalt/bench/prove/auditlog"
	"basalt.dev/basalt/deploy"
)

// auditPolicy logs every request of Basalt's users, reads too, and nobody else's.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["system:serviceaccount:basalt-system:basalt-shard", "system:serviceaccount:basalt-system:basalt-coordinator", "system:serviceaccount:basalt-system:basalt-audit"]
- level: None
`

// idle are rights that this run does not use, each with the one thing that does. Everything else that deploy/rbac.yaml grants
// must be used, and whatever is used must be granted: there are no others in a local cluster, so a run that is well proves it.
var idle = map[string]string{
	"basalt-shard get pods":                     "resolving a Binding, when the pod was made again under its name meanwhile",
	"basalt-shard delete pods":                  "undoing a gang that was bound in part",
	"basalt-shard patch persistentvolumeclaims": "claims with WaitForFirstConsumer, see bench/prove/volumes",
	"basalt-shard patch persistentvolumes":      "the same",
	"basalt-shard create events":                "a node with more than it has, a gang that was undone",
	"basalt-shard patch events":                 "the same event again",
	"basalt-shard patch pods/status":            "a pod that waits",
	"basalt-shard create tokenreviews":          "basalt why, see bench/prove/visibility",
	"basalt-shard create subjectaccessreviews":  "the same",
	"basalt-coordinator create queues":          "root and default, where nobody made them",
	"basalt-coordinator patch queues":           "the finalizer of a queue that holds something",
	"basalt-coordinator get queues":             "the same: the finalizers that are there",
	// Reflectors are given their lists by the watch; from a server that does not do so they list.
	"basalt-audit list nodes":                  "a server without streamed lists",
	"basalt-audit list pods":                   "a server without streamed lists",
	"basalt-audit list namespaces":             "a server without streamed lists",
	"basalt-audit list queues":                 "a server without streamed lists",
	"basalt-audit list podgroups":              "a server without streamed lists",
	"basalt-audit list persistentvolumeclaims": "a server without streamed lists",
	"basalt-audit list persistentvolumes":      "a server without streamed lists",
	"basalt-audit list csinodes":               "a server without streamed lists",
}

// rights compares what deploy/rbac.yaml grants to Basalt's users with what they did.
func (w *world) rights(t *testing.T) {
	granted := map[string]bool{}
	objects, err := deploy.Objects("rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if o.GetKind() == "RoleBinding" && o.GetName() == "basalt-authentication-reader" {
			granted["basalt-shard watch configmaps"] = true // one of them, by a Role that the API server makes
		}
		if o.GetKind() != "ClusterRole" || slices.Contains([]string{"basalt-edit", "basalt-view", "basalt-status", "basalt-drain"}, o.GetName()) {
			continue // those are for people
		}
		var role struct {
			Rules []struct{ Resources, Verbs []string }
		}
		b, err := o.MarshalJSON()
		if err == nil {
			err = json.Unmarshal(b, &role)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range role.Rules {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					if resource == "*" || verb == "*" {
						t.Errorf("%s grants %s %s", o.GetName(), verb, resource)
					}
					granted[o.GetName()+" "+verb+" "+resource] = true
				}
			}
		}
	}
	used, refused := w.used(t)
	for _, right := range slices.Sorted(maps.Keys(granted)) {
		if _, is := idle[right]; !used[right] && !is {
			t.Errorf("%s is granted and nothing used it", right)
		}
	}
	for _, right := range slices.Sorted(maps.Keys(idle)) {
		if !granted[right] {
			t.Errorf("%s is listed as idle and not granted", right)
		}
	}
	for _, right := range slices.Sorted(maps.Keys(used)) {
		if !granted[right] {
			t.Errorf("%s was used and is not granted", right)
		}
	}
	if len(refused) > 0 {
		t.Errorf("refused for want of rights: %v", refused)
	}
	t.Logf("%d rights are granted, %d were used", len(granted), len(used))
}

// used reads the audit log: what each of Basalt's users did, as "role verb resource/subresource", and what it was refused.
func (w *world) used(t *testing.T) (used map[string]bool, refused []string) {
	t.Helper()
	f, err := os.Open(w.cluster.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	used = map[string]bool{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Verb      string
			User      struct{ Username string }
			ObjectRef *struct{ Resource, Subresource string }
			Response  struct{ Code int } `json:"responseStatus"`
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%v: %.200s", err, lines.Text())
		}
		name, ours := strings.CutPrefix(e.User.Username, auditlog.Users)
		if !ours || e.ObjectRef == nil { // /readyz and the like need no right of ours
			continue
		}
		what := name + " " + e.Verb + " " + e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			what += "/" + e.ObjectRef.Subresource
		}
		if e.Response.Code == 403 {
			refused = append(refused, fmt.Sprint(what, " ", e.Response.Code))
			continue
		}
		used[what] = true
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return used, refused
}
