// Package shard is only this page: how the process `basalt shard` is put together.
//
//	           watches ─▶ ┌────────────────────────────┐ ─▶ Bindings, patches, events
//	API server            │  one goroutine             │                 API server
//	             table ─▶ │  (process.loop.run)        │ ─▶ intents
//	control store         │                            │              control store
//	                      │  shard/home  the gangs of  │
//	          messages ─▶ │              its queues    │ ─▶ messages
//	other shards,         │  shard/node  the room on   │            other shards,
//	coordinator           │              its nodes     │              coordinator
//	                      └────────────────────────────┘
//
// home and node are pure cores: Step(now, event), then Outputs(). They never call each other; they speak the messages that
// they would send over the wire, also inside one process, so that there is one protocol and not two. event holds what they
// are told and what they ask for. process is the shell: it turns what is watched, received and answered into events, gives
// each to both cores, and carries out what they ask for.
//
// Read event, then home/gang.go for the life of a gang, then node for what becomes of its pods.
package shard
