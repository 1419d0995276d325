package volume

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"basalt.dev/basalt/api"
)

// Action is what is to be done for a claim whose pod goes to a node.
type Action uint8

const (
	Done   Action = iota // it is bound to a volume that can be used there
	Wait                 // until somebody else has acted
	Select               // annotate the claim with the node: a volume is to be provisioned for it
	Keep                 // name the claim in a volume
	Fail                 // it cannot have a volume there
)

// Step is the next step for a claim.
type Step struct {
	Claim  string
	Action Action
	Volume string // with Keep
	Why    string // with Fail
}

// Own is what was done for a claim already.
type Own struct {
	Pending  bool   // a write is not answered, or the watch has not shown it yet
	Selected bool   // the claim was annotated
	Volume   string // that the claim was named in, "" for none
	Replaced bool   // the claim is another one of that name now
	Unseen   bool   // the claim may not have been seen yet
}

// Steps says what is to be done for the claims of a pod that goes to a node. What was done is read from the objects; own says what the
// caller has done, and shared whether other pods use a claim. taken are volumes that are chosen for other claims.
func Steps(p *v1.Pod, node string, labels map[string]string, own func(claim string) Own, shared func(claim string) bool, taken func(volume string) bool, c interface {
	Cluster
	Supply
}) []Step {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: labels}}
	var steps []Step
	type wish struct {
		at    int
		claim Claim
		ask   *Ask
	}
	var wishes []wish
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		name := api.ClaimOf(p, v)
		if name == "" || slices.ContainsFunc(steps, func(s Step) bool { return s.Claim == name }) {
			continue
		}
		s := Step{Claim: name, Action: Wait}
		fail := func(format string, args ...any) { s.Action, s.Why = Fail, fmt.Sprintf(format, args...) }
		claim, exists := c.Claim(p.Namespace, name)
		did := own(name)
		switch {
		case !exists && did.Unseen:
		case !exists:
			fail("the claim does not exist any more")
		case claim.Lost:
			fail("the claim is lost")
		case claim.Deleting:
			fail("the claim is being deleted")
		case v.PersistentVolumeClaim == nil && claim.Owner != p.UID:
			fail("the claim was not made for this pod")
		case did.Replaced:
			fail("the claim was deleted, and another one of that name was made")
		case claim.Bound:
			volume := c.Volume(claim.Volume)
			switch {
			case volume == nil: // it may be seen later
			case volume.Refused != "":
				fail("its volume %s: %s", claim.Volume, volume.Refused)
			case !matches(volume.Nodes, n):
				fail("its volume %s cannot be used on node %s", claim.Volume, node)
			default:
				s.Action = Done
			}
		case claim.Volume != "" || did.Pending || claim.Selected == node:
		case claim.Refused != "":
			fail("the claim cannot be bound: %s", claim.Refused)
		case did.Selected:
			fail("no volume could be provisioned for node %s: the provisioner has given up", node)
		case claim.Selected != "" && c.Node(claim.Selected):
			if !shared(name) { // a pod that shares the claim may run beside the volume that another one asks for
				fail("a volume is being provisioned for node %s", claim.Selected)
			}
		case did.Volume != "":
			if volume := c.Volume(did.Volume); volume == nil {
				fail("its volume %s does not exist any more", did.Volume)
			} else if _, again := volume.Offered(); again {
				fail("its volume %s was taken from it", did.Volume)
			}
		default:
			wishes = append(wishes, wish{len(steps), claim, claim.Ask(p.Namespace, name)})
		}
		steps = append(steps, s)
	}
	// Smaller claims first, so that large volumes are left for the others.
	slices.SortStableFunc(wishes, func(a, b wish) int { return bySize(a.ask, b.ask) })
	chosen := map[string]bool{}
	there := map[string][]*Volume{} // by StorageClass: volumes that can be used on the node, the smallest first
	for _, w := range wishes {
		if _, known := there[w.claim.Class]; !known {
			there[w.claim.Class] = offersOn(n, w.claim.Class, c)
		}
		s := &steps[w.at]
		s.Action, s.Volume, s.Why = choose(w.claim, w.ask, n, there[w.claim.Class], func(v string) bool { return chosen[v] || taken(v) }, c)
		if s.Volume != "" {
			chosen[s.Volume] = true
		}
	}
	for i := range steps {
		if s := &steps[i]; s.Why != "" && !strings.HasPrefix(s.Why, "claim ") {
			s.Why = fmt.Sprintf("claim %s: %s", s.Claim, s.Why)
		}
	}
	return steps
}

// offersOn returns the volumes that are offered to claims of a class and can be used on a node, the smallest first.
func offersOn(n *v1.Node, class string, s Supply) (out []*Volume) {
	for _, v := range s.Offers(class) {
		if matches(v.at.where, n) {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, smaller)
	return out
}

// choose decides how a claim gets a volume on a node: the one that is kept for it, else the smallest there that suits it, else a new one.
func choose(claim Claim, ask *Ask, n *v1.Node, there []*Volume, taken func(string) bool, c interface {
	Cluster
	Supply
}) (a Action, volume, why string) {
	if v := KeptFor(ask.claim.Namespace, ask.claim.Name, claim, c); v != nil {
		if !matches(v.at.where, n) {
			return Fail, "", fmt.Sprintf("volume %s is kept for it, and cannot be used on node %s", v.Name(), n.Name)
		}
		return Wait, "", "" // the volume controller binds them
	}
	for _, v := range there {
		if !taken(v.Name()) && v.Suits(ask) {
			return Keep, v.Name(), ""
		}
	}
	class := c.Class(claim.Class)
	if class == nil {
		return Fail, "", "its StorageClass " + claim.Class + " does not exist any more"
	}
	if class.Provisioner == "" {
		return Fail, "", fmt.Sprintf("no PersistentVolume of StorageClass %s that suits it is free on node %s", claim.Class, n.Name)
	}
	var makes union
	if some, why := class.provision(claim.Class, ask, c, &makes); !some {
		return Fail, "", why
	}
	if !makes.matches(n) {
		return Fail, "", fmt.Sprintf("StorageClass %s cannot provision a volume for node %s", claim.Class, n.Name)
	}
	return Select, "", ""
}

// Name of a volume that is not bound.
func (v *Volume) Name() string { return v.offer.Name }

func matches(s *v1.NodeSelector, n *v1.Node) bool {
	if s == nil {
		return true
	}
	if label := labelOf(s); label != "" { // as of most volumes; to read a selector takes longer
		value, has := n.Labels[label]
		return has && value == s.NodeSelectorTerms[0].MatchExpressions[0].Values[0]
	}
	ok, err := nodeaffinity.NewLazyErrorNodeSelector(s).Match(n)
	return ok && err == nil
}

func (u *union) matches(n *v1.Node) bool {
	return slices.ContainsFunc(u.selectors(), func(s *v1.NodeSelector) bool { return matches(s, n) })
}
