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
	"basalt.dev/basalt/bench/prove/lab"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home"
	"basalt.dev/basalt/shard/node"
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
		s.Node.Step(s.now, event.NodeGone{Name: held}) // and nobody else is told
		s.Node.Outputs()
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

// shard is a shard that owns nodes of a case. Another one owns the queue of its pod, and asks it for holds.
type shard struct {
	*lab.Shard
	outside lab.Outside
	now     time.Time
	pods    []*api.Pod
	queue   string
	serial  uint64
	answer  *wire.Envelope // to the other one
}

const self, other api.Incarnation = "oracle", "other"

// newShard makes a shard that has seen a case. It owns all nodes, or just the one that is named.
func newShard(c *Case, pods []*api.Pod, volumes []event.NodeVolumes, only string) *shard {
	s := &shard{Shard: lab.NewShard(self, home.Config{Strict: true}, node.Config{Strict: true}), queue: "default",
		outside: lab.Outside{Revision: 1}, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), pods: pods}
	table := &api.Table{Epoch: 1, Revision: 1,
		Members: []api.Member{{Incarnation: self, Name: "oracle"}, {Incarnation: other, Name: "other"}}}
	for b := range table.Changed {
		table.Changed[b] = 1
		if only != "" && api.BucketID(b) != api.BucketOf(only) {
			table.Owners[b] = api.Nobody
		}
	}
	for slices.ContainsFunc(c.Nodes, func(n *v1.Node) bool { return api.BucketOf(n.Name) == api.BucketOf(s.queue) }) {
		s.queue += "x"
	}
	table.Owners[api.BucketOf(s.queue)] = 1
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
	s.step(event.LogRead{Revision: math.MaxInt64})
	s.step(event.TableSeen{Table: table})
	return s
}

// step gives the shard an event, and has it read the control store and list the pods of the case.
func (s *shard) step(ev event.Event) {
	for todo := []event.Event{ev}; len(todo) > 0; todo = todo[1:] {
		if err := s.Step(s.now, todo[0], func(o event.Output) {
			switch o := o.(type) {
			case event.Send:
				if o.To == other {
					s.answer = o.Body
				}
			case event.ReadStore:
				answer, _, _ := s.outside.Answer(s.Inc, o)
				todo = append(todo, answer)
			case event.ListPods:
				todo = append(todo, event.PodsReplaced{Sequence: o.Sequence, Pods: s.pods})
			}
		}); err != nil {
			panic(err)
		}
	}
}

// ask gives the shard a message of the other one, and returns its answer.
func (s *shard) ask(m *wire.Envelope) *wire.Envelope {
	s.answer = nil
	s.step(event.Message{From: other, Body: m})
	return s.answer
}

// hold asks for room for one more pod of a class, and returns the node, "" when no node has it.
func (s *shard) hold(namespace string, class *api.Class) (string, error) {
	s.serial++
	uid := "oracle-" + strconv.FormatUint(s.serial, 10)
	reply := s.ask(&wire.Envelope{Body: &wire.Envelope_HoldRequest{HoldRequest: &wire.HoldRequest{
		Gang:   &wire.GangRef{Uid: uid, Namespace: namespace, Name: uid, Queue: s.queue, Single: true},
		Serial: s.serial, Rank: &wire.Rank{GangUid: uid}, TableEpoch: 1, TtlMs: 1000,
		Classes: []*wire.PodClass{wire.FromClass(class)}, Pods: []*wire.PodWant{{PodUid: uid}}}}}).GetHoldReply()
	switch {
	case reply == nil:
		return "", fmt.Errorf("the node core did not answer: %+v", s.Node.Stats())
	case len(reply.Held) == 0:
		return "", nil
	}
	return reply.Held[0].Node, nil
}

// explain returns the node core's reasons for refusing a class.
func (s *shard) explain(namespace string, class *api.Class) string {
	explained := s.ask(&wire.Envelope{Body: &wire.Envelope_Explain{Explain: &wire.Explain{
		Namespace: namespace, PodClass: wire.FromClass(class), Serial: 1}}}).GetExplained()
	if explained == nil {
		return "no reason given"
	}
	var reasons []string
	for _, r := range explained.Reasons {
		reasons = append(reasons, r.Reason)
	}
	return strings.Join(reasons, ", ")
}
