// Package cache is what a node shard knows about its nodes: who uses how much of them, and where a pod fits. It is a data
// structure, not a state machine: it has no events and no time, and the same calls in the same order give the same results.
//
// It decides whether a pod fits a node (CanPlace, the same function for planning and for committing), which node is
// best (Place), whose holds would have to be taken (PlaceWithin), and why a pod fits nowhere (Why). It owns the sums:
// what is allocatable, used and free. It accepts all facts: Charge, Release, SetNode and RemoveNode always succeed,
// whatever they do to the numbers, because the cluster is as it is. What follows from a fact is up to the caller.
//
// Invariants (Check verifies them):
//   - A pod UID has at most one charge, on one node. A node that is removed keeps its charges, and they count again when it
//     comes back.
//   - free = allocatable - used, for each resource of each node. It can be negative: a device failed, or somebody bound a pod by
//     hand. A node with any negative amount is out of sync, and takes no new pods until its numbers fit again, but for
//     devices: those that ask for none of what is short are none the worse for it.
//   - Amounts are int64, and sums saturate. A saturated sum is recomputed when one of its parts is removed, so it does not drift.
//   - Memory is bounded by the number of nodes, of charges, and of planned classes, whatever names pods use.
//
// Design. Nodes have slots, and each resource that some node offers is a column of int64 over the slots. Pods with equal requests
// and constraints form a class. Classes with equal constraints share a set, which is evaluated once per node (by
// k8s.io/component-helpers, as in kube-scheduler). The policy orders the nodes in the same way for all classes. In this order,
// each node has one bit for each class that is requested often, set if a pod of the class fits. The best node is the first one
// with the bit; a B+-tree with bitmap summaries finds it without looking at the nodes before it. When a node changes, its bits
// are recomputed with one binary search per resource, whatever the number of classes. So the cost of a decision depends neither
// on the number of nodes nor on that of classes, and the result is exactly that of a full scan. See index.go and order.go.
//
// In a large cluster the cost of a decision is memory latency. A cache line that has not been used lately takes as long as a
// hundred divisions, and longer if one read has to wait for another. So adding or removing a pod touches few lines, and each of
// them is found from the slot number alone: the charge with its UID, the slot with the list of its charges, its free amounts,
// and its entry in the order. What nodes have and what constraints admit is the same for many nodes, and is stored once. None
// of these structures contains pointers, so the garbage collector does not scan them. Independent reads are issued together:
// the table of UIDs names the slot, so a release waits for the charge and the node at the same time; an entry is fetched while
// the row that goes into it is computed; and loops over memory that may not be cached have no branches that depend on it. Large
// tables use huge pages, because the TLB is too small for that many small ones (at 100,000 nodes, a decision then costs 0.85 of
// what it did).
//
// A class may wish for some nodes more than for others. Its nodes are in tiers, each of which is a class of its own to the index, and the best
// one with room is searched first. See wishes.go, and images.go for nodes that have a pod's images.
//
// A pod that fits nowhere is requested again and again, and must not cost a scan each time. Why counts again only after
// a proportionate number of changes, PlaceWithin looks only at nodes with holds, and whether a class could ever fit is
// known from one node that could take it, or from the most recent changes of nodes.
//
// Tried and dropped:
//   - A tournament tree per class, over scores that depend on what the class requests. Each class had to replay all changes
//     since its last decision: with 200 classes drawn at random, a decision cost 400 changes.
//   - A set per class of the leaves whose summary has its bit, in which three reads find the first. Every change of a row had to
//     update as many sets as bits had changed; decisions cost 1.08 times as much.
//   - Exact summaries, by counting for each leaf how many entries have each bit, eight counts per word. No search reads a leaf in
//     vain then, but a removed entry has to be read again. A decision cost 0.99 of before at 100,000 nodes, and 1.16 at 1,523.
//     (With the summaries of today, one search in fifty reads a leaf in vain. Nearly all false positives were bits of the entry
//     found last, and the summaries of blocks make it cheap to tighten those. Without them a decision costs 1.13 times as
//     much, and tightening the whole leaf costs what it saves.)
//   - Levels that are sets of leaves by bit: found with two reads, but 34 bits change with each decision.
//
// What nodes would have if some of their pods were gone is asked with FitsWithout and Rooms (rooms.go), for gangs that others make room for.
//
// Constraints over sets of nodes (topology spread, affinity between pods) are the caller's, who allows nodes (within.go), but for pods
// that repel each other from single nodes (groups.go). What pods prefer of other pods (lean.go) the caller counts, too.
package cache
