// Package coordinator is the core that serialises Basalt's admissions: it decides who is charged, in what order those who
// wait are served, which limits are in force, and which shard owns which bucket. It is pure: New from what the control
// store held when this process was elected, Step with one event, Outputs to carry out. The shell that elects, watches,
// writes and sends lies one folder below.
//
// It decides:
//   - whether a gang may be charged: at its queue and at every ancestor, or at none of them (quota.go);
//   - in which order released room is offered to those who wait (waiting.go), and for whom it is kept, for how long and how much
//     of it (claims.go);
//   - from which Queue object and resourceVersion the limits in force come (limits.go);
//   - which namespaces may use which queue (rights.go);
//   - the bucket table (table.go).
//
// It owns the keys reservations/, queues/ and table of the control store, and the memory of who waits. It owns no count:
// every sum is made of reservation records and can be made again from them.
//
// It refuses: requests from a shard that the table does not name for the queue's bucket; serials and attempts older than
// what it has seen; admission to a queue that is missing, closed, not a leaf, or whose limits it has not written, which it
// does once the object has the finalizer that keeps it while anything is charged; what a gang asks for whose namespace may not
// use the queue; a pod that another reservation names; and anything unbound while a control
// store that may lack reservations is being refilled: a new or restored one, one with a reservation that cannot be read, and
// any of which no shard of the table is left that knew it before this term. Refilling ends when every owner of a bucket has
// reported, never by a clock.
//
// Invariants:
//   - At most one transaction is in flight. The core's memory is the state after that transaction, so nothing is decided
//     against a state that no revision of the store will have, and every answer goes out after the commit that it rests on.
//     A transaction that fails ends the term: the shell drops the core.
//   - A transaction is bounded by operations and by bytes, below what the control store takes (size.go). A demand whose record
//     would be too large is denied, and a queue whose record would be is invalid.
//   - Limits and reservations never change in one transaction: no revision holds a cut and an increase at once. A grant is
//     tested against limits that were written before it.
//   - At every queue and resource that is limited, charged <= capability after each transaction that increased it, but for
//     records marked forced, which name pods that somebody bound without asking.
//   - No two reservations name the same pod (pods.go).
//   - What one step costs is bounded, but for what is new and what is granted: of asks that wait, a bounded number is judged again
//     after room came, divided among the queues (waiting.go).
//   - The same events give the same outputs: maps are walked in sorted order wherever order can be seen.
package coordinator
