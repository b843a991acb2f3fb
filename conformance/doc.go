// Package conformance holds black-box tests: they build and run the real binaries, and drive them with real
// SSH clients, raw sockets and libraries of providers. Only the tests that compare relayd with libraries of
// providers also call packages of the program. The package is a separate module, because its dependencies
// must stay out of the program's go.mod.
package conformance
