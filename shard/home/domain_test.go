package home

import (
	"fmt"
	"strings"
	"testing"

	"basalt.dev/basalt/api"
)

// play runs commands of scripts.
func play(t *testing.T, commands string) *script {
	s := newScript(t, Config{})
	for line := range strings.Lines(commands) {
		if line = strings.TrimSpace(line); line != "" {
			s.line = line
			s.run(line)
		}
	}
	return s
}

const aboutRacks = `
	coordinator 1
	table 1 a:team b
	namespace ns
	node n1 cpu=8 labels=rack:r1,block:b1
	store 1 10
	pods 1
`

// TestSurveysAreDropped: neither answers that are not used any more stay, nor questions of gangs that are gone, nor those of gangs that run.
func TestSurveysAreDropped(t *testing.T) {
	s := play(t, aboutRacks+`
		group g min=1 queue=team require=rack
		pod p1 group=g
		grant g
		probed a r1:1
		probed b
		held a g p1@n1
		commit a g PREPARED
		bound a g p1@n1
		pod p1 group=g node=n1
		group h min=1 queue=team require=block
		pod q1 group=h
		grant h
		podgone q1
		groupgone h
		tick 5s
		group f min=1 queue=team require=zone
		pod o1 group=f
		grant f
	`)
	if all := &s.core.domains.surveys; len(all.of) != 2 || len(all.open) != 1 {
		t.Errorf("%d surveys are kept, %d of them open: the one that began now, and the one that was ended then are meant", len(all.of), len(all.open))
	}
	s.run("tick 200ms")
	s.run("probed a")
	s.run("probed b")
	s.run("tick 5s")
	s.run("group e min=1 queue=team require=row")
	s.run("pod e1 group=e")
	s.run("grant e")
	if all := &s.core.domains.surveys; len(all.of) != 1 || len(all.open) != 1 {
		t.Errorf("%d surveys are kept, %d of them open: the one that began now is meant", len(all.of), len(all.open))
	}
	if a := s.core.gangs["g"].search.area; a != nil {
		t.Errorf("a gang that runs keeps the answers by which it was placed: %v", a.keys)
	}
}

// TestSliceLooksAtTheTightestFirst: of the domains that have room for all parts, those that are not as tight as the one that takes them are not
// looked at. One of them would not survive that.
func TestSliceLooksAtTheTightestFirst(t *testing.T) {
	class := api.NewClass(cores(1, 1), nil)
	x := &survey{keys: []string{"block", "clique"}, classes: []*api.Class{class}, rooms: map[string]*room{}}
	for _, r := range []*room{{values: []string{"b1", "c1"}, pods: []int64{100}}, {values: []string{"b1", "c2"}}, {values: []string{"b2", "c3"}, pods: []int64{4}}, {values: []string{"b3", "c4"}, pods: []int64{3}}} {
		x.rooms[r.id()] = r
	}
	var parts []part
	for i := range 4 {
		p := podOf(&api.Pod{UID: fmt.Sprint("p", i), Class: class})
		parts = append(parts, part{pods: []*pod{p}})
	}
	a, put := x.slice(wanted{parts: parts, size: 1}, nil, &tried{})
	if a == nil || put != 4 || a.values[0] != "b2" {
		t.Fatalf("%d of 4 parts are put into %v, b2 is meant", put, a)
	}
}

// TestChooseComparesNoClasses: it is given numbers of pods, so what it does for each domain does not depend on how large the classes are.
func TestChooseComparesNoClasses(t *testing.T) {
	x := &survey{keys: []string{"rack"}, rooms: map[string]*room{}}
	var kinds []kind
	for i := range maxSurveyed + 1 {
		class := api.NewClass(cores(1, 1), []byte(fmt.Sprint("constraints ", i)))
		if i < maxSurveyed {
			x.classes = append(x.classes, class)
		}
		kinds = append([]kind{{class, make([]*pod, i+1)}}, kinds...)
	}
	need := x.need(kinds)
	for i, n := range need {
		if n != int64(i+1) {
			t.Errorf("%d pods of class %d are needed, not %d", i+1, i, n)
		}
	}
	x.classes = nil
	for _, r := range []*room{{values: []string{"r1"}, pods: need}, {values: []string{"r2"}, pods: make([]int64, maxSurveyed)}} {
		x.rooms[r.id()] = r
	}
	if a, _ := x.choose(need, wanted{}, nil, &tried{}); a == nil || a.values[0] != "r1" {
		t.Errorf("%v is chosen, r1 has room", a)
	}
}

// TestSliceKeepsDomainsThatLackPods: a slice that lacks a pod finds its domain, however many others have more room.
func TestSliceKeepsDomainsThatLackPods(t *testing.T) {
	class := api.NewClass(cores(1, 1), nil)
	x := &survey{keys: []string{"clique"}, classes: []*api.Class{class}, rooms: map[string]*room{}}
	for i := range maxSlicedRooms + 10 {
		r := &room{values: []string{fmt.Sprint("c", i)}, pods: []int64{2}}
		if i == 7 {
			r.pods[0] = 1
		}
		x.rooms[r.id()] = r
	}
	one := part{pods: []*pod{podOf(&api.Pod{UID: "p", Class: class})}, in: domainID([]string{"c7"})}
	a, _ := x.slice(wanted{parts: []part{one}, size: 4, fails: failsParts}, nil, &tried{})
	if a == nil || a.of["p"].values[0] != "c7" {
		t.Errorf("%v is chosen, c7 lacks the pod", a)
	}
}
