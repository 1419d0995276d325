package volume

import (
	"fmt"
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

// before is the order in which pods that wait may use a claim.
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
	Waiting [2]*User // the first two of those without one
}

// Add counts a user.
func (u *Usage) Add(p *User) {
	list, better := &u.Waiting, p.before
	if p.Placed {
		list = &u.Holders
	}
	switch {
	case list[0] == nil || better(list[0]):
		list[0], list[1] = p, list[0]
	case list[1] == nil || better(list[1]):
		list[1] = p
	}
}

// Apart is how much later than the first pod the others have to be created for it to go first.
//
// Shards decide at different times, each by what it has seen of all pods. If one lets pod P go that has not seen pod Q yet, and
// another lets Q go that has seen both, both may be placed. A watch shows pods in the order in which they were stored. So let P be
// stored before Q. Who knows Q knows P, and lets Q go only if Q was created before P, by the time in the object; and that is only
// wrong if the times are not in the order of the store: clocks of API servers differ, and a request is given its time before
// admission webhooks that may take 30 seconds, and is stored within its minute. With more than that between them, the order of the
// times is the order of the store: nobody lets Q go as long as P is there and can be placed. Pods that were created closer together
// both wait.
const Apart = 2 * time.Minute

// refuses says why a pod may not use the claim now, "" if it may.
func (u *Usage) refuses(uid types.UID, group string) string {
	for _, h := range u.Holders {
		if h != nil && h.UID != uid {
			return "the claim is ReadWriteOncePod, and pod " + h.Name + " uses it" + together(group, h)
		}
	}
	first, second := u.Waiting[0], u.Waiting[1]
	clear := second == nil || second.Created.Sub(first.Created) > Apart
	switch {
	case first == nil || first.UID == uid && clear:
		return ""
	case clear:
		return "the claim is ReadWriteOncePod, and pod " + first.Name + ", which is older, waits for it, too" + together(group, first)
	}
	other := first
	if first.UID == uid {
		other = second
	}
	return fmt.Sprintf("the claim is ReadWriteOncePod, and pods %s and %s that wait for it were created within %v: it is not safe to choose one of them; "+
		"delete one%s", first.Name, second.Name, Apart, together(group, other))
}

// together warns of a pod that is to run at the same time.
func together(group string, o *User) string {
	if group == "" || group != o.Group {
		return ""
	}
	return "; they are of one gang, and can never run together"
}

// Has reports whether a user is among those that it has.
func (u *Usage) Has(p *User) bool {
	return slices.Contains(u.Holders[:], p) || slices.Contains(u.Waiting[:], p)
}
