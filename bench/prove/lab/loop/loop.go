// Package loop gives a core events, and what its outputs are answered at once. It knows no core, so that the tests of a
// core play it with the loop that the drivers of package lab have.
//
// It decides nothing: what becomes of an output, and which events follow from it, is its caller's.
package loop

import "time"

// Core is the core of a coordinator, or of a shard.
type Core[E, O any] interface {
	Step(now time.Time, ev E)
	Outputs() []O
}

// Tell gives a core an event, and drains it.
func Tell[E, O any](c Core[E, O], now time.Time, ev E, carry func(O) []E) {
	c.Step(now, ev)
	Drain(c, now, carry)
}

// Drain calls carry with each output of a core, in order, and gives the core what carry returns, one after the other
// and after all outputs that were there, until nothing is left.
func Drain[E, O any](c Core[E, O], now time.Time, carry func(O) []E) {
	var answers []E
	for {
		for _, o := range c.Outputs() {
			answers = append(answers, carry(o)...)
		}
		if len(answers) == 0 {
			return
		}
		c.Step(now, answers[0])
		answers = answers[1:]
	}
}
