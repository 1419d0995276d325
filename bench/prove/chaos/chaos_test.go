package chaos_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/bench/prove/chaos"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/bench/stage/local/network"
)

// TestChaos runs a short mix. For more:
//
//	BASALT_CHAOS_SEEDS=1-20   a seed, a range, or several of these with commas
//	BASALT_CHAOS_FOR=2m       how long faults last in each
//	BASALT_CHAOS_FAULTS=…     only these kinds, with commas
//	BASALT_CHAOS_PROGRAM=…    this program and not the one that is built from the tree, which others may be changing
//	BASALT_CHAOS_SIZE=large   five shards to eight and three coordinators, not three to four and two
//	BASALT_CHAOS_POINTS=all   visit every crash point; with names and commas, these
//	BASALT_CHAOS_OLD=HEAD~1   mix in an older version, as in a rolling update
//	BASALT_CHAOS_LONG=yes     most pods run for long
//	BASALT_CHAOS_KEEP=folder  keeps logs, data and the report of each seed below it; the shards and coordinators log more
func TestChaos(t *testing.T) {
	seeds, err := readSeeds(cmp.Or(os.Getenv("BASALT_CHAOS_SEEDS"), "1"))
	if err != nil {
		t.Fatal("BASALT_CHAOS_SEEDS:", err)
	}
	lasts, err := time.ParseDuration(cmp.Or(os.Getenv("BASALT_CHAOS_FOR"), "15s"))
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
	o := local.Options{Basalt: os.Getenv("BASALT_CHAOS_PROGRAM"), ControlStoreMembers: 3}
	if o.Basalt == "" {
		o.Basalt = localtest.BasaltWithFaults(t)
	}
	run := chaos.Options{Seed: seed, For: lasts, Rest: 4 * time.Minute, Faults: kinds, Points: points(os.Getenv("BASALT_CHAOS_POINTS"))}
	if run.NoOld = "BASALT_CHAOS_OLD names no commit"; os.Getenv("BASALT_CHAOS_OLD") != "" {
		root, err := local.Root()
		if err != nil {
			t.Fatal(err)
		}
		if run.Old, err = local.Old(t.Context(), root, os.Getenv("BASALT_CHAOS_OLD")); err != nil {
			run.NoOld = err.Error()
		}
	}
	run.Long = os.Getenv("BASALT_CHAOS_LONG") != ""
	if os.Getenv("BASALT_CHAOS_SIZE") == "large" {
		run.Shards, run.MostShards, run.Coordinators = 5, 8, 3
	}
	if net, err := network.New(); err != nil {
		run.NoNetwork = err.Error()
		t.Log("no network namespaces: ", err)
	} else {
		t.Cleanup(net.Close) // after the cluster, which is cleaned up first
		run.Network, o.Network = net, net
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
	run.Cluster, run.Verbose, run.Log = c, keep != "", logf
	result, err := chaos.Run(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	fmt.Fprintf(&table, "seed %d:\n", seed)
	result.Write(&table)
	logf("%s", table.String())
	t.Log(table.String())
	for _, p := range result.Problems {
		t.Error(p)
	}
	if result.Pods == 0 || len(kinds) == 0 && len(result.Faults) == 0 {
		t.Error("there was no load, or nothing was done to it")
	}
}

func points(text string) (out []fault.Point) {
	switch text {
	case "": // a few, so that a short run stays short
		return []fault.Point{fault.IntentsDurable, fault.BindingUnsent, fault.BindingAnswered, fault.GrantDurable, fault.ReleaseDurable}
	case "none":
		return nil
	case "all":
		return fault.Points
	}
	for name := range strings.SplitSeq(text, ",") {
		out = append(out, fault.Point(name))
	}
	return out
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
