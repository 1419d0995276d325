//go:build race

package localtest

const raceDetector = true
