package home

import (
	"math/rand/v2"
	"strings"
	"testing"

	"basalt.dev/basalt/api"
)

// What is cut off for a message is as much as may go, by pods and by the bytes of their classes, and never nothing.
func TestCutTakesAllThatMayGo(t *testing.T) {
	const perPod = 500
	classOf := func(bytes int) *api.Class { // of so many bytes, as they are counted
		requests := api.FromMap(map[string]int64{"cpu": 1000, "pods": 1})
		base := api.NewClass(requests, []byte("x"))
		c := api.NewClass(requests, []byte(strings.Repeat("x", max(0, bytes-weight(base))+1)))
		return c
	}
	check := func(pods []*pod, most int) (part []*pod) {
		t.Helper()
		part, rest := cut(pods, most)
		size := func(pods []*pod) (n int) {
			seen := map[string]bool{}
			for _, p := range pods {
				if !seen[p.Class.Key] {
					seen[p.Class.Key], n = true, n+weight(p.Class)
				}
			}
			return n
		}
		if len(part)+len(rest) != len(pods) || len(part) == 0 || len(part) > 1 && (len(part) > most || size(part) > perPod*most) {
			t.Fatalf("%d of %d pods in %d bytes, at most %d", len(part), len(pods), size(part), most)
		}
		if len(rest) > 0 && len(part) < most && size(pods[:len(part)+1]) <= perPod*most {
			t.Fatalf("%d of %d pods, one more would have %d bytes", len(part), len(pods), size(pods[:len(part)+1]))
		}
		return part
	}
	r := rand.New(rand.NewPCG(1, 0))
	for range 300 {
		var classes []*api.Class
		for range 1 + r.IntN(20) {
			classes = append(classes, classOf(100+r.IntN(6000)>>r.IntN(6)))
		}
		var pods []*pod
		for range 1 + r.IntN(40) {
			pods = append(pods, podOf(&api.Pod{Class: classes[r.IntN(len(classes))]}))
		}
		check(pods, 1+r.IntN(20))
	}
	var pods []*pod
	for range 4 {
		pods = append(pods, podOf(&api.Pod{Class: classOf(5 * perPod)}), podOf(&api.Pod{Class: classOf(5*perPod + 1)}))
	}
	if got := len(check(pods[:2], 10)); got != 1 {
		t.Errorf("a byte too many is taken: %d pods", got)
	}
	if got := len(check([]*pod{pods[0], podOf(&api.Pod{Class: classOf(5*perPod - 1)}), pods[0]}, 10)); got != 3 {
		t.Errorf("%d pods of 3 that may go", got)
	}
	exact := []*pod{podOf(&api.Pod{Class: classOf(4 * perPod)}), podOf(&api.Pod{Class: classOf(6 * perPod)})}
	if got := len(check(exact, 10)); got != 2 {
		t.Errorf("%d pods of 2 that are just as large as may go", got)
	}
}

func weight(c *api.Class) int { return len(c.Key) + 16*len(c.Requests) }
