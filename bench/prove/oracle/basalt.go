package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/node"
	"basalt.dev/basalt/shard/topology"
	"basalt.dev/basalt/shard/volumes"
)

// Basalt returns which nodes of a case Basalt places its pod on, by the code that ships: pods are read as a shard's watches read
// them, and a node core that owns all nodes is asked for a hold again and again, and loses the node that it names each time. The view of
// topology domains goes on seeing all nodes.
func Basalt(c *Case) (*Answer, error) {
	out := newAnswer()
	pods, pod, volumes := reduce(c)
	switch {
	case pod.Refused != nil:
		out.Refused = pod.Refused.Message
		if pod.Refused.Reason == "NeverFits" { // an answer about nodes: none
			out.Refused = ""
		}
		for _, n := range c.Nodes {
			out.refuse(n.Name, pod.Refused.Reason, pod.Refused.Message)
		}
		return out, nil
	case !pod.Ours:
		return nil, fmt.Errorf("pod %s is not Basalt's", c.Pod.Name)
	}
	s := newShard(c, pods, volumes, "")
	class := pod.Class.With(pod.Labels)
	for range c.Nodes {
		held, err := s.hold(pod.Namespace, class)
		if err != nil {
			return nil, err
		}
		if held == "" {
			break
		}
		out.Fits[held] = true
		s.core.Step(s.now, event.NodeGone{Name: held})
		s.core.Outputs()
	}
	for _, n := range c.Nodes {
		if !out.Fits[n.Name] {
			out.refuse(n.Name, "Basalt", "refused")
		}
	}
	return out, nil
}

// BasaltWhy returns why Basalt does not place the pod of a case on a node, in its words.
func BasaltWhy(c *Case, name string) string {
	pods, pod, volumes := reduce(c)
	if pod.Refused != nil {
		return pod.Refused.Reason + ": " + pod.Refused.Message
	}
	return newShard(c, pods, volumes, name).explain(pod.Namespace, pod.Class.With(pod.Labels))
}

// reduce returns the other pods of a case and its pod as the cores of a shard are shown them.
func reduce(c *Case) (others []*api.Pod, pod *api.Pod, counted []event.NodeVolumes) {
	ours := c.Pod.DeepCopy()
	ours.Spec.SchedulerName = api.SchedulerName
	all, counted := volumes.Reduce(api.Rules{}, c.Nodes, c.Objects, append(slices.Clone(c.Pods), ours))
	return all[:len(all)-1], all[len(all)-1], counted
}

// shard is a node core.
type shard struct {
	core   *node.Core
	view   *topology.View
	now    time.Time
	serial uint64
}

const self api.Incarnation = "oracle"

// newShard makes a node core that has seen a case. It owns all nodes, or just the one that is named.
func newShard(c *Case, pods []*api.Pod, volumes []event.NodeVolumes, only string) *shard {
	view := topology.New()
	s := &shard{core: node.New(node.Config{Self: self, Topology: view, Strict: true}), view: view, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	table := &api.Table{Epoch: 1, Revision: 1, Members: []api.Member{{Incarnation: self, Name: "oracle"}}}
	for b := range table.Changed {
		table.Changed[b] = 1
		if only != "" && api.BucketID(b) != api.BucketOf(only) {
			table.Owners[b] = api.Nobody
		}
	}
	for _, o := range c.Objects {
		if n, is := o.(*v1.Namespace); is {
			s.step(event.NamespaceSeen{Name: n.Name, Labels: n.Labels})
		}
	}
	for _, n := range c.Nodes {
		s.step(event.NodeSeen{Node: api.FromNode(api.StripNode(n), nil)})
	}
	for _, ev := range volumes {
		s.step(ev)
	}
	s.step(event.TableSeen{Table: table})
	sequence := uint64(0)
	for _, o := range s.core.Outputs() {
		if read, is := o.(event.ReadStore); is {
			sequence = read.Sequence
		}
	}
	s.step(event.LogRead{Revision: math.MaxInt64})
	s.step(event.StoreRead{Sequence: sequence, Revision: 1})
	s.step(event.PodsReplaced{Sequence: sequence, Pods: pods})
	s.core.Outputs()
	return s
}

// step gives an event to the view and the core, as package server does.
func (s *shard) step(ev event.Event) {
	s.view.Step(s.now, ev)
	s.core.Step(s.now, ev)
}

// hold asks for room for one more pod of a class, and returns the node, "" when no node has it.
func (s *shard) hold(namespace string, class *api.Class) (string, error) {
	s.serial++
	uid := "oracle-" + strconv.FormatUint(s.serial, 10)
	s.core.Step(s.now, event.Message{From: self, Body: &wire.Envelope{Body: &wire.Envelope_HoldRequest{HoldRequest: &wire.HoldRequest{
		Gang: &wire.GangRef{Uid: uid, Namespace: namespace, Name: uid, Queue: "default", Single: true}, Serial: s.serial, Rank: &wire.Rank{GangUid: uid},
		TableEpoch: 1, Classes: []*wire.PodClass{wire.FromClass(class)}, Pods: []*wire.PodWant{{PodUid: uid}}, TtlMs: 1000,
	}}}})
	for _, o := range s.core.Outputs() {
		if send, is := o.(event.Send); is {
			if reply := send.Body.GetHoldReply(); reply != nil {
				if len(reply.Held) > 0 {
					return reply.Held[0].Node, nil
				}
				return "", nil
			}
		}
	}
	return "", fmt.Errorf("the node core did not answer: %+v", s.core.Stats())
}

// explain returns the node core's reasons for refusing a class.
func (s *shard) explain(namespace string, class *api.Class) string {
	s.core.Step(s.now, event.Message{From: self, Body: &wire.Envelope{Body: &wire.Envelope_Explain{Explain: &wire.Explain{Namespace: namespace, PodClass: wire.FromClass(class), Serial: 1}}}})
	for _, o := range s.core.Outputs() {
		if send, is := o.(event.Send); is && send.Body.GetExplained() != nil {
			var reasons []string
			for _, r := range send.Body.GetExplained().Reasons {
				reasons = append(reasons, r.Reason)
			}
			return strings.Join(reasons, ", ")
		}
	}
	return "no reason given"
}
