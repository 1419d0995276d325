package api

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// AnnotationUser of a pod or a PodGroup says who made it, and AnnotationGroups in which groups he is, one a line.
// Admission policies write them (deploy/users), and refuse the names of others (deploy/users.yaml). Without both they
// say what their author likes.
const (
	AnnotationUser   = "scheduling.basalt.dev/user"
	AnnotationGroups = "scheduling.basalt.dev/groups"
)

// Bounds of what is read of them.
const (
	MaxUserName = 253 // bytes of the name of a user or a group
	MaxGroups   = 32
)

// Maker is who made a pod.
type Maker struct {
	Owner uint64 // PodID of its controller, which would make it again; 0 for none
	User  string // AnnotationUser; "" for its namespace
	Group string // AnnotationGroups: those of the user, one a line
}

const (
	// systemUsers begin so, service accounts among them: each counts as the namespace of what it makes, for a tenant
	// makes as many of these as he likes.
	systemUsers = "system:"
	// namespaceUsers begin so: nobody else may be called as the user that a namespace is.
	namespaceUsers = "namespace "
)

// NamespaceUser is the user of what nobody made but accounts of a namespace.
func NamespaceUser(namespace string) string { return namespaceUsers + namespace }

// UserOf reads annotations. A user that is none of the people of a cluster is "".
func UserOf(annotations map[string]string) (user, groups string) {
	user = Shorten(annotations[AnnotationUser], MaxUserName)
	if user == "" || strings.HasPrefix(user, systemUsers) || strings.HasPrefix(user, namespaceUsers) {
		return "", ""
	}
	var kept []string
	for g := range strings.SplitSeq(Shorten(annotations[AnnotationGroups], MaxGroups*(MaxUserName+1)), "\n") {
		if g != "" && len(g) <= MaxUserName && len(kept) < MaxGroups {
			kept = append(kept, g)
		}
	}
	return user, strings.Join(kept, "\n")
}

// Groups returns the names in AnnotationGroups, as UserOf returns it.
func Groups(lines string) []string {
	if lines == "" {
		return nil
	}
	return strings.Split(lines, "\n")
}

// stripUser keeps what UserOf reads.
func stripUser(out, p *v1.Pod) {
	user, groups := UserOf(p.Annotations)
	if user == "" {
		return
	}
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	if out.Annotations[AnnotationUser] = user; groups != "" {
		out.Annotations[AnnotationGroups] = groups
	}
}
