package main

import "testing"

// TestTiers: each pod that has a class of nodeTiers goes to a node of the best tier that has one which can take it, and
// none waits. Over three shards, what the home knows of the others may be a moment old.
func TestTiers(t *testing.T) {
	for shards, least := range map[int]float64{1: 100, 3: 99} {
		var all Tiered
		for seed := range uint64(24) {
			s, err := PlaceTiered(seed+1, shards)
			if err != nil {
				t.Fatal(err)
			}
			all.add(s)
		}
		t.Logf("%d shards: %+v: %.2f %% of those with a choice", shards, all, percent(all.ChoosyBest, all.Choosy))
		if all.Choosy < 1000 || all.Changed < 200 || percent(all.ChoosyBest, all.Choosy) < least || all.Refused > 0 {
			t.Errorf("%d shards: %+v", shards, all)
		}
	}
}
