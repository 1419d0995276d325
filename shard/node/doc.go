// Package node is what a shard decides about its nodes: which pods may have room on them, and what has become of the
// pods that were sent there. It is a core: Step(now, event), then Outputs().
//
// It owns, for the nodes of its buckets: holds (room promised in memory), rows (one pod on its way to one node, durable in
// an intent key before its Binding is sent) and the charges of bound pods. Only the shard that the table names may bind a
// pod to a node, and it says so in every intent transaction. It refuses what was decided under another table or another
// reservation, what was withdrawn, and what has no room; it never waits for anybody to be honest or punctual.
//
// The life of a row:
//
//	 Commit        written           Bind            BindDone OK          seen bound
//	──────▶ queued ──────▶ prepared ──────▶ sent ──────────────▶ confirmed ──────────▶ done
//	          │               │              │  anything else        │ not seen for long
//	          │ refused       │ withdrawn,   ▼                       ▼
//	          ▼               ▼ too late   SettlePod ─▶ bound, free or gone ──────────▶ done
//	         done           dropped ─────▶ done, when it has left the control store
//
// Invariants:
//   - Room is free again only when nobody can use it any more: the pod is gone, or finished, or bound elsewhere; or the
//     answer to SettlePod has shown that it has no node and another version than its Binding names; or the row was
//     never sent and has left the control store. So what the control store and the API server say together never adds up
//     to more than a node has, except where others put it there.
//   - A Binding is sent once for a row that is durable, with exactly the row's UID and resourceVersion. Another version
//     needs another row. A pod has one row at most that may still be sent by this process.
//   - Gained buckets take nothing before the takeover is complete: table, then all intents, then a list of all pods.
//     Rows found there are charged like our own, settled, and removed by comparing the key and the table.
//   - A pod is counted once: as bound if it was seen bound, else once for each unsettled row that could still bind it.
//   - What is said to a home shard is said to the one that the table names for the gang's queue, and again when it asks
//     again. Nothing depends on its hearing it.
//
// What of this breaks is a fault of ours: it is counted (Stats.Broken), logged as an error, and panics with Config.Strict.
package node
