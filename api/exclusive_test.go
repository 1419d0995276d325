package api_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
)

// Which classes of a gang's pods may not meet on a node: a leader and two kinds of workers.
func TestShuns(t *testing.T) {
	port := func(ip string, number int32, protocol v1.Protocol) *v1.PodSpec {
		return &v1.PodSpec{Containers: []v1.Container{{
			Ports: []v1.ContainerPort{{HostPort: number, HostIP: ip, Protocol: protocol}}}}}
	}
	disk := func(readOnly bool) *v1.PodSpec {
		return &v1.PodSpec{Volumes: []v1.Volume{{VolumeSource: v1.VolumeSource{
			GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "d", ReadOnly: readOnly}}}}}
	}
	class := func(spec *v1.PodSpec) *api.Class {
		b, err := spec.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return &api.Class{Constraints: b}
	}
	repels := func(own string, app ...string) *api.Class {
		a := v1.PodAntiAffinity{}
		for _, app := range app {
			a.RequiredDuringSchedulingIgnoredDuringExecution = append(a.RequiredDuringSchedulingIgnoredDuringExecution,
				v1.PodAffinityTerm{TopologyKey: v1.LabelHostname, Namespaces: []string{"ns"},
					LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}})
		}
		b, err := a.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return &api.Class{Repels: b, Labelled: true, Labels: api.NewLabels(map[string]string{"app": own})}
	}
	plain, web := &api.Class{}, class(port("", 80, ""))
	at1, at2 := class(port("10.0.0.1", 80, v1.ProtocolTCP)), class(port("10.0.0.2", 80, ""))
	for _, c := range []struct {
		name    string
		classes []*api.Class
		want    []uint64
	}{
		{"none", nil, nil},
		{"plain ones", []*api.Class{plain, plain}, []uint64{0, 0}},
		{"one with a port", []*api.Class{web, plain}, []uint64{1, 0}},
		{"two with the same port", []*api.Class{web, at1}, []uint64{3, 3}},
		{"of different addresses", []*api.Class{at1, at2}, []uint64{1, 2}},
		{"of different protocols", []*api.Class{class(port("", 80, v1.ProtocolUDP)), web}, []uint64{1, 2}},
		{"ports that are not the node's", []*api.Class{class(port("", 0, "")), plain}, []uint64{0, 0}},
		{"a disk that is written", []*api.Class{class(disk(false)), class(disk(true))}, []uint64{3, 1}},
		{"a disk that is read", []*api.Class{class(disk(true)), class(disk(true))}, []uint64{0, 0}},
		{"repels itself", []*api.Class{repels("a", "a"), repels("b")}, []uint64{1, 0}},
		{"repels the other", []*api.Class{repels("a", "b"), repels("b")}, []uint64{2, 1}},
		{"repels others than these", []*api.Class{repels("a", "c"), repels("b")}, []uint64{0, 0}},
		{"labels are not known", []*api.Class{repels("a", "c"), plain}, []uint64{2, 1}},
		{"unreadable", []*api.Class{{Repels: []byte{1}}, plain}, []uint64{1, 0}},
	} {
		got := api.Shuns(c.classes, "ns")
		if len(got) != len(c.want) {
			t.Fatalf("%s: %v", c.name, got)
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s: %b, want %b", c.name, got, c.want)
				break
			}
		}
	}
}
