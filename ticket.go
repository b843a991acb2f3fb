package relay

import "sync"

// Ticket is the pending result of a store step: nil once the step is durable, or the
// error why it cannot become so. It is resolved once.
type Ticket struct {
	once sync.Once
	done chan struct{}
	err  error
}

// NewTicket makes an unresolved ticket.
func NewTicket() *Ticket { return &Ticket{done: make(chan struct{})} }

// Done is closed when the ticket is resolved.
func (t *Ticket) Done() <-chan struct{} { return t.done }

// Err returns the result; call it after Done is closed.
func (t *Ticket) Err() error { return t.err }

// Resolve sets the result. Later calls do nothing.
func (t *Ticket) Resolve(err error) {
	t.once.Do(func() {
		t.err = err
		close(t.done)
	})
}
