package api

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Exclusive is what a pod has for itself on its node: a host port or a disk. Two pods whose exclusives conflict cannot
// share a node.
type Exclusive struct {
	Protocol v1.Protocol // of a port
	Number   int32
	IP       string
	Disk     Disk
}

const anyIP = "0.0.0.0"

// Conflicts is kube-scheduler's rule: the same protocol and number, and the same address or one of them any address; or
// the same disk, unless both only read it.
func (e Exclusive) Conflicts(o Exclusive) bool {
	if e.Disk.ID != "" || o.Disk.ID != "" {
		return e.Disk.ID == o.Disk.ID && !(e.Disk.ReadOnly && o.Disk.ReadOnly)
	}
	return e.Number == o.Number && e.Protocol == o.Protocol && (e.IP == o.IP || e.IP == anyIP || o.IP == anyIP)
}

// ExclusivesOf returns what pods of a class have for themselves, from what ReadConstraints returns.
func ExclusivesOf(constraints *v1.PodSpec) (out []Exclusive) {
	for i := range constraints.Containers {
		for _, p := range constraints.Containers[i].Ports {
			if p.HostPort <= 0 {
				continue
			}
			h := Exclusive{Protocol: p.Protocol, Number: p.HostPort, IP: p.HostIP}
			if h.Protocol == "" {
				h.Protocol = v1.ProtocolTCP
			}
			if h.IP == "" {
				h.IP = anyIP
			}
			out = append(out, h)
		}
	}
	for i := range constraints.Volumes {
		for _, disk := range DisksOf(&constraints.Volumes[i]) {
			out = append(out, Exclusive{Disk: disk})
		}
	}
	return out
}

// whole reports whether it conflicts with all that are alike.
func (e Exclusive) whole() bool { return e.IP == anyIP || e.Disk.ID != "" && !e.Disk.ReadOnly }

// alike is the same for those of the same port or disk, of which none may conflict with others.
func (e Exclusive) alike() Exclusive {
	e.IP, e.Disk.ReadOnly = "", false
	return e
}

// conflictsOf returns for each of at most 64 lists a bit for each list with which it conflicts, its own included, as
// Conflicts says. Each exclusive is looked at twice: there may be thousands.
func conflictsOf(lists [][]Exclusive) []uint64 {
	same, all, wholes := map[Exclusive]uint64{}, map[Exclusive]uint64{}, map[Exclusive]uint64{}
	for i, list := range lists {
		for _, e := range list {
			same[e] |= 1 << i
			all[e.alike()] |= 1 << i
			if e.whole() {
				wholes[e.alike()] |= 1 << i
			}
		}
	}
	out := make([]uint64, len(lists))
	for i, list := range lists {
		for _, e := range list {
			switch out[i] |= wholes[e.alike()]; {
			case e.whole():
				out[i] |= all[e.alike()]
			case e.Conflicts(e):
				out[i] |= same[e]
			}
		}
	}
	return out
}

// Shuns returns for each of at most 64 classes, of pods of one namespace, a bit for each class of which no pod may be
// on the node of one of its own: for their host ports and disks, or because one repels the other. What cannot be read
// counts as if pods of the class repelled each other.
func Shuns(classes []*Class, namespace string) []uint64 {
	terms, own := make([][]*Term, len(classes)), make([][]Exclusive, len(classes))
	out := make([]uint64, len(classes))
	for i, c := range classes {
		if len(c.Repels) > 0 {
			var err error
			if terms[i], err = ReadRepels(c.Repels); err != nil {
				out[i] |= 1 << i
			}
		}
		if len(c.Constraints) > 0 {
			if spec, err := ReadConstraints(c.Constraints); err == nil {
				own[i] = ExclusivesOf(spec)
			}
		}
	}
	conflicts := conflictsOf(own)
	for i := range classes {
		out[i] |= conflicts[i]
		for k, o := range classes {
			repels := slices.ContainsFunc(terms[i], func(t *Term) bool {
				return o.Labelled && t.Matches(namespace, nil, o.Labels) || !o.Labelled && t.Concerns(namespace, nil)
			})
			if repels {
				out[i] |= 1 << k
				out[k] |= 1 << i
			}
		}
	}
	return out
}
