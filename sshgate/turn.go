package sshgate

import (
	"sync/atomic"
)

// Bounds of those who ask the store who somebody is and what is theirs.
const (
	askers   = 16 // at the same time
	manyWait = 64 // so many in line are a crowd, in which greetings are short
)

// turns lets so many ask the store at a time, first come, first served. When a relay was
// restarted all its clients come at once: if all were served at once, each would be so
// slow that its time for the login ran out, and it would come again. Safe for concurrent
// use.
type turns struct {
	free chan struct{} // one for each that asks
	line atomic.Int64  // who waits
}

func newTurns() *turns { return &turns{free: make(chan struct{}, askers)} }

// crowded tells whether many wait.
func (t *turns) crowded() bool { return t.line.Load() >= manyWait }

// turn waits until the connection may ask the store; done is called when it has. false
// means that nobody is there any more to tell the answer to.
func (c *conn) turn() (done func(), ok bool) {
	t := c.gate.turns
	c.asking.Add(1)
	t.line.Add(1)
	defer t.line.Add(-1)
	select {
	case t.free <- struct{}{}:
		return func() { c.asking.Add(-1); <-t.free }, true
	case <-c.ctx.Done():
	case <-c.lost:
	}
	c.asking.Add(-1)
	return nil, false
}
