//go:build !linux

package pgtest

// temporary returns the folder for the data of a server that does not wait for the disk.
func temporary() string { return "/tmp" }
