package leadership

import (
	"maps"
	"slices"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/coordinator"
)

// Members are the shards that are registered, as a term's core knows them.
type Members map[api.Incarnation]*wire.ShardRecord

// NewMembers returns the shards that a term begins with.
func NewMembers(shards []*wire.ShardRecord) Members {
	m := Members{}
	for _, s := range shards {
		m[api.Incarnation(s.Incarnation)] = s
	}
	return m
}

// Changed takes a newer list of the shards that are registered, and returns what the core hears of it: those that are new, have
// another address or are being drained, and those that are gone.
func (m Members) Changed(now []*wire.ShardRecord) (events []coordinator.Event) {
	after := NewMembers(now)
	for _, s := range now {
		if old := m[api.Incarnation(s.Incarnation)]; old == nil || old.Draining != s.Draining || old.Address != s.Address {
			events = append(events, coordinator.ShardUp{Record: s})
		}
	}
	for _, who := range slices.Sorted(maps.Keys(m)) {
		if after[who] == nil {
			events = append(events, coordinator.ShardDown{Incarnation: who})
		}
	}
	clear(m)
	maps.Copy(m, after)
	return events
}
