// Package conformance holds black-box tests: they build and run the real binaries,
// drive them with real SSH clients, raw sockets and providers' own libraries, and
// know nothing of the rooms inside. It is a module of its own so that what it needs
// stays out of the program's go.mod.
package conformance
