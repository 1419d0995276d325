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
// equal requests and constraints are one class; classes with equal constraints share a set, which is judged once for a node
// (by k8s.io/component-helpers, as kube-scheduler does). By the policy, nodes stand in one order that is the same for all
// classes, and in that order each has a bit for each class that is asked for often, set where a pod of it fits: the best
// node is the first with the bit, found without looking at those before it. A change of a node makes its bits again, a
// binary search a resource, whatever the number of classes. So a decision costs neither the number of nodes nor that of
// classes, and the answer is exactly the one a full scan would give. index.go says more.
//
// What a decision costs in a large cluster is memory: a line of it that nobody read lately takes as long as a hundred
// divisions, and longer where one read has to wait for the other. So what a pod that comes or goes touches is few lines, each
// found by the number of the slot alone: the charge with its UID, the slot with the list of its charges, what is free of it, and
// the entry in the order; what nodes have and what constraints allow is the same for many of them and kept once. None of these
// has a pointer in it, so the garbage collector passes them by. What can be read at the same time is asked for at the same time:
// the table of UIDs names the slot, so that a release waits for the charge and for the node together; an entry is taken before
// the row that goes into it is made; and loops over what may have to come from memory have no jump that depends on it. Large
// tables ask for large pages, for the processor's list of where pages are has no room for as many small ones (a decision among
// 100,000 nodes costs 0.85 of what it did).
//
// A pod that fits nowhere asks again and again, and must not cost each time what there are nodes: Why counts again only after
// changes in proportion, PlaceTaking looks at nodes with holds alone, and whether a class ever fits is known from one node
// that could take it, or from the last changes of nodes.
//
// Tried and dropped: a tournament tree for each class over scores that depended on what the class asks for. Each class had
// to replay every change since its last decision, so with 200 classes drawn at random a decision cost 400 changes. And for
// each class a set of the leaves that promise it, in which the first is found with three reads: every change of a row had to
// be told to as many sets as bits changed, and decisions cost 1.08 times as much. And promises that are exact, by counting for
// each leaf how many entries have each bit, eight counts in a word: no search reads a leaf in vain then, but who goes has to be
// read again, and a decision cost 0.99 of before at 100,000 nodes and 1.16 at 1,523. (Now one search in fifty does: of what is
// promised and not there, nearly all was had by the entry that was found last, and with sums for blocks of a leaf that is soon
// put right. Without them a decision costs 1.13 times as much, and putting the whole leaf right costs what it saves.) And levels
// that are maps of leaves by bit: found with two reads, but 34 bits change for each decision.
//
// Not built here: constraints over sets of nodes (topology spread, inter-pod affinity), preferred terms, volumes. Pods that
// need those are refused where they enter (api.FromPod).
package cache
