package chaos

import (
	"maps"
	"testing"
)

// Shards of both versions add up, whichever names and units they have.
func TestMetricsOfOlderShards(t *testing.T) {
	now := map[string]float64{`basalt_shard_gangs{state="waiting"}`: 1, `basalt_shard_waiting_gangs{reason="QuotaExceeded"}`: 2, `basalt_shard_nodes{state="in_sync"}`: 3,
		`basalt_shard_nodes{state="out_of_sync"}`: 1, `basalt_shard_free{resource="cpu",unit="core"}`: 2.5, `basalt_shard_buckets`: 512}
	if got := asNow(now); !maps.Equal(got, now) {
		t.Errorf("the metrics of today become %v", got)
	}
	before := asNow(map[string]float64{`basalt_shard_gangs{state="known"}`: 9, `basalt_shard_gangs{state="waiting"}`: 2, `basalt_shard_nodes{state="owned"}`: 4,
		`basalt_shard_nodes{state="out_of_sync"}`: 1, `basalt_shard_free{resource="cpu"}`: 2500, `basalt_shard_buckets`: 512})
	for name, want := range map[string]float64{"basalt_shard_waiting_gangs": 2, `basalt_shard_nodes{state="in_sync"}`: 3, `basalt_shard_nodes{state="out_of_sync"}`: 1,
		`basalt_shard_free{resource="cpu",unit="core"}`: 2.5, `basalt_shard_buckets`: 512} {
		if got := before[name]; got != want {
			t.Errorf("%s of an older shard is %g, not %g", name, got, want)
		}
	}
}
