package server

import (
	"encoding/binary"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/volume"
)

// supply is what there is for claims that are bound once the node of their pod is decided: volumes that are not bound, capacity of which
// volumes can be provisioned, and nodes. Volumes of a class may come and go all the time, and each of its claims may have any of them; so
// the pods of those claims are shown again together, after a pause.
type supply struct {
	offered  map[string]map[string]*volume.Volume                 // by StorageClass and name
	kept     map[types.NamespacedName]map[string]*volume.Volume   // by the claim that they are kept for
	capacity map[string]map[types.NamespacedName]*volume.Capacity // by StorageClass and object
	classOf  map[types.NamespacedName]string                      // of such an object
	checked  map[string]bool                                      // CSI drivers whose capacity counts
	labels   map[string]map[string]string                         // of nodes
	claimAt  map[types.NamespacedName]version                     // of claims that are not bound
	volumeAt map[string]version                                   // of volumes that are offered or kept
	choices  map[string]*choices                                  // by StorageClass
	labelled uint64                                               // grows when nodes have other labels
	parts    parts
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

// maxOwn is how many bytes of constraints of its own a pod may have for parts to be made for it: each node is compared with them.
const maxOwn = 4 << 10

// choices are those that were made for claims of a StorageClass.
type choices struct {
	made  map[string]*volume.Choice // by what is asked for
	bytes int
}

// version is an object as it was seen last.
type version struct {
	uid     types.UID
	version string
}

// maxMade is how many choices of a class are remembered, and maxMadeBytes how many bytes they may have.
const (
	maxMade      = 4096
	maxMadeBytes = 16 << 20
)

func newSupply() supply {
	return supply{offered: map[string]map[string]*volume.Volume{}, kept: map[types.NamespacedName]map[string]*volume.Volume{},
		capacity: map[string]map[types.NamespacedName]*volume.Capacity{}, classOf: map[types.NamespacedName]string{}, checked: map[string]bool{},
		labels: map[string]map[string]string{}, claimAt: map[types.NamespacedName]version{}, volumeAt: map[string]version{},
		choices: map[string]*choices{}, parts: parts{made: map[*volume.Choice]map[string]part{}}}
}

// Offers implements volume.Supply.
func (s *supply) Offers(class string) []*volume.Volume { return values(s.offered[class]) }

// Kept implements volume.Cluster.
func (s *supply) Kept(namespace, name string) []*volume.Volume {
	of := s.kept[types.NamespacedName{Namespace: namespace, Name: name}]
	if len(of) == 0 {
		return nil
	}
	out := make([]*volume.Volume, 0, len(of))
	for _, name := range api.SortedKeys(of) {
		out = append(out, of[name])
	}
	return out
}

// Capacities implements volume.Supply.
func (s *supply) Capacities(class string) []*volume.Capacity { return values(s.capacity[class]) }

// CapacityChecked implements volume.Supply.
func (s *supply) CapacityChecked(driver string) bool { return s.checked[driver] }

// Node implements volume.Cluster.
func (s *supply) Node(name string) bool { _, exists := s.labels[name]; return exists }

func values[K comparable, V any](m map[K]V) []V {
	out := make([]V, 0, len(m))
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

// Choose implements volume.Cluster. Pods of one job have claims that ask for the same.
func (c *claims) Choose(claims []*volume.Claim) *volume.Choice {
	class := claims[0].Class
	var key []byte
	for _, claim := range claims {
		key = append(binary.AppendUvarint(key, uint64(len(claim.Request))), claim.Request...)
	}
	of := c.choices[class]
	if of != nil && of.made[string(key)] != nil {
		return of.made[string(key)]
	}
	made := volume.Choose(claims, c)
	bytes := len(key) + made.Bytes
	if of == nil || len(of.made) >= maxMade || of.bytes+bytes > maxMadeBytes {
		c.dropChoices(class)
		of = &choices{made: map[string]*volume.Choice{}}
		c.choices[class] = of
	}
	of.made[string(key)] = made
	of.bytes += bytes
	return made
}

// Parts implements volume.Cluster. To compare a pod with all nodes takes long, and a tenant makes up as many constraints as it likes: it is done
// for a tenth of the time at most. Other pods are offered parts of everything, until they have another turn.
func (c *claims) Parts(p *corev1.Pod, choice *volume.Choice) []*corev1.NodeSelector {
	own := ownConstraints(p)
	if own == "" || len(own) > maxOwn {
		return choice.Where
	}
	made, known := c.parts.made[choice][own]
	began := time.Now()
	if known && (made.labelled == c.labelled || made.turn == c.turn && began.Before(c.parts.next)) {
		return made.where
	}
	if began.Before(c.parts.next) {
		return choice.Where
	}
	if c.parts.bytes > maxMadeBytes {
		clear(c.parts.made)
		c.parts.bytes = 0
	}
	affinity := nodeaffinity.GetRequiredNodeAffinity(p)
	made = part{labelled: c.labelled, turn: c.turn, where: choice.Within(func(yield func(map[string]string) bool) {
		for name, labels := range c.labels {
			if ok, err := affinity.Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}); ok && err == nil && !yield(labels) {
				return
			}
		}
	})}
	put(c.parts.made, choice, own, made)
	c.parts.bytes += len(own)
	for _, s := range made.where {
		c.parts.bytes += s.Size()
	}
	c.parts.next = began.Add(11 * time.Since(began))
	return made.where
}

// ownConstraints encodes the node selector and the required node affinity of a pod, "" for none.
func ownConstraints(p *corev1.Pod) string {
	own := corev1.PodSpec{NodeSelector: p.Spec.NodeSelector}
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		own.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution}}
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

// dropChoices forgets what was made for claims of a class.
func (c *claims) dropChoices(class string) {
	if of := c.choices[class]; of != nil {
		for _, choice := range of.made {
			delete(c.parts.made, choice)
		}
		delete(c.choices, class)
	}
}

// offer takes what a volume offers now in place of what it offered; nil for nothing.
func (s *supply) offer(v *corev1.PersistentVolume, was, now *volume.Volume) {
	if was != nil {
		if class, is := was.Offered(); is {
			remove(s.offered, class, v.Name)
		}
		if claim := was.For(); claim != (types.NamespacedName{}) {
			remove(s.kept, claim, v.Name)
		}
	}
	delete(s.volumeAt, v.Name)
	if now == nil {
		return
	}
	class, offered := now.Offered()
	if offered {
		put(s.offered, class, v.Name, now)
	}
	claim := now.For()
	if claim != (types.NamespacedName{}) {
		put(s.kept, claim, v.Name, now)
	}
	if offered || claim != (types.NamespacedName{}) {
		s.volumeAt[v.Name] = version{v.UID, v.ResourceVersion}
	}
}

func (s *supply) offerNothing() {
	clear(s.offered)
	clear(s.kept)
	clear(s.volumeAt)
}

func put[A, B comparable, V any](m map[A]map[B]V, a A, b B, v V) {
	if m[a] == nil {
		m[a] = map[B]V{}
	}
	m[a][b] = v
}

func remove[A, B comparable, V any](m map[A]map[B]V, a A, b B) {
	if delete(m[a], b); len(m[a]) == 0 {
		delete(m, a)
	}
}

// offersChanged takes note that a volume offers something else now.
func (c *claims) offersChanged(was, now *volume.Volume) {
	for _, v := range []*volume.Volume{was, now} {
		if v == nil {
			continue
		}
		if class, is := v.Offered(); is {
			c.supplyChanged(class)
		}
	}
}

// supplyChanged has the pods of the unbound claims of a class shown again, after a pause; the lock is held.
func (c *claims) supplyChanged(class string) {
	c.dropChoices(class)
	c.later(task{showSupplied, class}, supplyPause, func() time.Duration { return c.showSupplied(class) })
}

// allSupplyChanged is supplyChanged for each class of which pods wait for volumes.
func (c *claims) allSupplyChanged() {
	clear(c.choices)
	clear(c.parts.made)
	c.parts.bytes = 0
	classes := map[string]bool{}
	for s := range c.users {
		if s.kind != aClaim {
			continue
		}
		if claim := c.claim[s.claim()]; claim.UID != "" && c.class[claim.Class] != nil { // anybody may name one that does not exist
			classes[claim.Class] = true
		}
	}
	for class := range classes {
		c.supplyChanged(class)
	}
}

// supplyPause is the shortest time between two looks at the pods of a class. It is longer where the looks take longer.
const supplyPause = time.Second / 2

// showSupplied shows the pods again whose claims may have other volumes of a class now.
func (c *claims) showSupplied(class string) time.Duration {
	c.mu.Lock()
	began := time.Now()
	var pods map[types.UID]bool
	for s, users := range c.users {
		if s.kind != aClaim {
			continue
		}
		if claim := c.claim[s.claim()]; claim.UID != "" && claim.Class == class {
			pods = addUsers(pods, users)
		}
	}
	looked := time.Since(began)
	c.mu.Unlock()
	return looked + c.showPods(pods)
}

// nodeThere takes a node; the lock is held.
func (c *claims) nodeThere(n *api.Node) {
	was, known := c.labels[n.Name]
	if !known || !maps.Equal(was, n.Labels) {
		c.labelled++
	}
	if !known {
		c.labels[n.Name] = n.Labels
		c.nodeMatters(n.Name)
		c.countVolumes(n.Name)
	}
	c.labels[n.Name] = n.Labels
}

func (c *claims) nodeGone(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.labels, name)
	c.labelled++
	c.nodeMatters(name)
	c.countVolumes(name)
}

// nodeMatters has the pods shown again of claims whose volumes are to be provisioned for a node that came or went.
func (c *claims) nodeMatters(name string) {
	for s := range c.users {
		if claim := c.claim[s.claim()]; s.kind == aClaim && claim.Selected == name {
			c.supplyChanged(claim.Class)
		}
	}
}

func (c *claims) capacities() kube.Handler[*storagev1.CSIStorageCapacity] {
	nameOf := func(o *storagev1.CSIStorageCapacity) types.NamespacedName {
		return types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	}
	set := func(name types.NamespacedName, now *volume.Capacity) {
		class, known := c.classOf[name]
		if known && now.Equal(c.capacity[class][name]) || !known && now == nil {
			return
		}
		if known {
			remove(c.capacity, class, name)
			delete(c.classOf, name)
			c.supplyChanged(class)
		}
		if now != nil {
			put(c.capacity, now.Class, name, now)
			c.classOf[name] = now.Class
			c.supplyChanged(now.Class)
		}
	}
	locked := func(o *storagev1.CSIStorageCapacity, now *volume.Capacity) {
		c.mu.Lock()
		defer c.mu.Unlock()
		set(nameOf(o), now)
	}
	return kube.Handler[*storagev1.CSIStorageCapacity]{
		Replaced: func(list []*storagev1.CSIStorageCapacity, _ kube.Ticket) {
			c.mu.Lock()
			defer c.mu.Unlock()
			clear(c.capacity)
			clear(c.classOf)
			c.allSupplyChanged()
			for _, o := range list {
				set(nameOf(o), volume.ReadCapacity(o))
			}
		},
		Seen:  func(o *storagev1.CSIStorageCapacity) { locked(o, volume.ReadCapacity(o)) },
		Gone:  func(o *storagev1.CSIStorageCapacity) { locked(o, nil) },
		Flush: c.flush,
	}
}
