// Package topology knows which pods are in which topology domain of the cluster, and judges the constraints that are
// about that: required affinity and anti-affinity with any topology key but the host name's anti-affinity (which
// package node decides for its nodes), topology spread, and claims that one pod at a time may use. It counts for
// preferences about other pods, too (lean.go).
//
// No shard owns a domain, for its nodes are spread over all of them. What makes a judgement safe is that the intents
// of all shards are one log. Each Binding is announced by a row in the control store, which puts all rows in one
// order, and every shard follows all of it. A row's place is the revision at which its key was created. The rule is:
//
//   - No Binding is sent before whoever decides about it has seen the log up to the row's place. Then the row is judged against all
//     earlier rows whose pods may still be bound by them, and against all bound pods. Later rows have to respect it, so they do not
//     count. The rows of a gang are judged together, at the place of the last.
//   - Only pods known to be bound support others: as those that an affinity asks for, or in the minimum of a spread; and pods of the
//     same gang each other.
//   - A row that lacks nothing but a higher minimum of a spread waits for pods that raise it, if its gang has no row in another key. It is
//     judged when they are bound, so nothing is taken for granted; planning takes it for granted (Rules.Later). The wait ends after a while.
//
// So of two pods that exclude each other one has the earlier place, and the other's judge sees it. No shard has to be
// asked, nothing has to be handed over when buckets move or a shard dies, and no clock matters. api/DECISIONS.md has
// the rest, and bench/prove/order explores it.
//
// A View is a copy of these facts. Each process has one; it is given every event before the cores are, and both cores
// ask it. It counts a pod in three ways: bound, by a row, or by a hold of this shard, which only keeps this shard
// from placing others in vain. A row counts until the pod watch shows that it is over: the pod at another version
// than the row names, which its Binding no longer fits, or gone; or until the log says that its shard gave it up.
//
// The matching pods of a term are found once for all pods of a namespace with equal labels (kin), and counted by
// node, so that a question costs a look at a counter for each constraint. What no pod asks about is not counted.
//
// Bounds: each namespace has a number of terms and selectors that are counted for it, and a budget for what counting
// a new one costs (package fair); what exceeds it is refused for now. A change of a pod is counted by each selector
// that matches it: where many of one namespace do, it pays for that, and when it has paid too much most of its
// selectors are given up until it is less busy. A trial (Try) counts only what is asked in it. Nothing of a tenant's
// delays others.
package topology
