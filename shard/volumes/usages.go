package volumes

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/volume"
)

// usages says which pods use volumes, by claim and by node: all pods with a node, whoever bound them, and unbound
// ones of ours, until they have ended. It is kept of every claim, for a claim's access mode may be learnt after its
// pods.
type usages struct {
	uses   map[types.UID]*use
	usage  map[types.NamespacedName]*usage
	onNode map[string]map[types.UID]*use
}

// use is a pod with volumes.
type use struct {
	user   *volume.User // nil: another scheduler only keeps a node for it
	node   string       // where its volumes count, "" for nowhere yet
	claims []usedClaim
	disks  []volume.Attachment // that it names itself
}

// same reports whether two versions of a pod use the same in the same way.
func (u *use) same(o *use) bool {
	return u.node == o.node && (u.user == nil) == (o.user == nil) && (u.user == nil || *u.user == *o.user)
}

// usedClaim is one of a pod's claims. One that it names is used by it as ReadWriteOncePod means it; one that was made
// for it is not.
type usedClaim struct {
	types.NamespacedName
	named bool
}

type usage struct {
	volume.Usage
	users map[types.UID]*use
	stale bool // Usage lacks somebody
}

func newUsages() usages {
	return usages{uses: map[types.UID]*use{}, usage: map[types.NamespacedName]*usage{},
		onNode: map[string]map[types.UID]*use{}}
}

func hasEnded(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// use counts a pod as it is now, and returns the nodes whose volumes that may change.
func (u *usages) use(p *corev1.Pod, rules api.Rules) (nodes []string) {
	now := &use{node: p.Spec.NodeName}
	switch placed, ours := p.Spec.NodeName != "", rules.Ours(p.Spec.SchedulerName); {
	case hasEnded(p):
		return u.unuse(p.UID)
	case placed, ours && p.DeletionTimestamp == nil: // who is being deleted gets no node any more
		now.user = &volume.User{UID: p.UID, Name: p.Name, Created: p.CreationTimestamp.Time, Group: api.GroupOf(p, rules),
			Placed: placed}
	case ours || p.Status.NominatedNodeName == "":
		return u.unuse(p.UID)
	default: // another scheduler keeps room there
		now.node = p.Status.NominatedNodeName
	}
	if was := u.uses[p.UID]; was != nil && was.same(now) {
		return nil
	}
	nodes = u.unuse(p.UID)
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if name := api.ClaimOf(p, v); name != "" {
			now.claims = append(now.claims, usedClaim{types.NamespacedName{Namespace: p.Namespace, Name: name},
				v.PersistentVolumeClaim != nil})
		} else if driver, handle, why := volume.Disk(v); driver != "" && why == "" {
			now.disks = append(now.disks, volume.Attachment{Driver: driver, Handle: handle})
		}
	}
	if len(now.claims)+len(now.disks) == 0 {
		return nodes
	}
	u.uses[p.UID] = now
	for _, claim := range now.claims {
		all := u.usage[claim.NamespacedName]
		if all == nil {
			all = &usage{users: map[types.UID]*use{}}
			u.usage[claim.NamespacedName] = all
		}
		all.users[p.UID] = now
		if claim.named && now.user != nil && !all.stale && !all.Has(now.user) {
			all.Add(now.user)
		}
	}
	if now.node != "" {
		put(u.onNode, now.node, p.UID, now)
		if !slices.Contains(nodes, now.node) {
			nodes = append(nodes, now.node)
		}
	}
	return nodes
}

// unuse forgets a pod, and returns the node whose volumes that may change.
func (u *usages) unuse(uid types.UID) (nodes []string) {
	was := u.uses[uid]
	if was == nil {
		return nil
	}
	delete(u.uses, uid)
	for _, claim := range was.claims {
		all := u.usage[claim.NamespacedName]
		if all == nil { // it names the claim twice
			continue
		}
		delete(all.users, uid)
		all.stale = all.stale || was.user != nil && all.Has(was.user)
		if len(all.users) == 0 {
			delete(u.usage, claim.NamespacedName)
		}
	}
	if was.node == "" {
		return nil
	}
	remove(u.onNode, was.node, uid)
	return []string{was.node}
}

// Usage is part of volume.Cluster.
func (u *usages) Usage(namespace, name string) *volume.Usage {
	claim := types.NamespacedName{Namespace: namespace, Name: name}
	all := u.usage[claim]
	if all == nil {
		return nil
	}
	if all.stale {
		all.Usage, all.stale = volume.Usage{}, false
		for _, of := range all.users {
			if of.user != nil && slices.Contains(of.claims, usedClaim{claim, true}) {
				all.Add(of.user)
			}
		}
	}
	return &all.Usage
}
