package relay

import "sync"

// Ticket reports when a step of the store has become durable, or the reason why it has failed.
// It is resolved once. Its methods are safe for concurrent use.
type Ticket struct {
	once sync.Once
	done chan struct{}
	err  error
}

// NewTicket returns an unresolved ticket.
func NewTicket() *Ticket { return &Ticket{done: make(chan struct{})} }

// Done returns a channel that is closed when the ticket is resolved.
func (t *Ticket) Done() <-chan struct{} { return t.done }

// Err returns nil if the step is durable, else the reason why it is not. It may be
// called only after Done is closed.
func (t *Ticket) Err() error { return t.err }

// Resolve sets the result. Only the first call has an effect.
func (t *Ticket) Resolve(err error) {
	t.once.Do(func() {
		t.err = err
		close(t.done)
	})
}
