//go:build !linux

package main

// withSlack does nothing: slack of timers is Linux's, and shards and coordinators run there.
func withSlack() {}
