package chaos

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"basalt.dev/basalt/bench/local"
	"basalt.dev/basalt/bench/local/localtest"
)

// TestChaos runs a short mix. For more:
//
//	BASALT_CHAOS_SEEDS=1-20   a seed, a range, or several of these with commas
//	BASALT_CHAOS_FOR=2m       how long faults last in each
//	BASALT_CHAOS_FAULTS=…     only these kinds, with commas
//	BASALT_CHAOS_PROGRAM=…    this program and not the one that is built from the tree, which others may be changing
//	BASALT_CHAOS_KEEP=folder  keeps logs, data and the report of each seed below it; the shards and coordinators log more
func TestChaos(t *testing.T) {
	seeds, err := readSeeds(cmp.Or(os.Getenv("BASALT_CHAOS_SEEDS"), "1"))
	if err != nil {
		t.Fatal("BASALT_CHAOS_SEEDS:", err)
	}
	lasts, err := time.ParseDuration(cmp.Or(os.Getenv("BASALT_CHAOS_FOR"), "20s"))
	if err != nil {
		t.Fatal("BASALT_CHAOS_FOR:", err)
	}
	var kinds []string
	if only := os.Getenv("BASALT_CHAOS_FAULTS"); only != "" {
		kinds = strings.Split(only, ",")
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { oneSeed(t, seed, lasts, kinds) })
	}
}

func oneSeed(t *testing.T, seed uint64, lasts time.Duration, kinds []string) {
	o := local.Options{Basalt: os.Getenv("BASALT_CHAOS_PROGRAM")}
	if o.Basalt == "" {
		o.Basalt = localtest.Basalt(t)
	}
	keep := os.Getenv("BASALT_CHAOS_KEEP")
	logf := t.Logf
	var c *local.Cluster
	if keep == "" {
		c = localtest.Cluster(t, o)
	} else {
		o.Dir = filepath.Join(keep, fmt.Sprint(seed))
		if err := os.RemoveAll(o.Dir); err != nil {
			t.Fatal(err)
		}
		var err error
		if c, err = local.Start(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := c.Stop(); err != nil {
				t.Error(err)
			}
		}()
		f, err := os.Create(filepath.Join(o.Dir, "chaos.log"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		logf = func(format string, args ...any) {
			fmt.Fprintf(f, time.Now().Format("15:04:05.000 ")+format+"\n", args...)
		}
	}
	result, err := Run(t.Context(), Options{
		Cluster: c, Seed: seed, For: lasts, Rest: 3 * time.Minute, Faults: kinds, Verbose: keep != "", Log: logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	summary := fmt.Sprintf("seed %d: faults %v; gangs %v; waited %v; %d pods; %d starts; at rest %s after the faults", seed, result.Faults,
		result.Gangs, result.Waited, result.Pods, result.Starts, result.Rested.Round(time.Millisecond))
	logf("%s", summary)
	t.Log(summary)
	for _, p := range result.Problems {
		logf("PROBLEM %s", p)
		t.Error(p)
	}
	if result.Pods == 0 || len(kinds) == 0 && len(result.Faults) == 0 {
		t.Error("there was no load, or nothing was done to it")
	}
}

func readSeeds(text string) (seeds []uint64, err error) {
	for part := range strings.SplitSeq(text, ",") {
		first, last, ranged := strings.Cut(part, "-")
		from, err := strconv.ParseUint(first, 10, 64)
		to := from
		if err == nil && ranged {
			to, err = strconv.ParseUint(last, 10, 64)
		}
		if err != nil || to < from || to-from > 100_000 {
			return nil, fmt.Errorf("%q is no seed and no range of seeds", part)
		}
		for s := from; s <= to; s++ {
			seeds = append(seeds, s)
		}
	}
	return seeds, nil
}
