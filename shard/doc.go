// Package shard contains only this page. It describes how the process `basalt shard` is put together.
//
//	                 one goroutine       one goroutine
//	                 (server.storage)    (server.loop.run)
//	                +----------------+  +-------------------------+
//	watches of      | shard/volumes  |  | shard/home  the gangs   | ─▶ Bindings, patches, events
//	pods, nodes, ─▶ | what other     |─▶|             of queues   |      API server
//	storage         | objects mean   |  |                         | ─▶ intents
//	                | for pods       |◀─| shard/node  the room    |      control store
//	annotations   ◀─|                |  |             on nodes    | ◀▶ messages
//	API server      +----------------+  +-------------------------+      other shards, coordinator
//	                     other watches, table ─▶
//
// volumes, home and node are pure cores: Step(now, event), then Outputs(). They never call each other. Even inside
// one process home and node exchange the same messages as over the wire, so there is one protocol and not two.
// Package event holds their inputs and outputs. Package server is the shell: it turns watch events, messages and
// responses into events, gives each event to home and node, those of pods, nodes and storage as volumes tells them,
// and carries out the cores' outputs.
//
// Read event first, then home/state.go and home/gang.go for the life of a gang, then node for what happens to its
// pods.
package shard
