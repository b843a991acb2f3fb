package link

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
)

// guardedReads is a channel with several readers: Channel.Read, Channel.Close, which discards bytes
// that still arrive, and Conn.guard.
type guardedReads struct {
	ssh.Channel
	// reading is held during a read of x/crypto, which wakes only one reader at the end of a channel: a
	// second reader would wait forever.
	reading sync.Mutex
	eof     atomic.Bool // a read has returned EOF
}

// Read reads from the channel, and notes EOF.
func (g *guardedReads) Read(p []byte) (int, error) {
	g.reading.Lock()
	defer g.reading.Unlock()
	n, err := g.Channel.Read(p)
	if err == io.EOF {
		g.eof.Store(true)
	}
	return n, err
}

// guardInterval is the time between two checks for bytes after EOF.
const guardInterval = 250 * time.Millisecond

// guard closes the connection if its peer sends bytes that ChannelOptions.Guarded does not allow. It
// returns when the peer has closed the channel.
func (c *Conn) guard(ch *guardedReads, ended <-chan struct{}) {
	stderr, b := ch.Stderr(), make([]byte, 1)
	for {
		// This waits for extended data. Read returns 0 bytes when the peer has sent EOF or CLOSE.
		extended, _ := stderr.Read(b)
		late := 0
		if ch.eof.Load() {
			late, _ = ch.Read(b)
		}
		if extended+late > 0 {
			c.Close(ForbiddenBytes, "extended", extended > 0)
			return
		}
		select {
		case <-ended:
			return
		case <-time.After(guardInterval):
		}
	}
}

// After the end of a channel, ending waits for settleTime, up to maxSettles times, for a sign that the connection has
// ended or is alive, because the goroutine that reads the connection may notice the end of the connection later than
// that of the channel.
const settleTime, maxSettles = 5 * time.Millisecond, 200

// ending reports, after a channel has ended, whether the connection has ended too or is about to. A
// dying connection first ends its channels, in the same way as a peer that closes them. x/crypto reads
// nothing after a disconnect message, and ends the channels before it closes the socket. The connection
// is therefore alive if a goroutine waits for its next bytes, or, as on a busy connection, if another
// read has begun since the channel ended. Without a sign, ending returns false.
func (c *Conn) ending() bool {
	wait := func() {
		select {
		case <-c.ctx.Done():
		case <-time.After(settleTime):
		}
	}
	// The first wait has no condition, because many clients close their channels just before they close
	// the connection.
	wait()
	before := c.Sock.reads.Load()
	for range maxSettles {
		switch {
		case c.Sock.state.Load() != socketOpen, c.ctx.Err() != nil:
			return true
		case c.Sock.reading.Load(), c.Sock.reads.Load() != before:
			return false
		}
		wait()
	}
	return false
}
