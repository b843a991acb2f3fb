// Package client is the engine of the program relay: it logs in to a relay over SSH with checked host keys,
// connects tunnel channels to a local server, and reconnects when the connection is lost. It also makes the
// cli.API of a relay, over SSH with the key or over HTTP with a token.
//
// The package prints nothing: texts for users go to the callbacks of Dialer and Up. A program must print
// these texts through record.SafeText, because they may hold bytes of a server or a caller.
package client
