package main

import "testing"

// TestScores: at least 95 % of the pods that some nodes are better for go to a node to which kube-scheduler gives its highest score, over
// one shard and over three.
func TestScores(t *testing.T) {
	for _, shards := range []int{1, 3} {
		var all Scores
		for seed := range uint64(40) {
			s, err := Score(seed+1, shards)
			if err != nil {
				t.Fatal(err)
			}
			all.add(s)
		}
		t.Logf("%d shards: %+v: %.2f %% of all, %.2f %% of those with a choice", shards, all, percent(all.Top, all.Pods), percent(all.ChoosyTop, all.Choosy))
		if all.Choosy < 1000 || percent(all.ChoosyTop, all.Choosy) < 95 || all.Refused > all.Pods/100 {
			t.Errorf("%d shards: %+v", shards, all)
		}
	}
}

func percent(part, whole int) float64 { return 100 * float64(part) / float64(max(whole, 1)) }
