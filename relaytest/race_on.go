//go:build race

package relaytest

// raceFactor is the factor by which the race detector slows a parser, compared with a plain pass.
const raceFactor = 4
