package sshgate

// Bounds of the questions that logins and forwards ask the store.
const (
	maxLookups      = 16 // at the same time
	shortGreetingAt = 64 // so many logins wait that greetings are kept short
)

// beginLookup waits until the connection may ask the store; the caller calls done when
// it has the answer. ok is false when the peer has gone meanwhile. When a relay was
// restarted, all its clients come at once: if all of them asked at once, each answer
// would come after its login had timed out, and the client would come again.
func (c *conn) beginLookup() (done func(), ok bool) {
	srv := c.srv
	c.lookups.Add(1)
	srv.waiting.Add(1)
	err := srv.lookups.Acquire(c.peerCtx, 1)
	srv.waiting.Add(-1)
	if err != nil {
		c.lookups.Add(-1)
		return nil, false
	}
	return func() { srv.lookups.Release(1); c.lookups.Add(-1) }, true
}
