package main

import "testing"

// TestScores: at least 95 % of the pods that some nodes are better for go to a node to which kube-scheduler gives its highest score, over
// one shard and over three.
func TestScores(t *testing.T) { scores(t, leanNot) }

// TestImageScores: the same where some nodes have the pods' images, although Basalt rounds the share of the nodes that have one, and each shard
// takes that of its own nodes.
func TestImageScores(t *testing.T) { scores(t, leanImages) }

func scores(t *testing.T, l lean) {
	for _, shards := range []int{1, 3} {
		var all Scores
		for seed := range uint64(40) {
			s, err := Score(seed+1, shards, l)
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

// TestLeaningScores: the same of pods that prefer some pods around them. What the pods that are there prefer is left out of kube-scheduler's
// score; with it the share is smaller. Over several shards, what a pod prefers of several sorts is weighed less exactly.
func TestLeaningScores(t *testing.T) {
	for _, row := range []struct {
		of     string
		lean   lean
		shards int
		least  float64
	}{{"one preference", leanSingly, 1, 99}, {"one preference", leanSingly, 3, 97}, {"several", leanMuch, 1, 97}, {"several", leanMuch, 3, 87},
		{"one preference", leanSingly, 8, 94}, {"several", leanMuch, 8, 75}} {
		var all Scores
		for seed := range uint64(40) {
			s, err := Score(seed+1, row.shards, row.lean)
			if err != nil {
				t.Fatal(err)
			}
			all.add(s)
		}
		t.Logf("%s, %d shards: %+v: %.2f %% of all, %.2f %% of those with a choice; with what other pods prefer %.2f %%", row.of, row.shards, all,
			percent(all.Top, all.Pods), percent(all.ChoosyTop, all.Choosy), percent(all.Heard, all.Pods))
		if all.Choosy < 1000 || percent(all.ChoosyTop, all.Choosy) < row.least || all.Refused > all.Pods/100 {
			t.Errorf("%s, %d shards: %+v", row.of, row.shards, all)
		}
	}
}

func percent(part, whole int) float64 { return 100 * float64(part) / float64(max(whole, 1)) }
