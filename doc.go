// Package relay holds the nouns of the Relay webhook server and every type that
// stands in a signature between two of its rooms.
//
// Rooms (wire, record, server, sshgate, delivery, store, api, dashboard, client)
// import this package, wire and record, and never each other; cmd/relayd is the
// only place that knows them all. The package does no I/O and uses only the
// standard library.
package relay
