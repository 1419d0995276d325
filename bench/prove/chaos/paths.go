package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"basalt.dev/basalt/bench/stage/local/network"
)

// Broken paths between namespaces. The names are those that members, the API server and the store's members have there.

// missing says why a fault cannot be made here; empty if it can.
func (a *attack) missing(kind string) string {
	switch {
	case strings.HasPrefix(kind, "net-") && a.Network == nil:
		return a.NoNetwork
	case kind == "other-version" && a.Old == "":
		return a.NoOld
	case kind == "crash-point" && len(a.Points) == 0:
		return "the programs have no crash points"
	case strings.Contains(kind, "store-leader") && len(a.stores()) < 2:
		return "the control store has one member"
	}
	return ""
}

func (a *attack) storeNames() (all []string) {
	for i := range a.stores() {
		all = append(all, fmt.Sprintf("store-%d", i))
	}
	return all
}

func (a *attack) everybody() []string {
	all := append(a.storeNames(), "api")
	for _, m := range a.members {
		all = append(all, m.name)
	}
	return all
}

// cut loses packets between one place and others, in both directions or, drawn, in one, for a while.
func (a *attack) cut(one string, others []string, percent int, oneWay bool, most time.Duration) {
	direction := a.rand.IntN(2)
	d := between(a.rand, time.Second, most)
	var paths []network.Path
	for _, other := range others {
		if other == one {
			continue
		}
		if !oneWay || direction == 0 {
			paths = append(paths, network.Path{From: one, To: other})
		}
		if !oneWay || direction == 1 {
			paths = append(paths, network.Path{From: other, To: one})
		}
	}
	a.about = ""
	if len(paths) > 0 {
		a.about = fmt.Sprintf("%s and %s, %d %% of the packets of %d paths for %s", one, strings.Join(others, " "), percent, len(paths), d.Round(time.Millisecond))
		a.breakPaths(percent, paths, d)
	}
}

func (a *attack) breakPaths(percent int, paths []network.Path, d time.Duration) {
	if err := a.Network.Break(percent, paths...); err != nil {
		a.about = ""
		a.logf("HARNESS %v", err)
		return
	}
	a.lasting(d, func() {
		if err := a.Network.Mend(percent, paths...); err != nil {
			a.logf("HARNESS %v", err)
		}
	})
}

func (a *attack) cutStoreLeader(oneWay bool) {
	leader := a.storeLeader()[0]
	name := fmt.Sprintf("store-%d", slices.Index(a.stores(), leader))
	a.cut(name, a.storeNames(), 100, oneWay, 8*time.Second)
}

// split cuts the processes in two halves that hear nothing of each other; both still reach the servers. In a long run it
// lasts as long as memberlist needs to forget who was on the other side.
func (a *attack) split() {
	ok, done := a.once("split")
	if !ok {
		return
	}
	d := between(a.rand, 3*time.Second, 10*time.Second)
	if a.For >= 5*time.Minute {
		d = 90 * time.Second
	}
	half := a.rand.Perm(len(a.members))[:len(a.members)/2]
	var paths []network.Path
	var alone []string
	for _, i := range half {
		alone = append(alone, a.members[i].name)
		for j, other := range a.members {
			if !slices.Contains(half, j) {
				paths = append(paths, network.Path{From: a.members[i].name, To: other.name}, network.Path{From: other.name, To: a.members[i].name})
			}
		}
	}
	a.about = fmt.Sprintf("%s from the others for %s", strings.Join(alone, " "), d.Round(time.Millisecond))
	a.breakPaths(100, paths, d)
	a.lasting(d, done)
}
