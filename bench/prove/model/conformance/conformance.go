// Package conformance puts the same operations to a model of package model and to the server that it stands for, and
// compares the answers: a script's, written for a person to read, and a seed's, drawn at random. It is how the models are
// kept honest: the simulator's and the explorer's findings are worth what the models are.
//
// It decides what an answer is: success or the reason of the refusal, what the object is afterwards as far as Basalt looks
// at it, whether its version changed, and which events a watch shows, in order. Revisions and resourceVersions are counted,
// not copied: a script speaks of an object's first, second and third version. It owns the objects that it makes, under names
// that no other run has, and leaves everything else on the server alone.
//
// Store needs an etcd that nobody else writes to while it runs. API takes any API server that a client can be made for, an
// in-memory one too.
package conformance

import (
	"embed"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/bench/prove/script"
)

//go:embed testdata/*.txt
var scripts embed.FS

// player carries out one command on the model and on the server, and fails the test where they differ. It returns what the
// model answered.
type player func(where, command string) []string

func both(t testing.TB, model, server func(command string) []string) player {
	return func(where, command string) []string {
		t.Helper()
		m, s := model(command), server(command)
		if got, want := strings.Join(m, "\n  "), strings.Join(s, "\n  "); got != want {
			t.Errorf("%s: %s\n model:\n  %s\n server:\n  %s", where, command, got, want)
		}
		return m
	}
}

// run plays the scripts whose names begin so, and ignores the answers that are written in them: both sides are asked.
func run(t *testing.T, prefix string, start func(testing.TB) player) {
	t.Helper()
	files, err := scripts.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.HasPrefix(file.Name(), prefix) {
			continue
		}
		t.Run(strings.TrimSuffix(file.Name(), ".txt"), func(t *testing.T) {
			text, err := scripts.ReadFile("testdata/" + file.Name())
			if err != nil {
				t.Fatal(err)
			}
			play := start(t)
			for i, line := range strings.Split(string(text), "\n") {
				if line != "" && line[0] != ' ' && line[0] != '#' {
					play(fmt.Sprintf("%s:%d", file.Name(), i+1), line)
				}
			}
		})
	}
}

// Store compares model.Store with an etcd: the scripts, and operations drawn from seeds.
func Store(t *testing.T, client *clientv3.Client) {
	run(t, "store", func(t testing.TB) player { return newStorePair(t, client) })
	drawnStore(t, client)
}

func drawnStore(t *testing.T, client *clientv3.Client) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprintf("drawn from %d", seed), func(t *testing.T) {
			random(t, newStorePair(t, client), drawStore(rand.New(rand.NewPCG(seed, 1))), 300)
		})
	}
}

// API compares model.API with an API server that has Basalt's kinds.
func API(t *testing.T, clients *kube.Clients) {
	run(t, "api", func(t testing.TB) player { return newAPIPair(t, clients) })
	drawnAPI(t, clients)
}

func drawnAPI(t *testing.T, clients *kube.Clients) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprintf("drawn from %d", seed), func(t *testing.T) {
			random(t, newAPIPair(t, clients), drawAPI(rand.New(rand.NewPCG(seed, 2))), 300)
		})
	}
}

// random carries commands out until one differs: what follows a difference says nothing.
func random(t *testing.T, play player, draw func() string, operations int) {
	var log strings.Builder
	for n := 1; n <= operations && !t.Failed(); n++ {
		command := draw()
		fmt.Fprintln(&log, command)
		for _, line := range play(fmt.Sprintf("operation %d", n), command) {
			fmt.Fprintln(&log, " ", line)
		}
	}
	if t.Failed() {
		t.Log("all that was done:\n" + log.String())
	}
}

// written plays a script for script.Run, which compares the answers with those that are written in it too.
func (p player) written() script.Player { return script.Player(p) }
