// Package node is the core that decides about a shard's nodes: which pods get capacity on them, and what became of the pods that
// are being bound to them. Step(now, event), then Outputs().
//
// For the nodes of its buckets, it owns the holds (capacity kept for a pod in memory), the promises (capacity that becomes a hold once
// other pods have left it, promise.go), the rows (a row is one pod that is to be bound to one node; it is durable as an intent before
// its Binding is sent), and the charges of bound pods. Only the shard that the table names may bind pods to a node, and every
// transaction that writes intents compares that. The core refuses what was decided under another table or another reservation, what
// was withdrawn, and what does not fit. It never relies on others to be correct or in time.
//
// Which nodes a pod may have is asked of package cache, for terms by host name of groups.go, and for domains of package topology (topology.go);
// what one namespace may have compared is bounded (judging.go).
//
// The life of a row (between prepared and Bind, the volumes of its pod are bound where that is to be done: volumes.go):
//
//	 Commit        written           Bind            BindDone OK          seen bound
//	──────▶ queued ──────▶ prepared ──────▶ sent ──────────────▶ confirmed ──────────▶ done
//	          │               │              │  anything else        │ not seen for long
//	          │ refused       │ withdrawn,   ▼                       ▼
//	          ▼               ▼ too late   ResolveBinding ─▶ bound, free or gone ──────────▶ done
//	         done           dropped ─────▶ done, when it has left the control store
//
// Invariants:
//   - Capacity is freed only when it can no longer be used: the pod is gone, finished, or bound elsewhere; or the
//     answer to ResolveBinding has shown that the pod has no node, and is at another version than its Binding names, or
//     the API server rejected the Binding; or the row was never sent and has been deleted from the control store. So
//     the intents and the bound pods of a node never exceed what it has, except where others bound pods to it.
//   - No Binding is sent for a pod whose volumes are still to be bound.
//   - A Binding is sent once for a row that is durable, with exactly the row's UID and resourceVersion. Another version
//     needs another row. A pod has one row at most that may still be sent by this process.
//   - Gained buckets take nothing before the takeover is complete: table, then all intents, then a list of all pods.
//     Rows found there are charged like our own, resolved, and removed by comparing the key and the table.
//   - A pod is counted once: as bound if it was seen bound, else once for each unresolved row that could still bind it.
//   - Capacity that was promised to a gang goes to nobody else when the pods leave that it waits for. It is promised to one gang.
//   - What is said to a home shard is said to the one that the table names for the gang's queue, and again when it asks
//     again. Nothing depends on its hearing it.
//
// A violation is a bug of ours: it is counted (Stats.Broken), logged as an error, and panics with Config.Strict.
package node
