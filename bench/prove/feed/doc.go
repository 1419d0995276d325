// Package feed explores the rules by which shards get of pods what concerns them (a feed), before readers are built,
// with the engine of package spec: every interleaving of a small system, the shortest way to a violation, and for each
// rule what happens without it.
//
// Today each shard watches all pods. With a feed, a reader watches a part of the pods, keeps them as its watch has
// shown them, and sends each shard those that concern it, which the shard names by a subscription: N, the pods on its
// nodes; H, the pods whose queue is its own; X, single pods. Frames are IN, a pod as it is; OUT, it does not concern
// the shard any more; GONE; and MARK, with a version and the number of a subscription: all that concerns the shard was
// sent up to there.
//
// Cast. The API server, with versions; two pods, each in a part of its own; for each part up to two readers, that are
// late, restart, and know another dictionary then; a group of one pod, which moves to another queue, and which readers
// see move on their own time; the store, with the table of a node's bucket and of two queues' buckets, rows of pods
// whose Bindings may land at any time, and charges; two shards, which are homes of queues and own nodes. A bucket
// moves at any time, as when its owner dies: its heir reads the store, asks the API server how far it is, and serves
// the bucket when it is sent all that concerns it up to there. The node has room for one pod.
//
// Judged: the node never has two pods; what a pod is charged is not given back while it runs or may come to; and once
// nothing is left to be done, each bucket is served, each pod is placed if the node is free, and nobody is charged for
// a pod that is gone. What a shard has not heard so makes it refuse, and hear of it in the end.
//
// Rules, each with the weakened rule that a test finds violating. Those with * are not in the first statement.
//
//	mark        marked-unsent      A MARK comes after all frames up to its version.
//	answer      answered-unsent    A reader sends what it has of what is subscribed newly, and then says so.
//	version     answered-early     An heir waits for MARKs at the version that it asked for,
//	order       asked-early        which is asked for after the store was read,
//	number      old-answer         with the number of the subscription that has the bucket,
//	parts       one-part           of all parts,
//	owner       part-unread        also of those that nobody reads now.
//	out         out-is-gone        A pod that is OUT is forgotten, and is not taken to be gone.
//	lack*       lack-is-gone       Nor is one that a new stream lacks, but if it was named: by X, or by N and its node.
//	end         lack-is-ignored    It is forgotten, and if it was named, it is gone.
//	late*       late-believed      A stream that is behind what the shard knows of a pod lacks nothing.
//	row         row-unmarked       A row whose pod is not known is over once a MARK has passed the version it names,
//	stray*      stray-unmarked     and so is a charge: not at the version of the takeover, if it was charged later.
//	own         charged-unnamed    A home names the pods that it charges,
//	heir        inherited-unnamed  and those that its predecessor charged.
//	move        move-unsent        When the group moves, its pods are sent again to whom they concern now.
//	pending     pending-unsent     A pod without a node is sent with each version.
//	words       words-kept         A stream begins with its reader's dictionary.
//
// What the model corrected:
//   - lack. The first statement has a new stream end what it lacks within the view of the shard. A pod may have left
//     that view while there was no stream, as its group moved, and nobody says OUT of it any more: it runs.
//   - late. A shard that asks another reader may know more than that one. To compare its MARK with the last one is too
//     little: the shard has frames after that.
//   - stray. A home closes charges of pods that it does not know, once a MARK has the version of its takeover. A pod
//     that it placed later is lacking at a reader that is late.
//   - The first statement wanted IN at the new home before OUT at the old one. Either order holds: a home that was
//     sent OUT has named what it charged.
//   - MARKs need no version of the groups: what was decided by a queue is in the store, and is named.
//
// Left out: S and W, by which topology counts; two pods in a part; crashes of shards, which a bucket that moves stands
// for; rows for one pod at two nodes; a home's search over several nodes; groups that shards see late; API servers
// that were restored, after which a reader is one that restarted; the length of a reader's history, as it keeps a
// state and not a window. A reader that sends what is wrong, or MARKs what it has not sent, is not defended against:
// it is a shard, and so is its authority.
package feed
