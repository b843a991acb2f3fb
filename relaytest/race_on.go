//go:build race

package relaytest

// raceFactor says how many times more the race detector slows a parser than plainPass (worst.go). Limits that
// are counted in plain passes are multiplied by it.
const raceFactor = 4
