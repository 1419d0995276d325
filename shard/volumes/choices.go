package volumes

import (
	"encoding/binary"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"basalt.dev/basalt/api/volume"
)

// Where the unbound claims of a StorageClass let pods run is made once for all that ask for the same, and is
// remembered until the supply of the class changes. Volumes of a class may come and go all the time, and each of its
// claims may have any of them; so the pods of those claims are shown again together, after a pause.

// choices are those that were made.
type choices struct {
	of    map[string]*classChoices // by StorageClass
	parts parts
	turn  uint64 // see volume.Cluster
}

// classChoices are those that were made for claims of a StorageClass.
type classChoices struct {
	made  map[string]*volume.Choice // by what is asked for
	bytes int
}

// parts are those of choices, made for pods with constraints of their own.
type parts struct {
	made  map[*volume.Choice]map[string]part // by these constraints
	bytes int
	next  time.Time // not before are others made
}

type part struct {
	where    []*corev1.NodeSelector
	labelled uint64 // as in supply
	turn     uint64 // in which it was made
}

// maxMade is how many choices of a class are remembered, and maxMadeBytes how many bytes they may have.
const (
	maxMade      = 4096
	maxMadeBytes = 16 << 20
)

// maxOwn is how many bytes of constraints of its own a pod may have for parts to be made for it: each node is
// compared with them.
const maxOwn = 4 << 10

func newChoices() choices {
	return choices{of: map[string]*classChoices{}, parts: parts{made: map[*volume.Choice]map[string]part{}}}
}

// drop forgets what was made for claims of a class.
func (c *choices) drop(class string) {
	if of := c.of[class]; of != nil {
		for _, choice := range of.made {
			delete(c.parts.made, choice)
		}
		delete(c.of, class)
	}
}

func (c *choices) dropAll() {
	clear(c.of)
	clear(c.parts.made)
	c.parts.bytes = 0
}

// Turn implements volume.Cluster.
func (c *Core) Turn() uint64 { return c.choices.turn }

// Choose implements volume.Cluster. Pods of one job have claims that ask for the same.
func (c *Core) Choose(claims []*volume.Claim) *volume.Choice {
	class := claims[0].Class
	var key []byte
	for _, claim := range claims {
		key = append(binary.AppendUvarint(key, uint64(len(claim.Request))), claim.Request...)
	}
	of := c.choices.of[class]
	if of != nil && of.made[string(key)] != nil {
		return of.made[string(key)]
	}
	made := volume.Choose(claims, c)
	bytes := len(key) + made.Bytes
	if of == nil || len(of.made) >= maxMade || of.bytes+bytes > maxMadeBytes {
		c.choices.drop(class)
		of = &classChoices{made: map[string]*volume.Choice{}}
		c.choices.of[class] = of
	}
	of.made[string(key)] = made
	of.bytes += bytes
	return made
}

// Parts implements volume.Cluster. To compare a pod with all nodes takes long, and a tenant makes up as many
// constraints as it likes: it is done for a tenth of the time at most. Other pods are offered parts of everything,
// until they have another turn.
func (c *Core) Parts(p *corev1.Pod, choice *volume.Choice) []*corev1.NodeSelector {
	own := ownConstraints(p)
	if own == "" || len(own) > maxOwn {
		return choice.Where
	}
	all := &c.choices.parts
	made, known := all.made[choice][own]
	rests := c.now.Before(all.next)
	if known && (made.labelled == c.labelled || made.turn == c.choices.turn && rests) {
		return made.where
	}
	if rests {
		return choice.Where
	}
	if all.bytes > maxMadeBytes {
		clear(all.made)
		all.bytes = 0
	}
	affinity := nodeaffinity.GetRequiredNodeAffinity(p)
	made = part{labelled: c.labelled, turn: c.choices.turn, where: choice.Within(func(yield func(map[string]string) bool) {
		for name, labels := range c.labels { // in no order: Within makes sets of them
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
			if ok, err := affinity.Match(n); ok && err == nil && !yield(labels) {
				return
			}
		}
	})}
	put(all.made, choice, own, made)
	all.bytes += len(own)
	for _, s := range made.where {
		all.bytes += s.Size()
	}
	all.next = c.now.Add(11 * time.Duration(len(c.labels)) * compareCost)
	return made.where
}

// ownConstraints encodes the node selector and the required node affinity of a pod, "" for none.
func ownConstraints(p *corev1.Pod) string {
	own := corev1.PodSpec{NodeSelector: p.Spec.NodeSelector}
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		if required := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
			affinity := &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}
			own.Affinity = &corev1.Affinity{NodeAffinity: affinity}
		}
	}
	if len(own.NodeSelector) == 0 && own.Affinity == nil {
		return ""
	}
	b, err := own.Marshal()
	if err != nil { // the pod is refused for it
		return ""
	}
	return string(b)
}
