// Basalt's filter oracle: it asks the filter plugins of kube-scheduler 1.37 and the code of Basalt that ships which nodes can take a
// pod, and compares the two sets. With --sequences it has several shards place pods one after another, and asks about each Binding.
// Cases are drawn from a seed: the same seed gives the same case. It is a module of its own so that nothing of k8s.io/kubernetes can
// reach the production binary.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
)

func main() {
	cases := flag.Int("cases", 10000, "how many cases to compare")
	seed := flag.Uint64("seed", 1, "the seed of the first case; the next case has the next seed")
	show := flag.Int("show", 3, "how many shrunk cases to print of each kind and plugin")
	only := flag.String("only", "", "kinds of mismatch to report: UNSAFE, STRICT or WORDS; empty for all")
	sequences := flag.Int("sequences", 0, "how many sequences of placements to replay")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "unexpected arguments: %s\n", strings.Join(flag.Args(), " "))
		os.Exit(2)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt)
	if *sequences > 0 {
		r := runSequences(*seed, *sequences, stop)
		r.print(os.Stdout, *show)
		if r.failed() {
			os.Exit(1)
		}
	}
	if *cases == 0 {
		return
	}
	r := run(*seed, *cases, stop)
	r.print(os.Stdout, *show, Kind(*only))
	if r.failed() {
		os.Exit(1)
	}
}
