package audit

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// findings is what is wrong, and what will be if it lasts.
type findings struct {
	now     time.Time
	ticked  time.Time // the last Tick
	keep    int       // violations, with their words
	found   []Violation
	counts  map[Kind]map[string]int
	lasting map[lastingKey]*lasting
}

func newFindings(keep int) findings {
	return findings{keep: keep, counts: map[Kind]map[string]int{}, lasting: map[lastingKey]*lasting{}}
}

func (f *findings) storeViolation(k Kind, object string, revisions []int64, format string, args ...any) {
	f.violate(Violation{Kind: k, Object: object, Message: fmt.Sprintf(format, args...), Revisions: revisions})
}

func (f *findings) violate(v Violation) {
	objects := f.counts[v.Kind]
	if objects == nil {
		objects = map[string]int{}
		f.counts[v.Kind] = objects
	}
	objects[v.Object]++
	if objects[v.Object] == 1 && len(f.found) < f.keep {
		v.Time = f.now
		f.found = append(f.found, v)
	}
}

// lastingKey names a state that is wrong only if it lasts.
type lastingKey struct {
	kind   Kind
	object string
	what   string
}

type lasting struct {
	since time.Time
	limit time.Duration
	fired bool
	fire  func(since time.Time)
}

// lasts says whether a state holds now; fire runs once when it has held for longer than the limit without a break.
func (f *findings) lasts(key lastingKey, holds bool, limit time.Duration, fire func(since time.Time)) {
	l := f.lasting[key]
	switch {
	case !holds:
		delete(f.lasting, key)
	case l == nil:
		f.lasting[key] = &lasting{since: f.now, limit: limit, fire: fire}
	}
}

// later judges something once, when so much time has passed in sight: nothing of it stands afterwards.
func (f *findings) later(key lastingKey, after time.Duration, judge func(since time.Time)) {
	f.lasts(key, true, after, func(since time.Time) {
		delete(f.lasting, key)
		judge(since)
	})
}

// tick returns how much time has passed since the last tick; first says that there was none.
func (f *findings) tick() (passed time.Duration, first bool) {
	passed, first = f.now.Sub(f.ticked), f.ticked.IsZero()
	f.ticked = f.now
	return passed, first
}

// hold lets time pass in which nothing lasts.
func (f *findings) hold(passed time.Duration) {
	for _, l := range f.lasting {
		if !l.fired {
			l.limit += min(passed, f.now.Sub(l.since))
		}
	}
}

// fire runs what is due of that which has lasted.
func (f *findings) fire() {
	var due []lastingKey
	for k, l := range f.lasting {
		if !l.fired && f.now.Sub(l.since) > l.limit {
			due = append(due, k)
		}
	}
	slices.SortFunc(due, func(x, y lastingKey) int {
		return cmp.Or(f.lasting[x].since.Compare(f.lasting[y].since), cmp.Compare(x.kind, y.kind),
			cmp.Compare(x.object, y.object), cmp.Compare(x.what, y.what))
	})
	for _, k := range due {
		if l := f.lasting[k]; l != nil { // firing one may end another
			l.fired = true
			l.fire(l.since)
		}
	}
}
