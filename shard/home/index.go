package home

import (
	"slices"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/home/intake"
)

// What there is of each bucket. A takeover looks at what it gains, not at all pods of the cluster: it is one step, in
// which the shard answers nobody.

// index finds groups and pods by the bucket of their queue, and pods by that of their node.
type index struct {
	groups [api.Buckets]map[*intake.Group]struct{} // whose queue is known,
	of     map[*intake.Group]api.BucketID          // and where each is
	loose  shelves                                 // pods without a group, by the queue that they name by themselves
	nodes  shelves                                 // pods that have not ended, by the node that is theirs (nodeOf)
	ids    map[uint64]*pod                         // by api.PodID
}

func newIndex() index {
	return index{of: map[*intake.Group]api.BucketID{}, ids: map[uint64]*pod{}, nodes: shelves{kind: 1}}
}

// shelves are pods by bucket. Each pod knows where it is, so that it can be taken out.
type shelves struct {
	pods [api.Buckets][]*pod
	kind int // which of the two in an index
}

// spots are where a pod is on each of the shelves: in which bucket, one more than its number and 0 for none, and where
// there.
type spots struct {
	at     [2]int32
	bucket [2]uint16
}

// put takes a pod to the bucket of a key, "" for none.
func (s *shelves) put(p *pod, key string) {
	bucket := uint16(0)
	if key != "" {
		bucket = uint16(api.BucketOf(key)) + 1
	}
	was := p.spots.bucket[s.kind]
	if was == bucket {
		return
	}
	if was > 0 {
		list, at := s.pods[was-1], p.spots.at[s.kind]
		last := list[len(list)-1]
		list[at], list[len(list)-1] = last, nil
		last.spots.at[s.kind] = at
		s.pods[was-1] = list[:len(list)-1]
	}
	p.spots.bucket[s.kind] = bucket
	if bucket > 0 {
		p.spots.at[s.kind] = int32(len(s.pods[bucket-1]))
		s.pods[bucket-1] = append(s.pods[bucket-1], p)
	}
}

// has reports whether a pod is in one of some buckets.
func (s *shelves) has(p *pod, buckets []api.BucketID) bool {
	b := p.spots.bucket[s.kind]
	return b > 0 && slices.Contains(buckets, api.BucketID(b-1))
}

// fileGroup takes note of the queue of a group, "" for one that is gone, or whose queue is not known.
func (x *index) fileGroup(g *intake.Group, queue string) {
	was, filed := x.of[g]
	if filed && queue != "" && was == api.BucketOf(queue) {
		return
	}
	if filed {
		delete(x.groups[was], g)
		delete(x.of, g)
	}
	if queue == "" {
		return
	}
	b := api.BucketOf(queue)
	if x.groups[b] == nil {
		x.groups[b] = map[*intake.Group]struct{}{}
	}
	x.groups[b][g], x.of[g] = struct{}{}, b
}

// filePod takes note of a pod as it is now.
func (x *index) filePod(p *pod) {
	x.ids[p.id] = p
	x.nodes.put(p, nodeOf(p.Pod))
}

// nodeOf returns the node that a pod uses, or that somebody keeps room on for it; "" for none.
func nodeOf(p *api.Pod) string {
	switch {
	case p.Finished:
		return ""
	case p.Node != "":
		return p.Node
	}
	return p.Nominated
}

// dropPod forgets a pod.
func (x *index) dropPod(p *pod) {
	if x.ids[p.id] == p {
		delete(x.ids, p.id)
	}
	x.nodes.put(p, "")
	x.loose.put(p, "")
}

// fileLoose takes note of the queue of a pod that has no group.
func (c *common) fileLoose(p *pod, group *intake.Group) {
	queue, known := "", false
	if group == nil {
		queue, known = c.objects.PodQueue(p.Entry)
	}
	if !known {
		queue = ""
	}
	c.index.loose.put(p, queue)
}
