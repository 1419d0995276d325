package volume

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// User is a pod that uses a claim, or waits to use it.
type User struct {
	UID     types.UID
	Name    string
	Created time.Time
	Group   string // of pods that start together, "" for none
	Placed  bool   // has a node
}

// before is the order in which pods of one gang that wait may use a claim.
func (u *User) before(o *User) bool {
	if !u.Created.Equal(o.Created) {
		return u.Created.Before(o.Created)
	}
	return u.UID < o.UID
}

// Usage says which pods use a claim of which only one pod at a time may be the user: all pods with a node, and those without one that
// Basalt places, as long as they have not ended. It has what the rule needs of them.
type Usage struct {
	Holders [2]*User // two pods with a node
	First   *User    // of those without one
}

// Add counts a user.
func (u *Usage) Add(p *User) {
	switch {
	case !p.Placed:
		if u.First == nil || p.before(u.First) {
			u.First = p
		}
	case u.Holders[0] == nil || p.before(u.Holders[0]):
		u.Holders[0], u.Holders[1] = p, u.Holders[0]
	case u.Holders[1] == nil || p.before(u.Holders[1]):
		u.Holders[1] = p
	}
}

// refuses says why a pod may not use the claim now, "" if it may. Which of several pods that wait is the one is decided when their rows are
// judged in the order of the log of intents (package topology); but of one gang only one is a candidate, or all of them would be judged together.
func (u *Usage) refuses(uid types.UID, group string) string {
	for _, h := range u.Holders {
		if h != nil && h.UID != uid {
			return "the claim is ReadWriteOncePod, and pod " + h.Name + " uses it" + together(group, h)
		}
	}
	if f := u.First; f != nil && f.UID != uid && together(group, f) != "" {
		return "the claim is ReadWriteOncePod, and pod " + f.Name + ", which is older, waits for it, too" + together(group, f)
	}
	return ""
}

// together warns of a pod that is to run at the same time.
func together(group string, o *User) string {
	if group == "" || group != o.Group {
		return ""
	}
	return "; they are of one gang, and can never run together"
}

// Has reports whether a user is among those that it has.
func (u *Usage) Has(p *User) bool { return slices.Contains(u.Holders[:], p) || u.First == p }
