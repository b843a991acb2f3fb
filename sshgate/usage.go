package sshgate

import (
	"sync"
	"time"
)

// usage counts the forwards and sessions of a connection, and calls a function when the connection has had
// neither for some time.
type usage struct {
	mu    sync.Mutex
	uses  int
	after time.Duration
	timer *time.Timer // nil before begin
	ended bool
}

// begin starts the timer. It calls the parameter unused once the connection has had neither a forward nor a
// session for as long as the parameter after says. begin does nothing if the connection has ended.
func (u *usage) begin(after time.Duration, unused func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.ended {
		u.after, u.timer = after, time.AfterFunc(after, unused)
	}
}

// add adds n to the number of uses; n may be negative.
func (u *usage) add(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.uses += n
	switch {
	case u.timer == nil || u.ended:
	case u.uses > 0:
		u.timer.Stop()
	default:
		u.timer.Reset(u.after)
	}
}

// none reports whether nothing uses the connection. The parameter busy means that something uses it that is not
// counted; the timer then calls the function unused again after one second.
func (u *usage) none(busy bool) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.uses > 0 || u.ended {
		return false
	}
	if busy && u.timer != nil {
		u.timer.Reset(time.Second)
	}
	return !busy
}

// end stops the timer for good.
func (u *usage) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended = true
	if u.timer != nil {
		u.timer.Stop()
	}
}
