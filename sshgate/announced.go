package sshgate

import (
	"strings"
	"sync"
	"sync/atomic"

	"relay"
	"relay/link"
	"relay/record"
)

// maxTargets is the largest number of targets that a client may announce.
const maxTargets = 64

// announced holds what the client has announced: its version, capabilities and targets.
type announced struct {
	lazy atomic.Bool // the client dials the local server at the first byte of a channel

	mu      sync.Mutex
	client  string // name of the client, such as OpenSSH_9.2p1
	moves   bool   // whether the client connects to another node when it gets NoticeMoving
	targets map[string]relay.Target
}

func (a *announced) setClient(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.client = name
}

// of returns the name of the client, and the target that the client has announced for the forward with the given
// bind string.
func (a *announced) of(bind string) (client string, target relay.Target) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.client, a.targets[bind]
}

// follows reports whether the client connects to another node when it gets NoticeMoving.
func (a *announced) follows() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.moves
}

// hello handles the message in which relay up announces its capabilities. It returns false for a malformed message.
func (c *conn) hello(payload []byte) bool {
	var h relay.Hello
	if link.Unmarshal(payload, &h) != nil || h.Protocol != 1 {
		return false
	}
	a := &c.announced
	a.lazy.Store(h.Flags&relay.HelloLazyDial != 0)
	a.mu.Lock()
	a.client = "relay " + record.SafeTextMax(h.Version, 48)
	a.moves = h.Flags&relay.HelloMoves != 0
	a.mu.Unlock()
	q, first := c.notices.sender()
	return !first || c.Go("notices", func() { c.sendNotices(q) })
}

// target handles the message in which relay up announces its local server. It returns false for a message that is
// malformed or over a limit.
func (c *conn) target(payload []byte) bool {
	var t relay.Target
	if link.Unmarshal(payload, &t) != nil || len(t.Bind) > maxBindLength || len(t.URL) > 2048 || len(t.HostHeader) > 512 {
		return false
	}
	// HostHeader becomes part of a header line, so it must not contain a line end or a space.
	if strings.ContainsFunc(t.HostHeader, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return false
	}
	a := &c.announced
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.targets[t.Bind]; !known && len(a.targets) >= maxTargets {
		return false
	}
	if a.targets == nil {
		a.targets = map[string]relay.Target{}
	}
	a.targets[t.Bind] = t
	return true
}
