// Package relay defines the types that the packages of relayd and relay share: aliases, events,
// attempts, messages, tunnels, accounts, errors, and every other type in a signature between two
// packages. Its functions read, write and compare these types, and nothing else: they do no I/O, start
// no goroutine, and use the standard library only.
//
// The other packages import this one, those that build on it alone, and their inner packages, but not
// each other; only cmd/relayd imports them all. The test TestStarImports has the whole map.
package relay
