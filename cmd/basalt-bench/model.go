package main

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/bench/prove/spec"
)

// model is a package that spec explores. C is a space: a configuration of the model.
type model[C fmt.Stringer] struct {
	limit        int // the default of --limit
	small, large func() []C
	weakened     iter.Seq2[fmt.Stringer, C]                              // rules, and spaces without them
	world        func(space C) string                                    // its name
	one          func(world string, weak []string) (C, error)            // the space of --world
	run          func(space C, bound func(*spec.Bounds)) (r spec.Result) // explores a space
}

// command returns the command that explores a model; c has its texts, and the flags of its own.
func (m model[C]) command(c *cobra.Command) *cobra.Command {
	var world string
	var weak []string
	var weakened, large bool
	var limit int
	c.Args = cobra.NoArgs
	c.RunE = func(c *cobra.Command, _ []string) error {
		out := c.OutOrStdout()
		stop := func() bool { return c.Context().Err() != nil }
		var wrong []error
		if weakened {
			for rule, space := range m.weakened {
				r := m.run(space, func(b *spec.Bounds) { b.Stop = stop })
				fmt.Fprintf(out, "%s: %s: %s\n%s\n", rule, space, r, r.Text())
				if r.Violation == "" {
					wrong = append(wrong, fmt.Errorf("%s is not found", rule))
				}
			}
			return errors.Join(wrong...)
		}
		spaces := m.small()
		if large {
			spaces = m.large()
		}
		switch {
		case world != "" && !large:
			space, err := m.one(world, weak)
			if err != nil {
				return err
			}
			spaces = []C{space}
		case world != "":
			spaces = slices.DeleteFunc(spaces, func(space C) bool { return m.world(space) != world })
		}
		states, complete := 0, 0
		for _, space := range spaces {
			r := m.run(space, func(b *spec.Bounds) { b.Limit, b.Stop = limit, stop })
			fmt.Fprintf(out, "%s: %s\n", space, r)
			states += r.States
			if r.Complete {
				complete++
			}
			if r.Violation != "" {
				fmt.Fprintln(out, r.Text())
				wrong = append(wrong, fmt.Errorf("%s: %s", space, r.Violation))
			}
		}
		fmt.Fprintf(out, "%d states; %d of %d spaces exhausted\n", states, complete, len(spaces))
		return errors.Join(wrong...)
	}
	f := c.Flags()
	f.BoolVar(&weakened, "weakened", false, "weaken one rule after another, which must be found, and print its trace")
	f.BoolVar(&large, "large", false, "explore larger spaces; takes some minutes")
	f.StringVar(&world, "world", "", "explore one world, with the flags below or those spaces of it that --large has")
	f.StringSliceVar(&weak, "weak", nil, "rules that are not kept")
	f.IntVar(&limit, "limit", m.limit, "give up a space after this many states; 0 means no limit")
	return c
}

// rules returns the rules that have these names.
func rules[R any](names []string, named func(string) (R, error)) (all []R, err error) {
	for _, name := range names {
		rule, err := named(name)
		if err != nil {
			return nil, err
		}
		all = append(all, rule)
	}
	return all, nil
}
