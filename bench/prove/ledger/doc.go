// Package ledger explores the protocol of the ledger before the ledger is written. The ledger will be a third core of a shard: it
// owns the counts of a namespace's affinity and spread groups, and a home needs a ticket from it for each pod that carries a term
// or only matches one. The model is an explicit-state one: a breadth-first search meets every interleaving of a small system,
// judges each state, and prints the shortest way to a violation. PROTOCOL.md in this folder says what messages and order of steps
// the core has to keep, as corrected here.
//
// Cast. An API server with two pods in one domain (p, which carries a term, and q, which only matches it; or both carry it), or,
// in the pattern support, a gang l1, l2 over two node shards and a pod f that needs one of them beside it. A control store with
// table and rows; a row is written only under the table that its Commit names. Three shards, each of which may be a home, the
// ledger's owner, a member that owns nothing, or dead for the others while it goes on as before. Each hears of tables and of pods
// one version at a time, as late as it likes. A restart is another incarnation, and so another table.
//
// Messages. Ticket, Ticketed, TicketDone and Register are never taken back once sent, so each may be lost, late or repeated at
// any later point. Of Registered the first answer to arrive counts; an answer may be lost and given again. A Commit is carried out
// at any later point, or refused. A reply is heard late or never.
//
// Abstracted. Node shards are honest and have no state but rows: a row may be bound, is settled at any point after that, or is
// given up as package shard/node does. That is what explore and sim check. There is one domain, and one group: spread compares an
// upper bound (all that may be placed) with a lower one (what surely is), and these are what p with q, and l with f, are about. Two
// pods that both carry a term stand for exclusive keys (C6) and for two gangs that both want to be the first of an affinity.
//
// Left out: pods that others bind (C2's window), relabelled nodes and namespaces, several groups, a group that ends and is
// forgotten by members, tickets of two ledgers for one pod, hand-over of hostname groups, the time limits of C7, a node shard that
// restarts under one table (it does not: that is another incarnation), and rollback of a gang of which a pod was bound.
//
// Rules, each with the weakened rule that a test finds violating. A rule without * is one of the design.
//
//	R1   grant-before-answers   A ledger grants when every member of its table has answered: until then a home commits matching pods without tickets.
//	R2   open-ignored           An answer names what the home has on its way, and the ledger counts it: its Commit may land at any later point.
//	R3   read-before-answers    At a takeover the ledger reads the rows after the last answer: a row may be written, and forgotten by its home, before the answer.
//	R4   list-before-read       After that read its watch reaches a version taken after the read: a row that was settled before the read is a pod bound after the list.
//	R5   no-read                It reads the rows at all: who had written them may be dead, or have forgotten.
//	R6   old-ticket             A Commit names the table of its ticket, never a newer one: the store's compare then ends the tickets of a former owner.
//	R7   ticket-times-out       Tickets have no time limit: their Commit has none.
//	R8   unregistered-home      A home that gains a queue takes groups from its own list before it commits (C5): what the ledger of the old table granted is not asked for again.
//	R9   new-member-not-asked   An answer is that of an incarnation under one table: one that joined commits what it likes until it has answered.
//	R10  shortcut-at-takeover   At a takeover R3 and R4 are not replaced by the versions in the answers. See the first correction.
//	R11  answer-while-gaining   A home answers when its own takeover is complete: it does not know before what its predecessor had on its way.
//	R12* home-lists-first       That takeover reads rows, then lists: as R4.
//	R13* inherited-not-open     What a home inherited as a row is open, too: its watch has not shown it as bound.
//	R14* open-until-told        A pod is open until the home's own watch has shown its end; a message about it does not do: the version in the answer would be too low.
//	R15  freed-in-flight        A ticket is freed when no Commit of its serial can land any more (C3).
//	R16* done-of-any-serial     TicketDone frees the serial that it names or an older one: a late one would free the next ticket.
//	R17  ticket-of-any-serial   A Ticket of a serial that was granted, freed or is below is answered by nothing new: as R16.
//	R18* open-without-serial    An answer, and a row, say the serial of what is open: else a late TicketDone of an earlier try ends the count.
//	R19  promised-supports      A ticket supports nobody: it may be freed.
//	R20* said-supports          That Bind was said supports nobody: the row may have been given up, and the Bind is refused.
//	R21* prepared-row-supports  An heir does not take a prepared row for support, for the same reason.
//	R22  no-watch-in-answer     With the shortcut, the ledger's watch reaches the largest version in the answers: the home no longer says what its watch has shown.
//	R23* count-outlives-ticket  A Ticket ends all counts of its gang before it is judged, not when it is granted.
//	R24* shortcut-with-orphans  The shortcut is not taken while a queue has no owner.
//	R25* decided-supports       Only a pod that the ledger's own watch shows as bound supports: a row's Binding may be refused.
//	R26* ticket-of-unknown-group  A Ticket makes the ledger learn the groups that it names, also from a gang that only matches them.
//
// What the model corrected in the design (R20 and R23 to R26 are the ones that change the core):
//   - R24. A new group under a standing table was said to be safe with the shortcut. It is not when the table leaves a bucket of
//     queues to nobody (0xffff): no home says then what the dead one had written, and q's row is missed. The ledger has to read the
//     rows then as at a takeover, or to wait until every queue has an owner.
//   - R10. The shortcut at a takeover was said to violate. Where each queue has an owner none was found (own and home with a
//     late term were not exhausted for this), because
//     of R11 to R14: homes that gained the queue read the rows themselves. It violates with an orphan queue alone. So full reads
//     could be left to tables with orphans, and 1 to 2 s saved at each other takeover; they are kept, since without them R12 to R14
//     carry all the weight. The run `ledger --pattern X --weak shortcut-at-takeover` shows either.
//   - R20 and R25. C4 said that support counts when Bind is said. A prepared row is given up after 10 s without Bind, and a Bind that
//     comes later is refused, so f is placed beside nothing. Support may count when the row says bind, but for one thing: somebody
//     edits the pod, and its Binding is refused. Only "bound" is safe, it needs no message, and TicketDone{decided} can be left out. The
//     price is one Binding in each wave of a spread. Whoever wants to save it accepts that an edit breaks C2.
//   - R23. Two homes whose Commits were on the way when the table changed both answer that theirs is open, and both Commits are
//     refused. Their TicketDone goes to the ledger of the old table; under the new one each Ticket waits for the count of the
//     other, for ever. A home asks for a ticket only when nothing of the gang is on its way, so its Ticket has to end the
//     counts when it arrives.
//   - R26. The pod with the term is deleted, and the ledger moves: its heir lists no such pod and knows no group, but homes do, and ask for
//     tickets that nobody answers. So the heir learns the groups from Tickets.
//   - R16 to R18. Serials decide everywhere, also in Registered and in the rows that are read: there the design had none.
//   - A ledger that keeps its bucket (Config.Kept) may keep its counts over a change of the table, take the shortcut, and so pause
//     for some milliseconds only; every member answers again. Nothing was found against it in the spaces explored, but orphan queues
//     (as R24). It is not among the rules.
//   - C1 holds only in this form, which is judged: a row is written, under a table whose ledger has the answer of its home, only
//     while that ledger counts it. A pod committed before its home answered has no ticket, and need not have.
//
// Invariants judged: C1 with C3 (as above), C2, C4 and C6 at each row; C5 by its consequence, C2; and of C7 that no gang waits for a
// ticket when nothing can happen any more and nothing keeps it from one. OnlyC2 looks for the harm instead of its cause.
//
// There is no reduction but one: of two Commits of a pod, one of an older table is forgotten, since the store would refuse it.
// States are compared by a hash of 64 bits; a test compares some spaces with whole states.
package ledger
