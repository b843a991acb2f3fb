// Package client is the engine of the program relay: it logs in to a relay over SSH with checked host
// keys, connects tunnel channels to a local server, and reconnects when the connection is lost. It
// makes the cli.API of a relay, over SSH with the key or over HTTP with a token.
//
// It prints nothing itself: text for people goes through the callbacks of Dialer and Up. Code that
// prints it has to pass it through record.SafeText, because it may hold bytes of a server or a caller.
package client
