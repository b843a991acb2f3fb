// Package relay defines the types that the packages of relayd and relay share: aliases, events,
// attempts, messages, tunnels, accounts, errors, and every other type in a signature between two
// packages. Its functions only read, write and compare these types: they do no I/O, start no
// goroutine, and use the standard library only.
//
// The other packages import this package, packages that import nothing else of the module, and their
// own subpackages, but not each other. Only cmd/relayd imports them all. The test TestStarImports has
// the whole map.
package relay
