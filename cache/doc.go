// Package cache is what a node shard knows of its nodes: how much of them is taken by whom, and where a pod may go. It is
// a data structure, not a state machine: no events, no time; the same calls in the same order give the same answers.
//
// It decides whether a pod fits a node (CanPlace: one function, when planning and when committing), which node is best
// (Place), whose holds would have to go (PlaceTaking), and why a pod fits nowhere (Why). It owns the sums: what is
// allocatable, used and free. It never refuses a fact: Charge, Release, SetNode and RemoveNode always succeed, whatever
// that does to the numbers, for the cluster is as it is. What follows from a fact is its caller's business.
//
// Invariants (Check verifies them):
//   - A pod UID has at most one charge, on one node. A node that is not there keeps its charges, and they count again when
//     it comes back.
//   - free = allocatable - used, for each resource of each node, and may be negative: a device died, a pod was bound by
//     hand. A node with anything negative is out of sync and takes nothing new at all until its numbers fit again.
//   - Amounts are int64 and sums saturate. A saturated sum is made again from its parts when one leaves, so that nothing
//     drifts.
//   - Memory is bounded by nodes, charges, and a fixed number of planned classes, whatever names pods make up.
//
// How it is built. Nodes have slots, and each resource that some node offers is a column of int64 over the slots. Pods with
// equal requests and constraints are one class. A class that was planned lately keeps for each slot whether its
// constraints admit it (judged by k8s.io/component-helpers, as kube-scheduler does) and a tournament tree over the slots'
// scores, whose root is the best node. Every change of a node is noted in a log; a class that is asked again replays what
// it missed, or, if that is too much, scans the columns once. So a decision costs the changes since the last one of its
// class, not the number of nodes, and the answer is exactly the one a full scan would give.
//
// Not built here: constraints over sets of nodes (topology spread, inter-pod affinity), preferred terms, volumes. Pods that
// need those are refused where they enter (api.FromPod).
package cache
