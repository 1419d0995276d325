// Package shard contains only this page. It describes how the process `basalt shard` is put together.
//
//	           watches ─▶ ┌────────────────────────────┐ ─▶ Bindings, patches, events
//	API server            │  one goroutine             │                 API server
//	             table ─▶ │  (server.loop.run)         │ ─▶ intents
//	control store         │                            │              control store
//	                      │  shard/home  the gangs of  │
//	          messages ─▶ │              its queues    │ ─▶ messages
//	other shards,         │  shard/node  the room on   │            other shards,
//	coordinator           │              its nodes     │              coordinator
//	                      └────────────────────────────┘
//
// home and node are pure cores: Step(now, event), then Outputs(). They never call each other. Even inside one process they exchange
// the same messages as over the wire, so there is one protocol and not two. Package event holds their inputs and outputs.
// Package server is the shell: it turns watch events, messages and responses into events, gives each event to both cores, and
// carries out their outputs.
//
// Read event first, then home/state.go and home/gang.go for the life of a gang, then node for what happens to its pods.
package shard
