// Package relay defines the types that the packages of relayd share: aliases, events,
// attempts, messages, tunnels, accounts, errors, and every other type in a signature
// between two packages.
//
// The packages wire, record, server, sshgate, delivery, store, api, dashboard and client
// import this package, wire and record, but not each other; only cmd/relayd imports them
// all. arch_test.go checks that. This package does no I/O and imports the standard
// library only.
package relay
