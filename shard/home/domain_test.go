package home

import (
	"strings"
	"testing"
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
	if all := &s.core.surveys; len(all.of) != 2 || len(all.open) != 1 {
		t.Errorf("%d surveys are kept, %d of them open: the one that began now, and the one that was ended then are meant", len(all.of), len(all.open))
	}
	s.run("tick 200ms")
	s.run("probed a")
	s.run("probed b")
	s.run("tick 5s")
	s.run("group e min=1 queue=team require=row")
	s.run("pod e1 group=e")
	s.run("grant e")
	if all := &s.core.surveys; len(all.of) != 1 || len(all.open) != 1 {
		t.Errorf("%d surveys are kept, %d of them open: the one that began now is meant", len(all.of), len(all.open))
	}
	if a := s.core.gangs["g"].search.area; a != nil {
		t.Errorf("a gang that runs keeps the answers by which it was placed: %v", a.keys)
	}
}
