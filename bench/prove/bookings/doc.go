// Package bookings explores the rules by which a gang that waits is promised a start (a booking), before they are in
// the cores, with the engine of package spec: every interleaving of a small system in small steps of time, the
// shortest way to a violation, and for each rule what happens without it.
//
// The rules, as corrected here. Each gang that is granted has an end, the time by which it has left: when it was
// granted or started, and its limit, and the grace period of its pods. A gang that waits and is denied may be booked:
// it is given the first time S at which, by those ends, its demand fits at each queue of its path and its pods fit on
// nodes, beside other bookings that run then. Quota and rooms are booked by one put. Until S what is booked is lent, to
// a gang that will have left by S, or that fits beside it at S. At S minus grace, who has passed its limit and is in
// the way is evicted.
//
// Cast. The coordinator, with crashes; the store; two nodes with a shard each, with restarts; up to four gangs in two
// leaves below root, each of pods of one size, with a home each. A gang that is granted finds rooms on nodes within the
// time of a search, or gives its quota back. It may end at any time, and runs past its limit as long as it likes.
//
// Time goes on in ticks; search and grace are one tick each. What has a deadline happens before the tick that passes
// it: a gang gives up its search, pods that are evicted leave, a home repeats what it booked to a shard that was
// restarted and says when its gang started, the coordinator evicts who is in the way, and admits a booked gang that it
// can admit. All else happens whenever it likes.
//
// Judged: a booked gang is granted by S, and then starts (I27); a written S moves to an earlier time only; no queue and
// no node has more than it may; nobody is evicted who has not passed its limit, or whose room no booking needs (I31).
//
// Rules, each with the weakened rule that a test finds violating. Those with * are not in the first statement.
//
//	durable     booking-in-memory   A successor of the coordinator enforces bookings before it grants anything.
//	rooms       sums-alone          A booking has rooms on nodes, not quota alone.
//	lend        lent-blind          A node lends booked room to who has left by S, or fits beside it at S.
//	grace       grace-forgotten     An end counts the grace period,
//	search      search-forgotten    and the time for which a gang may look for nodes.
//	start by    start-by-forgotten  Who has not found nodes by then gives its quota back.
//	until       until-unstarted     A gang that was granted before the booking, and is not bound yet, has an end.
//	evict       overrun-tolerated   At S minus grace, who has passed its limit is evicted,
//	in the way  overrun-at-limit    but nobody whom no booking needs gone,
//	as a set    needless-overrun    and as few as will do.
//	raise       raised-counts       A limit that is raised after the start does not count.
//	own         own-counted         The booking of the gang that asks is not counted against it.
//	beside      others-forgotten    What is spare at S is spare beside other bookings that run then.
//	plan        plan-ignores        A new booking leaves room for those with a later S.
//	stable      replan-postpones    A plan made anew moves S to an earlier time only.
//	order       share-reordered     Whose turn it is counts when the booking is made, not at each grant.
//	path        path-unasked        Lending is judged at each queue that both paths have.
//	past*       overrun-gone        Who runs on past its limit ends a grace period from now at the earliest.
//	early*      early-blind         A booked gang that starts before S asks its rooms for the time that it takes.
//	fresh*      fresh-lends         A shard that was restarted holds nothing for anybody until it knows the bookings.
//	late*       started-unheard     Whose start a successor has not heard of counts as starting as late as it may.
//
// What the model corrected:
//   - fresh. The first statement let a restarted shard hold room for pods that have an end. It does not know S, so a
//     pod whose end is after S takes the booked room as well.
//   - past. At S minus grace a gang had passed its limit and was in nobody's way, as the booked one fitted beside it.
//     It was counted as gone at S, and its place was lent until long after S: then both could not be had.
//   - early. A booked gang was to start as soon as its quota passes the test and its rooms are free. Its plan leaves
//     room for others from its S on; before that it is as any other gang on a node, and took the room of one with an
//     earlier S.
//
// Left out: bookings whose start is not known, and turns; priorities, shares and who is booked first; claims; causes
// for which S may move to a later time; grace periods of different lengths; gangs that grow; a coordinator that is away
// for longer than a tick.
package bookings
