package exchange

import (
	"errors"
	"hash/maphash"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"relay"
)

// sender sends the request. It belongs to the goroutine of Run until Run starts a second goroutine with
// the method run, and then to the second goroutine, until the result has arrived on done.
type sender struct {
	signals
	q       *Request
	conn    Conn
	written maphash.Hash // hash of the bytes that the connection took
	failed  bool         // the connection takes no more bytes
	reached bool         // the connection has taken at least one byte
	late    bool         // the first write took longer than firstWait, so its last bytes may not have been sent yet
}

// signals are the channels and flags by which the goroutines of Run and of the sender inform each other.
type signals struct {
	done        chan sent
	proceed     chan bool    // tells a sender that waits for 100 Continue whether to send the body; nil = the sender does not wait
	stop        atomic.Bool  // tells the sender to stop
	awaiting100 atomic.Bool  // the caller waits for a 100 Continue before it sends the body, and none was sent
	whole       atomic.Bool  // the last byte of the request was written
	onFirst     atomic.Bool  // the first piece is still being written
	writing     atomic.Int64 // when the running write began, in ns after Request.began; 0 = no write is running
}

// sent is the result of a sender.
type sent struct {
	requestEnd
	at time.Time
}

// sendFirst writes as much of the first piece as the connection takes within firstWait, and returns
// the rest. ok is false if the connection failed before it took a byte.
func (s *sender) sendFirst() (rest []byte, ok bool) {
	s.written.SetSeed(seed)
	_ = s.conn.SetWriteDeadline(time.Now().Add(firstWait))
	n, err := s.conn.Write(s.q.first)
	// Later writes have no deadline.
	_ = s.conn.SetWriteDeadline(time.Time{})
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		rest, err, s.late = s.q.first[n:], nil, true
		s.onFirst.Store(len(rest) > 0)
		if n == 0 {
			return rest, true
		}
	case n == 0 && err != nil:
		return nil, false
	default:
		s.failed = err != nil || n < len(s.q.first)
	}
	s.took(s.q.first[:n])
	return rest, true
}

// took notes the bytes that the connection has taken.
func (s *sender) took(p []byte) {
	s.written.Write(p)
	s.reached = true
}

// start sends the rest of the first piece and of the request in a goroutine, which ends before Run
// does.
func (s *sender) start(rest []byte) {
	s.done = make(chan sent, 1)
	go func() {
		var r sent
		defer func() {
			if v := recover(); v != nil {
				s.q.o.logPanic(s.q, v, debug.Stack())
				r.requestEnd = requestEnd{endPanicked, errPanic()}
			}
			r.at = time.Now()
			s.done <- r
		}()
		r.requestEnd = s.run(rest)
	}()
}

func (s *sender) run(rest []byte) requestEnd {
	s.send(rest)
	s.onFirst.Store(false)
	switch {
	case len(rest) > 0 && !s.reached:
		return requestEnd{how: endUntaken}
	case s.q.end.how == endWhole:
		s.whole.Store(!s.failed)
		return requestEnd{how: endWhole}
	case s.q.stored:
		return s.sendStored()
	}
	return s.sendReceived()
}

// send writes to the connection until a write has failed. A failed write does not end the request:
// the rest of it is still recorded.
func (s *sender) send(p []byte) {
	if s.failed || len(p) == 0 {
		return
	}
	s.writing.Store(max(1, int64(time.Since(s.q.began))))
	n, err := s.conn.Write(p)
	s.writing.Store(0)
	if n > 0 || err == nil {
		s.took(p[:n])
	}
	s.failed = err != nil || n < len(p)
}

// sendReceived sends and records the rest of the request as it arrives from its caller.
func (s *sender) sendReceived() requestEnd {
	b := newPiece()
	defer pieces.Put(b)
	q := s.q
	for {
		held := s.awaiting100.Load()
		n, err := q.caller.Read(*b)
		if n > 0 {
			s.awaiting100.Store(false)
			used, end := q.receive((*b)[:n])
			if end.how == endOpen || end.how == endWhole {
				q.raw.Write((*b)[:used])
				s.send((*b)[:used])
			}
			if end.how != endOpen {
				s.whole.Store(end.how == endWhole && !s.failed)
				return end
			}
		}
		if err != nil {
			end := readError(err)
			if end.how != endStalled || !held {
				// The stall timeout starts anew when a 100 Continue was sent.
				return end
			}
		}
		if s.stop.Load() {
			return requestEnd{endLeft, relay.Errorf(relay.CodeCallerGone, "the relay stopped reading the request")}
		}
	}
}

// errWriteFailed ends the rebuilding of a message after a write has failed.
var errWriteFailed = errors.New("the connection accepts no more bytes")

// sendStored sends a stored body, and stops once a write has failed. If the request expects 100
// Continue, sendStored waits one second for the 100 Continue. It sends no byte of the body if the final
// response comes instead.
func (s *sender) sendStored() requestEnd {
	if s.proceed != nil {
		select {
		case yes := <-s.proceed:
			if !yes {
				return requestEnd{how: endAnswered}
			}
		case <-time.After(continueWait):
		}
	}
	out := newPiece()
	defer pieces.Put(out)
	w := &pieceWriter{s: s, piece: *out}
	err := s.q.rebuild(w)
	s.send(w.piece[:w.n])
	s.whole.Store(!s.failed && err == nil)
	if err != nil && !errors.Is(err, errWriteFailed) {
		return requestEnd{endUnreadable, &relay.Error{
			Code:       relay.CodeStoreUnavailable,
			Detail:     "the relay could not read the stored request to its end, so the local server did not get all of it",
			RetryAfter: retryAfter, Cause: err,
		}}
	}
	return requestEnd{how: endWhole}
}

// pieceWriter collects the written bytes and passes them on in pieces of a fixed size.
type pieceWriter struct {
	s     *sender
	piece []byte
	n     int // used bytes of the buffer
}

func (w *pieceWriter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		k := copy(w.piece[w.n:], rest)
		if w.n, rest = w.n+k, rest[k:]; w.n == len(w.piece) {
			w.s.send(w.piece)
			w.n = 0
		}
	}
	if w.s.failed {
		return 0, errWriteFailed
	}
	return len(p), nil
}

// signalProceed tells a sender that waits for 100 Continue whether to send the body.
func (s *signals) signalProceed(yes bool) {
	if s.proceed == nil {
		return
	}
	select {
	case s.proceed <- yes:
	default:
	}
}

// blocked returns the time for which the running write has been waiting for the local server; 0 = no
// write is running.
func (s *signals) blocked(q *Request, now time.Time) time.Duration {
	began := s.writing.Load()
	if began == 0 {
		return 0
	}
	return now.Sub(q.began) - time.Duration(began)
}
