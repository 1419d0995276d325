package server

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/volume"
)

// usages says which pods use claims: all pods with a node, whoever bound them, and unbound ones of ours, until they have ended. It is
// kept of every claim, for a claim's access mode may be learnt after its pods.
type usages struct {
	usage map[types.NamespacedName]*usage
	uses  map[types.UID]use
}

type use struct {
	user   *volume.User
	claims []types.NamespacedName
}

type usage struct {
	volume.Usage
	users map[types.UID]*volume.User
	stale bool // Usage lacks somebody
}

func newUsages() usages {
	return usages{usage: map[types.NamespacedName]*usage{}, uses: map[types.UID]use{}}
}

func hasEnded(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// use counts a pod as it is now.
func (u *usages) use(p *corev1.Pod, rules api.Rules) {
	placed := p.Spec.NodeName != ""
	if hasEnded(p) || !placed && (p.DeletionTimestamp != nil || !rules.Ours(p.Spec.SchedulerName)) { // who is being deleted gets no node any more
		u.unuse(p.UID)
		return
	}
	now := volume.User{UID: p.UID, Name: p.Name, Created: p.CreationTimestamp.Time, Group: api.GroupOf(p, rules), Placed: placed}
	if was := u.uses[p.UID].user; was != nil {
		if *was == now {
			return
		}
		u.unuse(p.UID)
	}
	claims := claimsOf(p)
	if len(claims) == 0 {
		return
	}
	u.uses[p.UID] = use{&now, claims}
	for _, name := range claims {
		all := u.usage[name]
		if all == nil {
			all = &usage{users: map[types.UID]*volume.User{}}
			u.usage[name] = all
		}
		all.users[p.UID] = &now
		if !all.stale {
			all.Add(&now)
		}
	}
}

// unuse forgets a pod.
func (u *usages) unuse(uid types.UID) {
	for _, name := range u.uses[uid].claims {
		all := u.usage[name]
		who := all.users[uid]
		delete(all.users, uid)
		all.stale = all.stale || all.Has(who)
		if len(all.users) == 0 {
			delete(u.usage, name)
		}
	}
	delete(u.uses, uid)
}

// Usage is part of volume.Cluster.
func (u *usages) Usage(namespace, name string) *volume.Usage {
	all := u.usage[types.NamespacedName{Namespace: namespace, Name: name}]
	if all == nil {
		return nil
	}
	if all.stale {
		all.Usage, all.stale = volume.Usage{}, false
		for _, user := range all.users {
			all.Add(user)
		}
	}
	return &all.Usage
}
