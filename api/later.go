package api

import (
	"bytes"
	"context"
	"net/http"
	"sync"

	"relay"
)

// later lets a call of an agent wait outside the library of package mcp, because the library holds goroutines
// with deep stacks while a tool runs. The call is made twice. The first call stores its wait in later, and
// its answer is dropped. When the wait has ended, the second call returns the outcome.
type later struct {
	mu   sync.Mutex
	wait func(context.Context) (relay.Page, error) // nil = the call does not wait
	page relay.Page
	err  error
	over bool // the wait has ended

	message bytes.Buffer // message of the agent, for the second call
	long    bool         // the message exceeds maxWaitMessage: the call waits inside the library
}

// maxWaitMessage bounds the message of a call that waits outside the library, in bytes.
const maxWaitMessage = 16 << 10

type laterKey struct{}

// laterOf returns the later in the context of an agent's call, or nil for every other request.
func laterOf(ctx context.Context) *later {
	l, _ := ctx.Value(laterKey{}).(*later)
	return l
}

// Write records the message while the library reads it, up to maxWaitMessage bytes.
func (l *later) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.long = l.long || l.message.Len()+len(p) > maxWaitMessage; !l.long {
		l.message.Write(p)
	}
	return len(p), nil
}

// outcome returns the outcome of a wait. In the first call, it stores the wait and returns over = false; if
// the message is too long for a second call, it runs the wait itself.
func (l *later) outcome(ctx context.Context, wait func(context.Context) (relay.Page, error)) (page relay.Page, over bool, err error) {
	l.mu.Lock()
	switch {
	case l.over:
		defer l.mu.Unlock()
		return l.page, true, l.err
	case !l.long:
		defer l.mu.Unlock()
		l.wait = wait
		return relay.Page{}, false, nil
	}
	l.mu.Unlock()
	page, err = wait(ctx)
	return page, true, err
}

// waits reports whether the first call has stored a wait that run has not begun yet.
func (l *later) waits() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wait != nil
}

// run runs the wait that the first call has stored, if any. It reports whether the second call is to be made.
func (l *later) run(ctx context.Context) bool {
	l.mu.Lock()
	wait := l.wait
	l.wait = nil
	l.mu.Unlock()
	if wait == nil {
		return false
	}
	page, err := wait(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.page, l.err, l.over = page, err, true
	return ctx.Err() == nil
}

// firstAnswer passes on the answer of the first call. If that call has stored a wait, firstAnswer drops its
// answer, because the second call makes another one.
type firstAnswer struct {
	http.ResponseWriter
	later *later
}

// WriteHeader implements http.ResponseWriter.
func (a firstAnswer) WriteHeader(status int) {
	if !a.later.waits() {
		a.ResponseWriter.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (a firstAnswer) Write(p []byte) (int, error) {
	if a.later.waits() {
		return len(p), nil
	}
	return a.ResponseWriter.Write(p)
}

// Unwrap gives http.ResponseController the wrapped writer.
func (a firstAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
