package home

import (
	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/home/intake"
)

// podOf returns a pod that no gang knows.
func podOf(p *api.Pod) *pod { return &pod{Entry: &intake.Entry{Pod: p}, asked: p.Class} }
