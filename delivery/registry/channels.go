package registry

import (
	"time"

	"relay"
	"relay/delivery/kept"
	"relay/delivery/spares"
)

// Channels are the channels of one tunnel. Those of plain ssh are kept for further requests (package
// kept); those of relay up are opened ahead (package spares). The methods are safe for concurrent use.
type Channels interface {
	// Begin counts a request that uses the tunnel, until End.
	Begin()
	End()
	// Take returns an idle channel for a request from caller, nil if there is none.
	Take(caller relay.Caller) Channel
	// New makes a channel of a connection that was just opened.
	New(c relay.Conn) Channel
	// Reduce closes idle channels, and keeps fewer from now on, if the client may have no file
	// descriptor left for another channel. It reports whether this call has closed any.
	Reduce() bool
	// Refill opens channels ahead until there are enough.
	Refill()
	CloseIdle()
	Close() // no channel is kept afterwards
}

// Channel is a connection of a tunnel, used by one request at a time.
type Channel interface {
	relay.Conn
	// Way says how the request got the channel: new, reused, or opened ahead.
	Way() string
	// Idled reports whether the channel was idle before the request: an idle channel may have ended
	// before the request came.
	Idled() bool
	// Reused reports whether the channel has carried another request before.
	Reused() bool
	// Begin is called before a request is sent on the channel.
	Begin()
	// Slow is called once if the local server has not begun to answer in 100 ms.
	Slow()
	// Keep gives the channel back after an answer, so that another request may use it within the duration
	// limit. If owner is not nil, only a request of this caller may use it. A channel that is not kept is
	// closed with Close.
	Keep(limit time.Duration, owner relay.Caller)
}

type keptChannels struct{ *kept.Pool }

// Take implements Channels.
func (c keptChannels) Take(caller relay.Caller) Channel {
	if l := c.Pool.Take(caller); l != nil {
		return l
	}
	return nil
}

// New implements Channels.
func (c keptChannels) New(conn relay.Conn) Channel { return c.Pool.New(conn) }

type spareChannels struct{ *spares.Pool }

// Take implements Channels.
func (c spareChannels) Take(relay.Caller) Channel {
	if l := c.Pool.Take(); l != nil {
		return l
	}
	return nil
}

// New implements Channels.
func (c spareChannels) New(conn relay.Conn) Channel { return c.Pool.New(conn) }
