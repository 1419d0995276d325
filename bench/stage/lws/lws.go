// Package lws names LeaderWorkerSet's controller and its version, as a tool of this module: it makes groups of pods without PodGroups,
// which a test has Basalt place. Package bench/stage/local builds it; there is no code here.
package lws
