package api

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Implied groups are those that only their pods describe. A user or a controller writes on each pod which others it starts with and how
// many of them at least; there is no object that says so. Such a group exists while a pod names it.

// Annotations with which a template makes a gang of the pods of one controller, or of those that name the same gang.
const (
	AnnotationGangMin    = "scheduling.basalt.dev/gang-min"    // how many of them start together
	AnnotationGangName   = "scheduling.basalt.dev/gang-name"   // for pods of several controllers or of none
	AnnotationGangLabels = "scheduling.basalt.dev/gang-labels" // keys of labels: the pods with the same values of all of them are a gang
)

// groupRule says how the pods of one kind of implied group describe it.
type groupRule struct {
	kind    string // for users
	id      string // tells a group from those of other kinds that have its name
	name    where
	minimum where
	owner   bool // without a name it is the group of all pods of its controller
	labels  bool // what names it are keys of labels, whose values do
	yields  bool // to any other group that the pod names
}

// groupRules are all kinds of implied groups.
var groupRules = []groupRule{
	{kind: ImpliedGroup.String(), name: where{AnnotationGangName, true}, minimum: where{AnnotationGangMin, true}, owner: true},
	// Admission policies write it on templates (deploy/gangs), and do not know which PodGroup a controller makes later.
	{kind: ImpliedGroup.String(), name: where{AnnotationGangLabels, true}, minimum: where{AnnotationGangMin, true}, labels: true, yields: true},
	{kind: "Kueue pod group", id: "kueue", name: where{"kueue.x-k8s.io/pod-group-name", false}, minimum: where{"kueue.x-k8s.io/pod-group-total-count", true}},
	// Each pod of a LeaderWorkerSet has this label, also where a PodGroup says more.
	{kind: "LeaderWorkerSet group", id: "lws", name: where{"leaderworkerset.sigs.k8s.io/group-key", false}, minimum: where{"leaderworkerset.sigs.k8s.io/size", true}, yields: true},
}

const (
	maxGroupMin     = 100_000 // as of a PodGroup
	maxMinimumShown = 32      // bytes of one that cannot be read
	maxOwnerUID     = 64
	maxGangLabels   = 4   // keys
	maxGangKeys     = 512 // bytes of them
)

// impliedGroup is what a pod says of its implied group.
type impliedGroup struct {
	*groupRule
	field   string // that names it
	name    string // as users know it
	group   string // Pod.Group; "" if it has none
	minimum int    // 0 if it cannot be read
	wrong   string // why the pod cannot be placed
}

// Implied returns the implied group of a pod that names no other, and the minimum that the pod says; "" for none.
func Implied(p *v1.Pod) (group string, minimum int) {
	for i := range groupRules {
		if g, _ := groupRules[i].read(p); g.group != "" {
			return g.group, g.minimum
		}
	}
	return "", 0
}

// read returns what a pod says of its group by the rule, and whether it says anything.
func (r *groupRule) read(p *v1.Pod) (g impliedGroup, says bool) {
	name, least := r.name.of(p), r.minimum.of(p)
	if name == "" && !(r.owner && least != "" && p.Annotations[AnnotationGangLabels] == "") {
		return g, false
	}
	g = impliedGroup{groupRule: r, field: r.name.field()}
	switch {
	case r.labels:
		values, wrong := labelValues(p, name)
		if wrong != "" {
			g.wrong = g.field + " " + wrong
			return g, true
		}
		g.name = Shorten(strings.Join(values, "."), maxGroupName)
		sum := sha256.Sum256([]byte(name + "|" + strings.Join(values, "|")))
		g.group = g.name + "/labels-" + hex.EncodeToString(sum[:8])
	case name != "":
		if r.name.annotation && (len(name) > maxGroupName || len(validation.IsDNS1123Subdomain(name)) > 0) {
			g.name = Shorten(name, maxGroupName)
			g.wrong = fmt.Sprintf("%s is %q: not the name of a gang, which has at most %d lower case letters, digits, '-' and '.'", g.field, g.name, maxGroupName)
			return g, true
		}
		g.name = Shorten(name, maxGroupName)
		g.group = g.name + "/" + r.id
	default:
		g.field = r.minimum.field()
		owner, uid := controllerOf(p)
		if uid == "" {
			g.wrong = fmt.Sprintf("%s is set on a pod without a controller: name its gang in %s", g.field, r.name.field())
			return g, true
		}
		g.name, g.group = owner, owner+"/"+uid
	}
	switch n, err := strconv.Atoi(least); {
	case least == "":
		g.wrong = fmt.Sprintf("%s names the %s %q, and %s is missing: it says how many pods of it start together", g.field, r.kind, g.name, r.minimum.field())
	case err != nil || n < 1 || n > maxGroupMin || len(least) > maxMinimumShown:
		g.wrong = fmt.Sprintf("%s is %q: not a number of pods from 1 to %d", r.minimum.field(), Shorten(least, maxMinimumShown), maxGroupMin)
	default:
		g.minimum = n
	}
	return g, true
}

// labelValues returns what a pod has of the labels whose keys are listed, separated by commas, or what is wrong with them.
func labelValues(p *v1.Pod, list string) (values []string, wrong string) {
	if len(list) > maxGangKeys || strings.Count(list, ",") >= maxGangLabels {
		return nil, fmt.Sprintf("is %q: not a list of 1 to %d keys of labels, separated by commas, of at most %d bytes", Shorten(list, maxGroupName), maxGangLabels, maxGangKeys)
	}
	for key := range strings.SplitSeq(list, ",") {
		value := Shorten(p.Labels[key], maxGroupName)
		if value == "" {
			return nil, fmt.Sprintf("names the label %q, which the pod does not have", key)
		}
		values = append(values, value)
	}
	return values, ""
}

// keep has a stripped pod say of its group what read reads.
func (r *groupRule) keep(to, p *v1.Pod) {
	g, says := r.read(p)
	if !says {
		return
	}
	if r.labels {
		keys := Shorten(r.name.of(p), maxGangKeys+1)
		r.name.put(to, keys)
		for i, key := range strings.Split(keys, ",") {
			if i < maxGangLabels {
				where{key, false}.put(to, Shorten(p.Labels[key], maxGroupName))
			}
		}
	} else {
		r.name.put(to, Shorten(r.name.of(p), maxGroupName+1)) // one that is too long stays too long
	}
	r.minimum.put(to, Shorten(r.minimum.of(p), maxMinimumShown+1))
	if owner, uid := controllerOf(p); g.field == r.minimum.field() && uid != "" {
		to.OwnerReferences[0].Name, to.OwnerReferences[0].UID = owner, types.UID(uid)
	}
}

// controllerOf returns the name and the UID of a pod's controller, "" for none. Whoever makes the pod writes them, at any length.
func controllerOf(p *v1.Pod) (name, uid string) {
	for i := range p.OwnerReferences {
		o := &p.OwnerReferences[i]
		if o.Controller == nil || !*o.Controller {
			continue
		}
		if uid = string(o.UID); len(uid) > maxOwnerUID {
			sum := sha256.Sum256([]byte(uid))
			uid = hex.EncodeToString(sum[:])
		}
		return Shorten(o.Name, maxGroupName), uid
	}
	return "", ""
}

// ImpliedUID returns the UID of the implied group that Pod.Group names. It is the same for every group of the name: one that is described
// again, after all its pods were gone, is the one before.
func ImpliedUID(namespace, group string) string {
	sum := sha256.Sum256([]byte("implied|" + namespace + "|" + group))
	b := hex.EncodeToString(sum[:16])
	return b[:8] + "-" + b[8:12] + "-" + b[12:16] + "-" + b[16:20] + "-" + b[20:]
}

// GroupTitle returns the name of a group as users know it.
func GroupTitle(kind GroupKind, group string) string {
	if i := strings.LastIndexByte(group, '/'); kind == ImpliedGroup && i >= 0 {
		return group[:i]
	}
	return group
}
