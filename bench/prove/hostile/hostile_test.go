package hostile_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"basalt.dev/basalt/bench/prove/hostile"
	"basalt.dev/basalt/bench/prove/seeds"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// TestHostile is the short form: one attack a day, all of them in full, most at once, with a few objects each.
// What it asserts does not depend on how fast this machine is; `make hostile` measures that too. It takes a minute
// because after the attacks a second auditor has to come to the same result.
func TestHostile(t *testing.T) {
	attacks := hostile.Attacks()
	if !seeds.InFull() {
		attacks = slices.DeleteFunc(attacks, func(a hostile.Attack) bool {
			return a.Name == "quantities" // it keeps the API server from answering anybody
		})
		attacks = seeds.OfTheDay(t, len(attacks), attacks)
	}
	o := hostile.Options{
		Cluster:     localtest.Cluster(t, local.Options{Basalt: localtest.Basalt(t), ControllerManager: true}),
		Controllers: true, Seed: 1, For: 9 * time.Second, Together: 40, Scale: 0.02, Rate: 4, Attacks: attacks, Busy: true,
		Patience: 4 * time.Minute, Log: t.Logf,
	}
	result, err := hostile.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	result.Write(&table)
	t.Log("\n" + table.String())
	for _, p := range result.Failed() {
		t.Error(p)
	}
	if len(result.Rows) == 0 || result.Items == 0 {
		t.Error("there was no attack, or no load beside it")
	}
}

// Names are in the flags of `basalt-bench hostile`, and in the names of objects.
func TestAttacksHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range hostile.Attacks() {
		if a.Name == "" || len(a.Name) > 20 || a.About == "" || seen[a.Name] || strings.ToLower(a.Name) != a.Name {
			t.Errorf("attack %q: it needs a short name of its own, and a line about it", a.Name)
		}
		seen[a.Name] = true
	}
	if chosen, err := hostile.Choose([]string{"affinity", "churn"}); err != nil || len(chosen) != 2 || chosen[1].Name != "churn" {
		t.Errorf("chosen %v, %v", chosen, err)
	}
	if _, err := hostile.Choose([]string{"no-such"}); err == nil {
		t.Error("an unknown name was taken")
	}
}
