// Package fair measures whether queues get their shares, over virtual time: the coordinator's core that ships decides who is admitted, a
// fluid oracle says what each queue should have at the same moment, and the distance between both is the figure. There are no nodes: what
// is measured is the order in which quota is offered.
//
// The load is the shapes of a real trace (package workload) in gangs of 1 to 32 pods, from 20 queues in three levels with weights 1 to 4,
// that together deserve 60 % of 100,000 cores. A queue is busy for some hours, in which its backlog only grows, or for a part of them, or
// idle. How much all of them want is 0.85 to 1.2 of what there is.
//
// The oracle knows nothing but what is charged and what waits, and pours: each child gets what it deserves or wants, then the rest is
// given in small steps, to all children at once and in proportion to their weights, for as long as they want more. It shares no code with
// the coordinator. Only queues with a backlog are judged, for the others have what they want.
//
// Nobody is evicted. So a queue that becomes busy waits until others' gangs end; the figures are given for all moments, and for those at
// which no queue became busy or idle for a while.
package fair
