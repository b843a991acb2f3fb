package budget

import (
	"context"
	"net/http"

	"relay"
)

// freeAnswer is the number of bytes of a response that need no reservation: the socket buffers of a
// client that does not read hold as many.
const freeAnswer = 64 << 10

// Writer writes a response that was built in memory. Until the client has read the bytes, they count in
// Budget; a response that finds no space is refused. The underlying writer cuts off a client that does not
// read. A Writer sends the head with the first byte of the body. Only one goroutine may use a Writer,
// and it calls Close at the end.
type Writer struct {
	http.ResponseWriter
	Budget  *Budget
	Account int64 // the account (Actor.BufferAccount); 0 while it is unknown
	// Refuse sends the error in place of the response.
	Refuse func(w http.ResponseWriter, err *relay.Error)

	status  int // status of a head that was not sent yet
	sent    bool
	refused bool
	hold    Hold
	held    int64 // the number of bytes passed to Hold
}

// Hold changes the reservation of the Writer to n bytes, until the next call of Hold or Close. Use it for a
// response that stays in memory until it is written. Its error is that of the method Set of the type Hold.
func (a *Writer) Hold(n int64) error {
	a.hold.Budget, a.hold.Account = a.Budget, a.Account
	if err := a.hold.Set(n); err != nil {
		return err
	}
	a.held = n
	return nil
}

// readKey is the context key for the Writer in WithReads.
type readKey struct{}

// ReadCopies is the number of copies in memory of the bytes of a read: as read from the store, and as
// encoded in the response.
const ReadCopies = 2

// leastRead is the number of bytes that a read may return even with a small budget: enough for a shown
// body with its head.
const leastRead = 2 << 20

// WithReads returns a context for reads of the store. Each read reserves memory for the bytes that it
// will return, and for their copies, before it reads them.
func (a *Writer) WithReads(ctx context.Context) context.Context {
	return context.WithValue(ctx, readKey{}, a)
}

// MostRead returns the number of bytes that a read may return. This is the parameter most, or less if the
// account of the context cannot hold so many bytes with their copies.
func MostRead(ctx context.Context, most int64) int64 {
	if a, _ := ctx.Value(readKey{}).(*Writer); a != nil {
		most = min(most, max(leastRead, a.Budget.Share()/ReadCopies))
	}
	return most
}

// ReserveRead reserves memory for n bytes that are about to be read, if the context comes from WithReads. A
// read of at most freeAnswer bytes needs no reservation.
func ReserveRead(ctx context.Context, n int64) error {
	if a, _ := ctx.Value(readKey{}).(*Writer); a != nil && n > freeAnswer {
		return a.Hold(a.held + ReadCopies*n)
	}
	return nil
}

// WriteHeader keeps the status for the first byte of the body; an interim status is sent at once.
func (a *Writer) WriteHeader(status int) {
	switch {
	case status < http.StatusOK:
		a.ResponseWriter.WriteHeader(status)
	case a.status == 0:
		a.status = status
	}
}

// Write writes p. If there is no space for p, Write refuses the response; a response that has begun is
// aborted.
func (a *Writer) Write(p []byte) (int, error) {
	if a.refused {
		return len(p), nil
	}
	if n := int64(len(p)); n > freeAnswer && n > a.held {
		before := a.held
		if err := a.Hold(n); err != nil {
			a.refuse(relay.AsError(err))
			return len(p), nil
		}
		defer func() { _ = a.Hold(before) }()
	}
	a.sendHead()
	return a.ResponseWriter.Write(p)
}

func (a *Writer) refuse(err *relay.Error) {
	if a.sent {
		panic(http.ErrAbortHandler) // aborts the connection, so that the client cannot take the part for the whole response
	}
	for _, name := range []string{"Content-Length", "Content-Type", "Content-Disposition", "Etag"} {
		a.Header().Del(name)
	}
	a.sent, a.refused = true, true
	a.Refuse(a.ResponseWriter, err)
}

func (a *Writer) sendHead() {
	if !a.sent {
		if a.sent = true; a.status != 0 {
			a.ResponseWriter.WriteHeader(a.status)
		}
	}
}

// FlushError is called by http.ResponseController.
func (a *Writer) FlushError() error {
	if a.refused {
		return nil
	}
	a.sendHead()
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Flush implements http.Flusher.
func (a *Writer) Flush() { _ = a.FlushError() }

// Unwrap lets http.ResponseController find the methods for deadlines.
func (a *Writer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Close sends the head if there was no body, and releases the reservation.
func (a *Writer) Close() {
	a.sendHead()
	a.Abandon()
}

// Abandon releases the reservation of an aborted response, without sending anything.
func (a *Writer) Abandon() {
	_ = a.Hold(0)
}
