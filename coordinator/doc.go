// Package coordinator is the core that serializes admission. It decides which gangs are charged, in which order waiting gangs are
// served, which limits are in force, and which shard owns which bucket. It is pure: New takes what the control store held when
// this process was elected, Step takes one event, and Outputs returns what is to be done. The shell one folder below elects, watches,
// writes and sends.
//
// It decides:
//   - whether a gang may be charged: to its queue and to every ancestor, or to none of them (quota.go);
//   - in which order freed quota is offered to waiting gangs (lines.go), by what their queues are guaranteed, deserve
//     and have (shares.go), for which gangs, how long and how much of it is kept free (earmarks.go), and to whom that
//     is lent meanwhile (backfill.go), by the ends of gangs that say how long they run (timetable.go);
//   - which gangs, or pods of gangs, give way to another (reclaim.go, mandate.go, offer.go, claims.go, surplus.go), and
//     what nobody borrows meanwhile (bar.go). What queues have by that is written in one place (ledger.go);
//   - from which Queue object and resourceVersion the limits in force are taken (limits.go);
//   - which namespaces may use which queue (rights.go);
//   - what follows from the bucket table, which package owners decides (table.go).
//
// It owns the keys reservations/, queues/ and table of the control store, and the list of waiting requests in memory. It stores
// no counts: every sum is derived from reservation records and can be recomputed from them.
//
// It refuses:
//   - requests from a shard that does not own the queue's bucket according to the table;
//   - serials and attempts older than those it has seen;
//   - admission to a queue that is missing, closed or not a leaf, or whose limits are not written yet. (They are written once the
//     object has the finalizer that protects it while anything is charged.);
//   - growth of a gang whose namespace may not use the queue;
//   - a pod that another reservation names;
//   - everything that is not bound yet, while a control store that may lack reservations is being refilled: a new or restored
//     store, one with a reservation that cannot be read, or one where no shard of the table is left that knew it before this term.
//     Refilling ends when every owner of a bucket has reported, never after some time.
//
// Invariants:
//   - At most one transaction is in flight. The state in memory is the state after that transaction, so no decision is based on a
//     state that no revision of the store will have, and every answer is sent after the commit that it depends on. A
//     transaction that fails ends the term: the shell drops the core.
//   - A transaction is bounded by operations and by bytes, below what the control store accepts (size.go). A demand whose record
//     would be too large is denied, and a queue whose record would be too large is invalid.
//   - Limits and reservations never change in one transaction, so no revision contains both a cut and an increase. A grant is
//     checked against limits that were written before it.
//   - After each transaction that increased a sum, charged <= capability holds for every queue and limited resource, except for
//     records marked as forced, whose pods somebody else bound.
//   - No two reservations name the same pod (roster.go).
//   - The cost of a step is bounded, apart from what is new and what is granted: after quota was freed, a bounded number of
//     demand classes is evaluated again, divided among the queues (wake.go).
//   - What is bounded and shared is taken in turn, so that no tenant (a namespace in a queue) fills it for the others:
//     gangs that a Tick considers for mandates: by queue; in a queue by namespace, those that may claim (mandate.go);
//     open mandates: the last 16 of 64 are for tenants that have none (mandate.go);
//     gangs that keep others from borrowing: of 64, the queue with the most gives way (bar.go);
//     candidates for an earmark: so many of each namespace are looked at (earmarks.go);
//     gangs that an offer looks at: divided among the queues; those of one queue are its newest (offer.go);
//     messages to homes, demand classes that are woken: all in turn (claims.go, wake.go).
//     Not in turn: patience, one gang for each kind of device, which time bounds (patience.go), and displacements, of
//     which all are forgotten beyond 32768 (displacement.go).
//   - The same events give the same outputs: maps are walked in sorted order wherever the order can be seen.
package coordinator
