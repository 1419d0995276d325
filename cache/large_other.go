//go:build !linux

package cache

func adviseLarge(_, _ uintptr) {}
