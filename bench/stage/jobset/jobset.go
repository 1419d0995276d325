// Package jobset names JobSet's controller and its version, as a tool of this module: it makes Jobs that know nothing of gangs, which a
// test has Basalt place. Package bench/stage/local builds it; there is no code here.
package jobset
