// Package signature verifies, explains and makes the signatures that senders put into their webhooks.
// Each sender is data: one row of a table. The package does no I/O, keeps no state and may be used by
// several goroutines at once.
package signature
