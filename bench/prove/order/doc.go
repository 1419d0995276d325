// Package order explores the log of intents: how any number of shards keep inter-pod affinity, anti-affinity
// and topology spread without an owner of the counts. The intents of all shards are one log, because etcd orders their keys. Every
// process watches all of it, and a row is judged against the rows before it. The model is an explicit-state one: a breadth-first
// search meets every interleaving of a small system, judges each state, and prints the shortest way to a violation.
// api/DECISIONS.md has the protocol as corrected here.
//
// Cast. An API server with two to four pods, each of which fits one node; a control store with the log; shards A, B and C, each a
// home, a node shard, both, or a home that only judges. One may be fenced: its heir is a running shard or a fresh process, and it
// goes on for ever without knowing, so its judgements and Bindings are as late as they like. Worlds: p carries a term and q matches
// it; both carry it (an exclusive key, or two that want to be the first of an affinity); their rows are in one key; a gang over two
// node shards against q, and against another such gang; f needs l; l1 needs l2 of its own gang; two pods, or two gangs, that need each
// other; a spread over two domains.
//
// Steps. A home commits a gang, at most twice; node shards write its rows or refuse them; a judge says yes or no; Bind arrives or
// the row is given up; a Binding arrives; its outcome is learned; the row is removed; the heir patches and removes; a pod is edited
// or deleted; each watch of each shard shows the next revision or version; a watch of the log breaks.
//
// Abstracted. A message is read off the state of its sender at any later point. A home knows at once what became of a row that
// its node shard settled. A view is computed from the positions of its watches, which is what says that it needs no other state. A
// shard that has nothing to judge or to commit does not move its watches: it can do so later.
//
// Left out: pods that others bind, relabelled namespaces, capacity, reservations, rollback, a second death, an API server
// or control store that is restored, a pod that is made again under its name (rows name the UID), and how etcd orders and fences.
// That a member of a gang counts as support for the others that are judged with it is taken as right, although the Binding of
// one may then be refused alone: an edit, or a late Bind, may so bind l1 without l2.
//
// Rules, each with the weakened rule that a test finds violating. Those with * are not in the first statement of the protocol.
//
//	R1   judged-unseen          A row is judged by a view that has seen the log up to its place.
//	R2   later-rows-count       Rows behind its place do not count, or all may yield, unless their Bindings were answered.
//	R3   plain-unjudged         Rows of pods without terms are judged, too.
//	R4*  key-is-one-place       Rows of one key are ordered by their position in it.
//	R5   removed-is-over        That a row is removed says nothing to a view that knows it.
//	R6   same-version-is-over   A row is over when the view shows its pod at a newer version, not at the one that it names.
//	R7   given-up-unsaid        A row that is given up is marked so in the log before it is removed: nothing changes its pod.
//	R8   rows-without-terms     Rows carry the terms of their pods.
//	R9   labels-unawaited       A gang with terms is judged when the view's watch has reached the versions that earlier rows name.
//	R10* unknown-node-is-nowhere  A row or pod on a node that the view does not know counts in every domain.
//	R11  rows-support           A row supports nobody.
//	R12  said-supports          Nor does a row that was judged, or whose Binding was sent.
//	R13* gang-supports          Members of a gang support each other only if they are judged together: not by an earlier Commit.
//	R14  listed-before-read     A fresh process reads the log, then lists the pods.
//	R15  start-unlisted         It judges nothing before it has listed them.
//	R16  break-unlisted         The same holds after its watch of the log broke.
//	R17  late-bind              A row that was given up is not bound, whatever Bind arrives.
//	R18* bind-of-any-commit     Bind names the Commit: one for an earlier row of the pod is refused.
//	R19  home-judges-unseen     A home judges when its own view has seen all rows of the Commit, whatever node shards answered.
//	R20  judged-once            Each Commit is judged, also of the rest of a gang of which some pods were bound.
//	R21  heir-binds             An heir binds no row that it inherited.
//	R22  heir-removes-unmoved   It removes a row when the pod is bound, gone or at another version, which it makes by a patch.
//	R23* rest-is-kept           A row of a Commit of which another row was refused is given up: that Commit is never judged.
//	R24* ignored-after-read     With Config.PointsWin: see the third correction.
//	R25* waits-for-ever         A row that would be fit if others were bound, wherever they are in the log, waits for them, but not for ever.
//	R26* gangs-wait             Only Commits whose rows are all in one key wait so.
//	R27* nodes-unsaid           Rows name the version of their node: one that the view knows at an older one counts as R10 says.
//	R28* left-unjudged          When its node shard gives up a row after the judgement, it judges what it has of that Commit anew.
//
// What the model corrected:
//   - R4. The node shard writes rows of several gangs in one key, so that they have one CreateRevision. By "place < point"
//     neither of two such rows counts for the other, and both are bound. A place is a revision and a position in the key.
//   - R13 and R18. "Members of the same gang" and "Bind" have to mean those of one Commit. l1 is given up, l2 is sent and may be
//     refused yet: l1, committed again, is judged alone. And a home, paused between its judgement and its Bind, would bind a
//     row that was written later, and judged by nobody.
//   - Who gets through. If each gang has one place, the first gets through. Gangs with several places, so those over several node
//     shards, and those of one that are written in two keys, may all yield. One that is committed again alone then gets through, so
//     yielding for ever needs the same unlucky order each time, and the homes' backoff ends it. No rule is needed. If one is
//     wanted (PointsWin): a gang is not judged against rows of a Commit of which not all rows are before its own point, since that
//     Commit will be judged against it. Then the smallest point gets through at once. But whether rows are missing, or were
//     removed before the view read the log, cannot be told from the rows that are left: the rule holds only for Commits that name a
//     revision that precedes all of their rows, and if the view has been watching since (R24).
//   - R10 and R27. Nodes are one more watch with a pace of its own, and a node may be in another domain than it was.
//   - R23. The table changes while a node shard writes the rows of a gang in two keys, and the second one is refused. Nobody judges
//     that Commit, and the first row would keep others away for ever.
//   - R28. A node may be over its limits by the time a Commit is judged fit. The pods that go elsewhere were judged with those that went there.
//   - R25 and R26. A wave of a spread need not be bound before the rows of the next one are written: these wait in the log, and are
//     judged when others are bound or over. A judge may take its time, so nothing else changes. But two that rely on each other would wait
//     for ever: single pods if they wait for rows behind them, and gangs with several places in any case, since rows of each may be before
//     the point of the other. At first rows waited for none behind them. But shards plan at the same time, and what they write is in the
//     log as it happens: rows are behind those that rely on them, and with one app many rows were refused for each that was bound. Now
//     they wait for any, and a judge refuses a row that has waited for long. In the model it may refuse one that waits at any time.
//
// What turned out to be unnecessary:
//   - That rows which are missing after a broken watch count until a list: by R16 nothing is judged before the list, and what the
//     list shows is what became of them. The rows of the view can be dropped when the log is read. Nor does it have to be a list: the
//     watch of pods may as well reach a version that was taken after the read.
//   - That all shards have answered "prepared" before a home judges: the log shows all rows (R19). The answers only say sooner that
//     one was refused.
//   - That a home says no if the log shows one of its rows given up: the others may be bound, and the rest is committed again.
//
// Judged are C2, at each Binding, and not by the function that judges rows; C4, at each "yes"; and when nothing can happen any
// more, that no row waits for ever, and no gang that has a Commit left and could be placed.
//
// Not exhausted, and nothing found in the first 30 million states: two gangs over two node shards each with a death, or
// with a broken watch; p and q with an edit, a deletion and a broken watch at once. States are compared by a hash of 64
// bits; a test compares some spaces with whole states.
package order
