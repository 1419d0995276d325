// Package kueue names Kueue's controller and its version, as a tool of this module: it admits jobs and groups of pods to queues of its
// own, which a test then has Basalt place. Package bench/stage/local builds it; there is no code here.
package kueue
