//go:build !linux

package pgtest

// temporary returns the folder for the data of a server whose speed is not measured.
func temporary() string { return "/tmp" }
