package claims

import (
	"fmt"
	"math/bits"

	"basalt.dev/basalt/bench/prove/spec"
)

// A gang at the start.
const (
	waits   = iota // has pods, and no reservation
	placing        // reserved; its first pod is bound, and the row of the other asked for
	runs           // bound
	stuck          // reserved, and no pod bound
	grows          // started: its first pod is bound and charged, and it asks for the other
)

// Gang is one that takes part.
type Gang struct {
	Name  string
	Nodes uint8 // where its pods go: one on each of these
	Takes uint8 // gangs that it may claim
	At    uint8 // the start
	Again bool  // its pods are made again when they were evicted or have finished
}

// World is which gangs there are, and how many pods may be charged. Each node takes one pod.
type World struct {
	Name  string
	Gangs []Gang
	Limit uint8
}

const both = 3

// Worlds. The gang c claims, v and w are victims, t is a rival without claims, d claims as c does.
var Worlds = []World{
	// c needs all that v has.
	{Name: "pair", Limit: 2, Gangs: []Gang{{Name: "c", Nodes: both, Takes: 2}, {Name: "v", Nodes: both, At: runs}}},
	{Name: "again", Limit: 2, Gangs: []Gang{{Name: "c", Nodes: both, Takes: 2}, {Name: "v", Nodes: both, At: runs, Again: true}}},
	// v is being placed while it is claimed.
	{Name: "placing", Limit: 2, Gangs: []Gang{{Name: "c", Nodes: both, Takes: 2}, {Name: "v", Nodes: both, At: placing, Again: true}}},
	// c has one pod, and comes into the room of v's first pod only.
	{Name: "small", Limit: 2, Gangs: []Gang{{Name: "c", Nodes: 1, Takes: 2}, {Name: "v", Nodes: both, At: placing, Again: true}}},
	// t wants the same quota and the same room.
	{Name: "rival", Limit: 2, Gangs: []Gang{{Name: "c", Nodes: both, Takes: 2}, {Name: "v", Nodes: both, At: runs}, {Name: "t", Nodes: 1}}},
	// t has quota, and waits for room.
	{Name: "room-rival", Limit: 3, Gangs: []Gang{{Name: "c", Nodes: both, Takes: 2}, {Name: "v", Nodes: both, At: runs}, {Name: "t", Nodes: 1, At: stuck}}},
	// c has quota, and lacks room only.
	{Name: "room", Limit: 4, Gangs: []Gang{{Name: "c", Nodes: both, Takes: 2}, {Name: "v", Nodes: both, At: runs, Again: true}}},
	{Name: "room-only-rival", Limit: 5, Gangs: []Gang{{Name: "c", Nodes: both, Takes: 2}, {Name: "v", Nodes: both, At: runs}, {Name: "t", Nodes: 1, At: stuck}}},
	// c needs both v and w.
	{Name: "two", Limit: 2, Gangs: []Gang{{Name: "c", Nodes: both, Takes: 6}, {Name: "v", Nodes: 1, At: runs}, {Name: "w", Nodes: 2, At: runs}}},
	{Name: "two-rival", Limit: 3, Gangs: []Gang{{Name: "c", Nodes: both, Takes: 6}, {Name: "v", Nodes: 1, At: runs}, {Name: "w", Nodes: 2, At: runs}, {Name: "t", Nodes: 1, At: stuck}}},
	// c and d both want v.
	{Name: "claimants", Limit: 2, Gangs: []Gang{{Name: "c", Nodes: both, Takes: 2}, {Name: "v", Nodes: both, At: runs}, {Name: "d", Nodes: both, Takes: 2}}},
	{Name: "claimants-rival", Limit: 3, Gangs: []Gang{{Name: "c", Nodes: both, Takes: 2}, {Name: "v", Nodes: both, At: runs}, {Name: "d", Nodes: both, Takes: 2}, {Name: "t", Nodes: 1, At: stuck}}},
	// c needs one of them, v's room.
	{Name: "either", Limit: 2, Gangs: []Gang{{Name: "c", Nodes: 1, Takes: 10}, {Name: "v", Nodes: 1, At: runs}, {Name: "d", Nodes: both, Takes: 10}, {Name: "w", Nodes: 2, At: runs}}},
	// c runs on one node and asks for another pod, which v is in the way of.
	{Name: "grow", Limit: 2, Gangs: []Gang{{Name: "c", Nodes: both, Takes: 2, At: grows},
		{Name: "v", Nodes: 2, At: runs, Again: true}}},
	{Name: "grow-rival", Limit: 3, Gangs: []Gang{{Name: "c", Nodes: both, Takes: 2, At: grows},
		{Name: "v", Nodes: 2, At: runs}, {Name: "t", Nodes: 2, At: stuck}}},
	// v lost a pod and asks for another, which w is in the way of; c may take both of them.
	{Name: "mend", Limit: 2, Gangs: []Gang{{Name: "c", Nodes: both, Takes: 6},
		{Name: "v", Nodes: both, Takes: 4, At: grows}, {Name: "w", Nodes: 2, At: runs}}},
	{Name: "mend-again", Limit: 2, Gangs: []Gang{{Name: "c", Nodes: 1, Takes: 6},
		{Name: "v", Nodes: both, Takes: 4, At: grows, Again: true}, {Name: "w", Nodes: 2, At: runs, Again: true}}},
	// They want different victims, c's is d's second.
	{Name: "chain", Limit: 2, Gangs: []Gang{{Name: "c", Nodes: 1, Takes: 2}, {Name: "v", Nodes: 1, At: runs}, {Name: "d", Nodes: both, Takes: 10}, {Name: "w", Nodes: 2, At: runs}}},
}

// WorldNamed returns the world of a name.
func WorldNamed(name string) (World, error) {
	for _, w := range Worlds {
		if w.Name == name {
			return w, nil
		}
	}
	return World{}, fmt.Errorf("there is no world %s", name)
}

// First returns the state at the start.
func (m *machine) First() state {
	s := state{term: 1, limit: m.World.Limit, left: m.Faults.faults()}
	for g := range uint8(gangs) {
		is := &s.gangs[g]
		if int(g) >= len(m.World.Gangs) {
			is.phase = gone
			continue
		}
		at := m.World.Gangs[g]
		is.try = 1
		if at.At != waits {
			is.record, is.attempt, is.demand, is.current = open, 1, m.demand[g], 1
		}
		if at.At == grows {
			is.demand = 1
		}
		is.phase = [...]uint8{asking, committing, done, granted, asking}[at.At]
		for n := range uint8(nodes) {
			p := &is.pods[n]
			switch {
			case at.Nodes>>n&1 == 0:
				continue
			case at.At == runs || (at.At == placing || at.At == grows) && n == 0:
				*p = pod{kube: bound, attempt: 1}
				s.nodes[n].occupant = g + 1
			case at.At == placing:
				*p = pod{kube: pending, row: asked}
				s.nodes[n].hold = g + 1
				is.room[n] = held
			default:
				p.kube = pending
			}
		}
	}
	return s
}

func newMachine(cfg Config) *machine {
	m := &machine{Config: cfg, weak: spec.Weak(cfg.Weak)}
	for g, at := range cfg.World.Gangs {
		m.demand[g] = uint8(bits.OnesCount8(at.Nodes))
		m.takes[g] = at.Takes
		m.nodes[g] = at.Nodes
		m.again[g] = at.Again
		m.victims |= at.Takes
	}
	return m
}
