package coordinator

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// Limits of users. spec.userLimits of a Queue is a list, of which for each gang the first entry counts that names its
// user, or a group of his, or says each: what the user may be charged in the queue and below it; of an entry with
// groups, all of them together. Who the user is, the home says with the first Reserve of an attempt, and the record
// keeps it: an edit counts for the next attempt, and a successor knows it.
//
// What a user has is a sum of its own in each queue that limits users: what his gangs are charged there, and what was
// promised to their claims. So a limit is exact over all homes, as a capability is. It is asked before all that waiting
// can cure: a gang that its user's limit keeps waiting is wanted by no queue, gets no earmark, mandate or bar, and so
// is in nobody's way. It is woken when that user has less. A limit that was lowered evicts nobody; a claim that does
// not fit it any more is dropped.
//
// Users are known here while they are charged, so many of a queue one by one (usersAtMost). Those that come when there
// are more share one sum, and so one limit, for each entry, as long as anything is charged to it: all that is charged
// to a user is always in one sum, so no limit is exceeded.

const usersAtMost = 4096

// who is whose gang it is.
type who struct {
	user   string
	groups []string
}

// whoSaid reads what a Reserve or a record says, nil for nothing: then it is its namespace's.
func whoSaid(user string, groups []string) *who {
	if user == "" {
		return nil
	}
	w := &who{user: api.Shorten(user, api.MaxUserName)}
	for _, g := range groups {
		if len(w.groups) < api.MaxGroups && len(g) <= api.MaxUserName {
			w.groups = append(w.groups, g)
		}
	}
	return w
}

// said is what a record says.
func (w *who) said() (user string, groups []string) {
	if w == nil {
		return "", nil
	}
	return w.user, w.groups
}

// bytes bounds what that takes in a record.
func (w *who) bytes() (n int) {
	if w == nil {
		return 0
	}
	for _, g := range w.groups {
		n += len(g) + 4
	}
	return n + len(w.user) + 4
}

// named returns the user by whom a gang of a namespace is counted.
func (w *who) named(namespace string) who {
	if w == nil {
		return who{user: api.NamespaceUser(namespace)}
	}
	return *w
}

// key tells users of one namespace apart.
func (w *who) key() string {
	user, groups := w.said()
	return user + "\x00" + strings.Join(groups, "\x00")
}

// userLimit is an entry of spec.userLimits.
type userLimit struct {
	users, groups []string
	each          bool
	capability    api.Resources
}

// readUserLimits reads what a record says.
func readUserLimits(in []*wire.UserLimit) (out []userLimit, err error) {
	for i, l := range in {
		capability, err := wire.ToResources(l.GetCapability())
		if err != nil {
			return nil, fmt.Errorf("userLimits[%d]: %w", i, err)
		}
		out = append(out, userLimit{l.GetUsers(), l.GetGroups(), l.GetEach(), capability})
	}
	return out, nil
}

// userAccount is what a user has in a queue, or all users of an entry with groups.
type userAccount struct {
	key   string
	words string // who it is, for people
	limit *userLimit
	group bool // others are counted with him
	has   account
	gangs int
}

// users are the accounts of a queue that limits users.
type users struct {
	limits   []userLimit
	accounts map[string]*userAccount
	single   int // of them that are for one user whom no entry names
}

func newUsers(limits []userLimit) *users {
	if len(limits) == 0 {
		return nil
	}
	return &users{limits: limits, accounts: map[string]*userAccount{}}
}

// limitsUsers reports whether the queue or one above it does.
func (q *queue) limitsUsers() bool {
	for range q.limiting() {
		return true
	}
	return false
}

// limiting are the queues of the path that limit users, from the queue up.
func (q *queue) limiting() iter.Seq[*queue] {
	return func(yield func(*queue) bool) {
		for p := q; p != nil; p = p.parent {
			if p.users != nil && !yield(p) {
				return
			}
		}
	}
}

// of returns the account of a user, made but not kept where he has none; nil if no entry is about him.
func (u *users) of(w who) *userAccount {
	for i := range u.limits {
		l := &u.limits[i]
		switch {
		case slices.Contains(l.users, w.user):
			return u.known(userAccount{key: "u" + w.user, words: fmt.Sprintf("user %q", w.user), limit: l})
		case l.each:
			one := userAccount{key: "u" + w.user, words: fmt.Sprintf("user %q", w.user), limit: l}
			if known := u.accounts[one.key]; known != nil {
				return known
			}
			rest := fmt.Sprintf("r%d", i)
			if u.single < usersAtMost && u.accounts[rest] == nil {
				return &one
			}
			return u.known(userAccount{key: rest, limit: l, group: true, words: fmt.Sprintf(
				"user %q, together with others as there are more than %d,", w.user, usersAtMost)})
		}
		for _, g := range l.groups {
			if slices.Contains(w.groups, g) {
				return u.known(userAccount{key: fmt.Sprintf("g%d", i), words: fmt.Sprintf("group %q", g),
					limit: l, group: true})
			}
		}
	}
	return nil
}

// known returns the account of that key, or the one given.
func (u *users) known(a userAccount) *userAccount {
	if known := u.accounts[a.key]; known != nil {
		return known
	}
	return &a
}

// open counts a gang of a user, and returns the account that it is charged to; nil if no entry is about him.
func (u *users) open(w who) *userAccount {
	a := u.of(w)
	if a == nil {
		return nil
	}
	if a.gangs == 0 {
		u.accounts[a.key] = a
		if a.isSingle() {
			u.single++
		}
	}
	a.gangs++
	return a
}

// leave takes away what open counted.
func (u *users) leave(a *userAccount) {
	if a.gangs--; a.gangs == 0 {
		delete(u.accounts, a.key)
		if a.isSingle() {
			u.single--
		}
	}
}

func (a *userAccount) isSingle() bool { return a.limit.each && !a.group }

// free is how much of a resource the user may have more, and whether that is limited.
func (a *userAccount) free(resource string) (wide, bool) {
	limit, limited := a.limit.capability.Get(resource)
	return wide{}.plus(limit).sub(a.has.get(resource)), limited
}

// lacks returns the first resource of which a user would have too much, and how much too much; "" for none. Of the
// whole of what a gang would be charged, it says so first where no waiting helps.
func (a *userAccount) lacks(delta, demand api.Resources) (resource string, short int64, never bool) {
	for _, d := range demand {
		if limit, limited := a.limit.capability.Get(d.Resource); limited && d.Value > limit &&
			delta.Value(d.Resource) > 0 {
			return d.Resource, api.AddSat(d.Value, -limit), true
		}
	}
	for _, d := range delta {
		if free, limited := a.free(d.Resource); limited && d.Value > 0 && free.plus(-d.Value).amount() < 0 {
			return d.Resource, -free.plus(-d.Value).amount(), false
		}
	}
	return "", 0, false
}
