// Package failures holds nothing but tests: five failures that other schedulers have shown in production, provoked on a
// real API server and a real etcd with Basalt's own processes, two coordinators and three shards.
//
//	TestNodeStorm         node updates faster than anything can take them, while jobs come
//	TestNodeThatShrinks   nodes that hold more than they have: it is data, not an assertion
//	TestStatusStorm       short gangs over many queues, whose specs somebody edits all the time
//	TestOneZeroOne        things deleted and made again under their names, with late and repeated deletes
//	TestAncestors         a limit far above the queues that would exceed it together
//
// Each scenario runs twice: on Basalt as it is, where nothing may be found wrong, and on a program in which the bug that it
// is for is switched on (package api/fault), where something must be. What is found comes from the scenario itself, from
// the auditor, from the API server's audit log and from the processes: their logs, their metrics and their end.
//
// The flag -long makes the storms that many times as long.
package failures
