// Package promised explores the messages by which a gang is promised a start (a booking), before they are in the cores,
// with the engine of package spec. Package bookings has the rules by which starts are chosen and lent; there a booking
// is made in one step. Here it takes many: a mandate, HoldRequests, a Claim, a put, requests that are repeated; and any
// part may die between them.
//
// The protocol, as corrected here. The coordinator gives a mandate. The home plans with what all node shards say: the
// first time from which on all pods have room. It sends HoldRequests with that time to the shards of the rooms, which
// book them or refuse. When all have, it sends a Claim with the start and the rooms. The coordinator judges the start
// by quota, and writes one put: the record of the gang that waits has the start and the rooms. That put is the promise.
// From then on the home requests the rooms each tick, and says who has them. By that the coordinator evicts at the
// start less the grace who has passed its limit. It grants the gang as soon as quota allows; its home takes the rooms
// once all are free. The record has them until the gang runs.
//
// Cast. The coordinator, with crashes; the store; two nodes with a shard each, with restarts; three gangs with a home
// each, which may die and has an heir a tick later: a runs from the start, b may be booked, c as well or it is a
// stranger. A process that dies may have been a home and a node shard. Messages: a Claim arrives whenever it likes, and
// again; HoldRequests and requests of a former booking arrive whenever they like. Time is as in package bookings.
//
// Judged: who is booked starts by S, but for the tick in which its home is dead (I27); a written S moves to an earlier
// time only; no more is charged, and nothing more is on a node, than there is (I1, I2).
//
// Rules, each with the weakened rule that a test finds violating. Those with * are not in the first statement.
//
//	durable    booking-in-memory  A successor of the coordinator enforces bookings before it grants anything.
//	term       old-term           A Claim is refused that answers a mandate of another term,
//	number     old-number         or not the last one,
//	offer*     offer-outlives     or one that was given longer ago than node shards keep what they were asked for.
//	table*     old-table          A Claim is refused if the shard of one of its rooms is another since it was planned.
//	judged     claim-unjudged     A start is judged when the Claim arrives, not when the mandate is given.
//	in time*   claim-late         A Claim is refused less than a grace period and a change of homes before its start.
//	all        partial            A Claim is sent when all shards have booked.
//	asked      asked-ignored      What a shard booked counts from then on, before there is a record.
//	rooms*     rooms-unrecorded   The record has the rooms: a restarted node shard reads them.
//	heir       heir-ignorant      An heir of the home reads them, and goes on.
//	repeat     unrepeated         Rooms are requested each tick, or they end,
//	lives*     rooms-short-lived  but not before an heir requests them.
//	both*      replan-replaces    A node shard keeps the recorded rooms while others are asked for the same gang.
//	order*     old-request        A request of a former booking does not replace a later one.
//	granted*   granted-forgets    The record has the rooms until the gang runs, not until it is granted.
//	end*       early-end          Who is granted before S ends as if it began at S: its rooms may be free then.
//	heir at S* heir-uncounted     And its end counts the time that its home may need for an heir.
//	later*     awaits-at-booking  Who is in the way at S came later than the booking: homes say who has the rooms,
//	said*      said-late          each tick, not only when it is time to evict.
//	due*       due-asks           At its S a booked gang takes free rooms whatever else is booked there.
//
// What the model corrected:
//   - rooms. The design had the start in the record, and what the gang awaits; node shards forgot rooms at a restart,
//     held nothing for anybody for two seconds (the rule fresh of package bookings), and homes said again what they
//     had booked. An heir knows no rooms by that. Where one process is the home and a node shard, nobody knows them.
//     With rooms in the record nothing has to be guessed, and no shard stops after a restart.
//   - table. The Claim was on its way when the shard of a room restarted, which read the store before the put. Today
//     the epoch under which a Claim is sent is compared with that of the gang's bucket only.
//   - due. A booking that was asked for and never recorded kept a gang from its own rooms at its start, because
//     somebody ran on past its limit and was in nobody's way.
//   - both. A shard that takes a new plan in place of the recorded one has lost that when the Claim is refused.
//   - in time. The home died in the tick in which its Claim was accepted, and nobody said who was to be evicted.
//
// Left out: what package bookings explores (overruns as a set, raised limits, shares, queues); rooms that are taken one
// by one; the causes for which S may be later; two faults of one kind; a network that is cut for longer than a tick.
package promised
