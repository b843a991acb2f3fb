// Package link owns golang.org/x/crypto/ssh, for servers and for clients: a connection whose calls take
// a context and whose end is certain, and channels that are net.Conns with deadlines. No other package
// opens, reads or writes an SSH channel, or sends a request.
//
// x/crypto never answers some calls: an open that begins while the connection ends, because its mux
// forgets the channels before it closes the transport, or a write whose peer opens no window. So each
// call that may wait for the peer runs in a goroutine, and no caller waits for it without a limit.
// Those that an ended connection leaves behind are counted, see Workers.Left.
package link
