// Package conformance holds black-box tests: they build and run the real binaries, drive them with
// real SSH clients, raw sockets and providers' own libraries, and use nothing of the code inside. It
// is a module of its own, so that its dependencies stay out of the program's go.mod.
package conformance
