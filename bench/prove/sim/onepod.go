package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/volume"
	"basalt.dev/basalt/shard/event"
)

// Claims that one pod at a time may use (ReadWriteOncePod), in runs with the line volumes: some single pods, and the first pods of some gangs,
// name one of three claims. So pods of different queues, and so of different homes, wait for one claim, and go for it at once when it is free.
// Who uses a claim each shard reads from the pods that it was shown, by package volume, as in production.

// claimFor is the claim that a pod names, "" for none.
func (l *workload) claimFor(name string, of member) string {
	key := name
	if of.group != "" {
		if !strings.HasSuffix(name, "-0") { // two pods of a gang could never run together
			return ""
		}
		key = of.group
	}
	if kind := int(api.BucketOf("claim/" + key)); l.volumes && kind%3 == 0 {
		return fmt.Sprint("claim", kind/3%3)
	}
	return ""
}

// mount has a pod name a claim.
func mount(p *corev1.Pod, claim string) {
	if claim != "" {
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	}
}

// claimOf is the claim that a pod names, "" for none.
func claimOf(p *corev1.Pod) string {
	if len(p.Spec.Volumes) == 0 {
		return ""
	}
	return p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName
}

// uses takes note of a pod that a shard is shown, if it names a claim, and unuses that it is gone.
func (x *shard) uses(o object) {
	p, is := o.Object.(*corev1.Pod)
	if !is || claimOf(p) == "" {
		return
	}
	if x.users == nil {
		x.users = map[string]map[string]object{}
	}
	if x.users[claimOf(p)] == nil {
		x.users[claimOf(p)] = map[string]object{}
	}
	x.users[claimOf(p)][string(p.UID)] = o
}

func (x *shard) unuses(uid string) (claim string) {
	for _, claim := range api.SortedKeys(x.users) {
		if _, named := x.users[claim][uid]; named {
			delete(x.users[claim], uid)
			return claim
		}
	}
	return ""
}

// showRivals has a shard shown again the other pods that wait for a claim, those of which something else is said now.
func (x *shard) showRivals(claim, but string) {
	for _, uid := range api.SortedKeys(x.users[claim]) {
		was := x.shown[uid]
		if uid == but || was == nil || was.Node != "" {
			continue
		}
		now := x.reduce(x.users[claim][uid])
		if (now.Refused == nil) != (was.Refused == nil) || now.Refused != nil && now.Refused.Message != was.Refused.Message {
			x.shown[uid] = now
			x.step(event.PodSeen{Pod: now})
		}
	}
}

// storage answers what is asked about the claims of pods: each is bound to a volume that can be used anywhere.
type storage struct{ *shard }

var anywhere = volume.ReadVolume(&corev1.PersistentVolume{})

func (s storage) Volumes(p *corev1.Pod) (api.Reach, string) {
	return volume.Nodes(p, api.GroupOf(p, s.w.api.PodRules), s)
}
func (storage) DeviceClass(string) string { return "" }
func (storage) Claim(_, name string) (volume.Claim, bool) {
	return volume.Claim{Volume: "of " + name, Bound: true, OnePod: true}, true
}
func (storage) Volume(string) *volume.Volume          { return anywhere }
func (storage) Class(string) *volume.Class            { return nil }
func (storage) Kept(string, string) []*volume.Volume  { return nil }
func (storage) Choose([]*volume.Claim) *volume.Choice { return nil }
func (storage) Node(string) bool                      { return true }
func (storage) Limited(string) bool                   { return false }
func (storage) Mark(string)                           {}
func (storage) Turn() uint64                          { return 0 }
func (storage) Parts(_ *corev1.Pod, c *volume.Choice) []*corev1.NodeSelector {
	return c.Where
}
func (s storage) Usage(_ string, claim string) *volume.Usage {
	u := &volume.Usage{}
	for _, o := range s.users[claim] {
		p := o.Object.(*corev1.Pod)
		if placed := p.Spec.NodeName != ""; !finished(p) && (placed || ours(p) && p.DeletionTimestamp == nil) {
			u.Add(&volume.User{UID: p.UID, Name: p.Name, Created: p.CreationTimestamp.Time, Group: api.GroupOf(p, s.w.api.PodRules), Placed: placed})
		}
	}
	return u
}

// alreadyUsed judges that nobody uses a claim of a pod that a Binding of ours bound. What others bound lately its shard need not have seen.
func (c *check) alreadyUsed(x *shard, uid string) {
	w := c.w
	p := w.api.podByUID(uid)
	if p == nil || claimOf(p) == "" {
		return
	}
	w.count("pods bound with a claim for one pod")
	waiting := slices.ContainsFunc(w.load.pods(ours), func(o *corev1.Pod) bool {
		return o.UID != p.UID && claimOf(o) == claimOf(p) && o.Spec.NodeName == "" && !finished(o)
	})
	if waiting {
		w.count("pods bound with a claim that others wait for")
	}
	for _, o := range w.api.pods.objects {
		other := o.Object.(*corev1.Pod)
		if other.UID == p.UID || claimOf(other) != claimOf(p) || other.Spec.NodeName == "" || finished(other) {
			continue
		}
		if seen, shown := x.bound[string(other.UID)]; c.bound[string(other.UID)] == "" && (!shown || w.now.Sub(seen) < late) {
			continue
		}
		w.fail("V3: pod %s is bound to %s, and pod %s, which is on %s since %s, uses %s, too", p.UID, p.Spec.NodeName, other.UID, other.Spec.NodeName,
			c.since[string(other.UID)].Sub(w.start).Round(time.Millisecond), claimOf(p))
	}
}
