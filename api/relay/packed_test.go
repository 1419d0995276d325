package relay

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/wire"
)

// startPacking is start for a kind of which those objects are packed whose phase says how: as what settles, "whole" for
// not at all, "" for what does not settle. A packed object is its version, and "wrong" cannot be read.
func startPacking(u *upstream) (*Relay, *source) {
	r, s := start(u, 100)
	s.kind.form = "a"
	s.kind.packer = func() func(runtime.Object) *Pack {
		return func(o runtime.Object) *Pack {
			n := o.(*v1.Namespace)
			phase := string(n.Status.Phase)
			switch phase {
			case "whole":
				return nil
			case "wrong":
				return &Pack{Bytes: []byte(phase)}
			}
			hash := uint64(len(phase))
			return &Pack{Bytes: []byte(n.ResourceVersion), Settled: phase != "", ID: 1, Hash: hash}
		}
	}
	s.reader = func() func([]byte) (*kube.Packed, error) {
		return func(b []byte) (*kube.Packed, error) {
			if string(b) == "wrong" {
				return nil, errors.New("wrong")
			}
			return &kube.Packed{Version: string(b)}, nil
		}
	}
	return r, s
}

func inPhase(version int, phase string) *v1.Namespace {
	n := namespace(version)
	n.Status.Phase = v1.NamespacePhase(phase)
	return n
}

// TestPackedAndUnchanged: who reads the relay's form is sent packed objects, and nothing of an object that settled and
// is as it was.
func TestPackedAndUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{}
		r, s := startPacking(u)
		defer r.Close()
		said := subscribe(t, s, "10")
		synctest.Wait()
		up, _ := u.now()
		for i, step := range [...]struct{ phase, want string }{
			{"", "p11"}, {"", "p12"}, {"x", "p13"}, {"x", "b14"}, {"xy", "p15"}, {"", "p16"}, {"xy", "p17"},
			{"whole", "18"}, {"xy", "b19"}, {"gone", "-p20"}, {"xy", "p21"},
		} {
			if version := 11 + i; step.phase == "gone" {
				up.Delete(inPhase(version, "xy"))
			} else {
				up.Modify(inPhase(version, step.phase))
			}
			time.Sleep(2 * pace)
			expect(t, step.phase, heard(said), step.want)
		}
		up.Modify(inPhase(22, "wrong"))
		time.Sleep(2 * pace)
		expect(t, "what cannot be read", heard(said), "end")
	})
}

// TestOtherForms: who does not read the relay's form, as it is of another release, is sent whole objects, from when
// the first one asks on; for what comes before it goes to the API server.
func TestOtherForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{}
		r, s := startPacking(u)
		defer r.Close()
		said := subscribe(t, s, "10")
		synctest.Wait()
		up, _ := u.now()
		up.Modify(inPhase(11, "x"))
		time.Sleep(2 * pace)
		expect(t, "packed", heard(said), "p11")

		sent := make(chan string, 100)
		other := func(version uint64) {
			go func() {
				_ = s.kind.serve(t.Context(), version, "b", func(m *wire.RelayEvents) error {
					for _, e := range m.Events {
						n := &v1.Namespace{}
						if err := n.Unmarshal(e.Object); err != nil || len(e.Object) == 0 {
							t.Errorf("object %q: %v", e.Object, err)
						}
						sent <- n.ResourceVersion
					}
					if m.Oldest != 0 {
						sent <- "old"
					}
					return nil
				})
			}()
			synctest.Wait()
		}
		other(10)
		expect(t, "before it asked", heard(sent), "old")
		other(11)
		up.Modify(inPhase(12, "xy"))
		time.Sleep(2 * pace)
		expect(t, "after it asked", heard(sent), "12")
		expect(t, "packed beside whole", heard(said), "p12")
	})
}
