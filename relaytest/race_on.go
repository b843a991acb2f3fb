//go:build race

package relaytest

// raceFactor is by how much more the race detector slows a parser than a plain pass.
const raceFactor = 4
