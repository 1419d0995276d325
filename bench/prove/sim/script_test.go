package sim

import (
	"bytes"
	"testing"
)

// TestScriptIsTheRun writes down what happened in drawn runs, and runs it again without the random source.
func TestScriptIsTheRun(t *testing.T) {
	for seed := range uint64(4) {
		drawn := Run(Config{Seed: seed + 1, Steps: 6000})
		var text bytes.Buffer
		if err := drawn.Script.Write(&text); err != nil {
			t.Fatal(err)
		}
		script, err := ReadScript(&text)
		if err != nil {
			t.Fatal(err)
		}
		again := Run(Config{Script: script})
		if again.Hash != drawn.Hash || again.Steps != drawn.Steps || again.Violation != drawn.Violation {
			t.Errorf("seed %d: another history from its script of %d lines:\n%s\n%s", seed+1, len(script.Lines), drawn, again)
		}
	}
}
