//go:build !race

package relaytest

const raceFactor = 1
