// Package devices explores the rules by which devices are given to pods (dynamic resource allocation), before any of it
// is built, with the engine of package spec: every interleaving of a small system, the shortest way to a violation, and
// for each rule what happens without it.
//
// A node shard chooses a device, writes a row that names the device, the ResourceClaim and its version to the log of
// intents, has the row judged, writes the allocation to the status of the claim, and then binds the pod: an allocation
// is treated as a Binding is. Kubernetes' controller frees a claim whose pods have gone.
//
// Cast. The API server, with versions of claims and pods; two pods with a claim each; one device, on one node, or in a
// pool that two nodes reach; the log; the table of the nodes' owners; two shards, each of which follows the log and the
// claims at its own time. A write that is on its way lands at any time, whoever sent it, or never. A node moves to the
// other shard at any time, and its former owner goes on until it hears of it; a shard crashes and begins anew. A gang
// may be undone because another part of it failed; a pod ends, and another one comes with its claim.
//
// Judged: the device is never in two allocated claims; a pod that runs has its claim allocated and reserved for it; and
// once nothing is left to be done, no claim is allocated for a pod that waits, and no pod waits while the device is
// free.
//
// Rules, each with the weakened rule that a test finds violating:
//
//	named      row-without-devices      A row names its device, and whoever sees the row counts it.
//	seen       judged-unseen            A row is judged when the log was seen up to its place,
//	sent       sent-unjudged            and before the allocation is sent.
//	claims     claims-uncounted         Allocated claims of others count.
//	key        ends-with-key            That a row's key is removed says nothing: its device counts until its claim is
//	                                    seen at a newer version than the row names, and then the claim counts.
//	same       same-version-ends        Nothing that was seen of the claim up to that version says anything,
//	earlier    earlier-allocation-ends  also not that it was freed: that ended an earlier allocation.
//	version    status-unversioned       The allocation is sent with exactly the version that the row names,
//	conflict   retried-after-conflict   and a conflict ends the row: another version needs another row.
//	written    bound-unwritten          A Binding is sent after the allocation was seen.
//	order      claims-before-intents    An heir reads the log, then the claims, and then gives devices away.
//	outcome    given-up-unresolved      A row is given up once it is certain what became of its allocation: by reading a
//	                                    newer version of the claim, or by making one.
//	binding    taken-back-unresolved    An allocation is taken back once no Binding of its pod can land.
//	own        own-write-unseen         A shard knows what it wrote to a claim itself: its next row names no version
//	                                    before.
//
// What the model added is the last one. A shard that took an allocation back, and whose watch is behind that, may write
// another row, for the version before the allocation. What it then sees is the allocation that it took back, and it
// would send a Binding for it. With that rule it need not look for whom an allocation that it sees is reserved.
//
// That a claim has its finalizer before a row names it is taken for granted: so one version belongs to one allocation.
//
// Left out: claims of several pods; claims that Basalt makes for extended resources; conditions before a Binding; the
// sweep after a lost store; parts of a device; devices that a driver moves to another node.
package devices
