// Package link wraps golang.org/x/crypto/ssh, for servers and for clients. Its connections end in
// bounded time, and calls on them take a context. Its channels are net.Conns with deadlines. No
// other package opens, reads or writes an SSH channel, or sends a request.
//
// A call into x/crypto may never return. Examples are a write to a peer that opens no window, and an
// open that begins while the connection ends: the mux of x/crypto forgets the channels before it closes
// the transport. Therefore each call that may wait for the peer runs in a goroutine, and no caller
// waits for it without a limit. Workers.Left counts the goroutines that remain after the end of their
// connection.
package link
