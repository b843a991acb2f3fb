//go:build race

package relaytest

// raceFactor is how much more the race detector slows down a parser than plainPass (worst.go). Limits that
// are counted in plain passes are multiplied by raceFactor.
const raceFactor = 4
