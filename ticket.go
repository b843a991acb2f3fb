package relay

import "sync"

// Ticket is the promise that a store step becomes durable, or an error why it
// cannot. It is resolved once.
type Ticket struct {
	once sync.Once
	done chan struct{}
	err  error
}

// NewTicket makes an unresolved ticket.
func NewTicket() *Ticket { return &Ticket{done: make(chan struct{})} }

// Done is closed when the ticket is resolved.
func (t *Ticket) Done() <-chan struct{} { return t.done }

// Err is why the step cannot become durable, nil when it is; only after Done.
func (t *Ticket) Err() error { return t.err }

// Resolve settles the ticket; later calls do nothing.
func (t *Ticket) Resolve(err error) {
	t.once.Do(func() {
		t.err = err
		close(t.done)
	})
}
