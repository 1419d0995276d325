package home

import (
	"fmt"
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/event"
)

// heavyGang adds a gang each of whose pods has other constraints.
func (e *editor) heavyGang(namespace, name string, pods, bytes int) {
	e.group(namespace, name, int32(pods), "q", "")
	for i := range pods {
		uid := fmt.Sprintf("%s-%d", name, i)
		class := api.NewClass(cores(1, 1), append(make([]byte, bytes), uid...))
		e.pod(api.Pod{UID: uid, Namespace: namespace, Name: uid, Group: name, Class: class})
	}
}

// TestClassBytesAreBounded: gangs whose pods have large constraints of their own each do not fill the links to the
// shards. It takes 25 s: it sends what fills them.
func TestClassBytesAreBounded(t *testing.T) {
	for _, shape := range []struct{ gangs, pods int }{{1, 1000}, {20, 50}, {1000, 1}} {
		t.Run(fmt.Sprintf("%d_gangs_of_%d", shape.gangs, shape.pods), func(t *testing.T) {
			e := newEditor(false)
			e.step(event.NamespaceSeen{Name: "evil"})
			e.step(event.NamespaceSeen{Name: "honest"})
			for g := range shape.gangs {
				e.heavyGang("evil", fmt.Sprint("g", g), shape.pods, 30<<10)
			}
			e.gang("honest", "h", 10)
			const seconds = 60
			for i := range 10 * seconds {
				e.now = e.now.Add(100 * time.Millisecond)
				e.summary(uint64(i))
				e.step(event.Tick{})
			}
			all := shape.gangs * shape.pods * (30 << 10)
			if limit := seconds*sentBytes + 2*all; e.bytes["evil"] > limit {
				t.Errorf("%d MiB of classes were sent in %d s, at most %d are meant", e.bytes["evil"]>>20, seconds, limit>>20)
			}
			if e.bytes["evil"] < 5*all {
				t.Errorf("%d MiB of classes were sent in %d s: the gangs hardly search any more", e.bytes["evil"]>>20, seconds)
			}
			if e.searches["h"] < seconds/4 {
				t.Errorf("a gang of another namespace searched for room %d times in %d s", e.searches["h"], seconds)
			}
		})
	}
}

func TestClassIndex(t *testing.T) {
	var x classIndex
	var classes []*api.Class
	for i := range 3 * fewClasses {
		class := api.NewClass(cores(int64(1+i), 1), nil)
		classes = append(classes, class)
		if n, fresh := x.number(class); n != i || !fresh {
			t.Fatalf("class %d has number %d, fresh %t", i, n, fresh)
		}
		for k, class := range classes {
			same := api.NewClass(class.Requests, nil)
			for _, class := range []*api.Class{class, same} {
				if n, fresh := x.number(class); n != k || fresh {
					t.Fatalf("of %d classes, number %d is found as %d, fresh %t", i+1, k, n, fresh)
				}
			}
		}
	}
}

// TestClassesWithOneHash: they are told apart by their keys.
func TestClassesWithOneHash(t *testing.T) {
	x := classIndex{first: map[uint64]int32{}}
	a, b, c := api.NewClass(cores(1, 1), nil), api.NewClass(cores(2, 1), nil), api.NewClass(cores(3, 1), nil)
	x.list = []*api.Class{a, b}
	x.insert(0, 1)
	x.insert(1, 1)
	for want, class := range []*api.Class{a, api.NewClass(b.Requests, nil)} {
		if n := x.findBy(1, class); n != want {
			t.Errorf("class %d is found as %d", want, n)
		}
	}
	if n := x.findBy(1, c); n >= 0 {
		t.Errorf("another class with that hash is found as %d", n)
	}
}
