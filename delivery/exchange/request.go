package exchange

import (
	"bytes"
	"context"
	"errors"
	"hash/maphash"
	"io"
	"slices"
	"time"

	"relay"
	"relay/record"
	"relay/wire"
)

// Request is one request to a local server, with its record. Only the goroutine that made the Request
// may use it. During Run, only Run may use it.
type Request struct {
	Event   *relay.Event  // not changed after it was given to the journal
	Attempt relay.Attempt // as far as its data are known
	Head    *wire.Head
	// Queued marks a delivery out of the queue: Run stores nothing of it if no byte reached the local
	// server, because the attempt then returns to the queue.
	Queued          bool
	Admitted        time.Time         // when the request got its slot on the tunnel
	ResponseTimeout time.Duration     // from the end of the request to the head of the final answer; 0 = no limit
	Secrets         relay.OpenSecrets // secrets of the alias, by which the signature of the request is judged

	o        *Options
	began    time.Time
	caller   relay.Caller // the source of the body; nil for replays and queued deliveries
	stored   bool         // the body is read from the store
	body     *wire.Body   // parser of the caller's body; nil = there is none
	rec      recording
	end      requestEnd
	accepted acceptance

	firstPiece
	raw       maphash.Hash // hash of the request as it was received
	continued bool         // a 100 Continue was sent to the caller
	left      bool         // the caller takes no more of the answer
}

// firstPiece holds the bytes of the first write.
type firstPiece struct {
	sentHead []byte  // the head for the local server
	first    []byte  // sentHead, and the bytes of the body that have arrived
	piece    *[]byte // the pooled buffer that holds first; nil = first is not in one
}

// acceptance is the part of the event that was given to the journal.
type acceptance uint8

const (
	notAccepted   acceptance = iota
	acceptedPart             // the request was not complete yet
	acceptedWhole            // the request was complete, or was stored before it was sent
)

// requestEnd is the result of reading or sending a request.
type requestEnd struct {
	how ending
	err *relay.Error
}

type ending uint8

const (
	endOpen       ending = iota // reading or sending has not ended
	endWhole                    // all bytes were read or sent
	endUntaken                  // the connection has taken no byte of the first piece
	endLeft                     // the caller left inside its body
	endStalled                  // no byte arrived within the stall timeout
	endMalformed                // the framing of the request is malformed
	endTooLarge                 // the body is larger than the limit
	endQueueFull                // the queue has no space for the request
	endUnstored                 // a part of the request cannot be stored
	endUnreadable               // the stored body cannot be read
	endAnswered                 // a final answer came during the wait for 100 Continue
	endPanicked
)

// Receive makes the request of a caller from its head. The buffered bytes count against the share of account in
// the budget.
func (o *Options) Receive(journal Journal, e *relay.Event, h *wire.Head, caller relay.Caller, account int64) *Request {
	q := o.request(journal, e, h, account)
	q.caller = caller
	q.Attempt = relay.Attempt{N: 1, Kind: relay.KindOriginal, ReceivedAt: e.ReceivedAt}
	q.rec.expect = h.Length
	if h.Framing == relay.FramingNone {
		q.rec.whole = true
	} else {
		q.body = wire.NewBody(h)
		q.body.Tee = q.rec.tee
		// Feed without bytes ends a body of length 0 at once.
		_, q.rec.whole, _ = q.body.Feed(nil)
	}
	return q
}

// Stored makes the request of an attempt of a stored event. The buffered bytes count against the share of account
// in the budget.
func (o *Options) Stored(e *relay.Event, a relay.Attempt, h *wire.Head, account int64) *Request {
	q := o.request(nil, e, h, account)
	q.Attempt, q.stored, q.rec.whole, q.accepted = a, true, true, acceptedWhole
	return q
}

func (o *Options) request(journal Journal, e *relay.Event, h *wire.Head, account int64) *Request {
	q := &Request{Event: e, Head: h, o: o, began: time.Now()}
	q.rec = recording{journal: journal, id: e.ID, space: reservation{budget: o.Budget, account: account}, over: o.Base.Done()}
	q.raw.SetSeed(seed)
	q.raw.Write(e.Request.Head)
	return q
}

// Release frees the memory that the request holds. The request must not be used afterwards.
func (q *Request) Release() {
	q.rec.release()
	q.freePiece()
}

func (q *Request) freePiece() {
	if q.piece != nil {
		pieces.Put(q.piece)
		q.piece, q.first = nil, nil
	}
}

// Whole reports whether the request was read to its end, and returns an error if the request can no
// longer become complete.
func (q *Request) Whole() (whole bool, why *relay.Error) { return q.end.how == endWhole, q.end.err }

// Ref returns the reference of the attempt.
func (q *Request) Ref() relay.AttemptRef { return relay.AttemptRef{Event: q.Event.ID, N: q.Attempt.N} }

// SetHead sets the head as it is sent to the local server.
func (q *Request) SetHead(head []byte) {
	if q.first != nil {
		// The head is replaced for another tunnel; no byte was sent yet.
		q.first = slices.Concat(head, q.first[len(q.sentHead):])
	}
	q.sentHead = head
}

// Gather collects the bytes of the first write: the head as sent, and the bytes of the body that have
// already arrived, up to maxFirstWrite in total. A head that is longer is the first write alone.
func (q *Request) Gather() {
	q.first = q.sentHead
	switch {
	case q.stored:
		q.gatherStored()
	case q.rec.whole:
		q.end.how = endWhole
	default:
		q.gatherBuffered()
	}
}

func (q *Request) gatherBuffered() {
	n := min(q.caller.Buffered(), maxFirstWrite-len(q.sentHead))
	if n <= 0 {
		return
	}
	q.piece = newPiece()
	b := append((*q.piece)[:0], q.sentHead...)
	piece := b[len(b) : len(b)+n]
	got, err := q.caller.Read(piece)
	if err != nil && got == 0 {
		q.end = readError(err)
		return
	}
	n, q.end = q.receive(piece[:got])
	q.raw.Write(piece[:n])
	q.first = b[:len(b)+n]
}

// gatherStored puts the whole request into the first write if the request is small. If it is larger, or if its body
// has to wait for 100 Continue, the first write has only the head.
func (q *Request) gatherStored() {
	m := &q.Event.Request
	switch {
	case m.Framing == relay.FramingNone:
		q.end.how = endWhole
		return
	case m.Body.Parts > 0:
		ctx, cancel := context.WithTimeout(q.o.Base, storeWait)
		defer cancel()
		if err := q.o.Bodies.CheckParts(ctx, q.Event.ID, 0, m.Body.Parts); err != nil {
			// After an error no byte of the request is sent.
			q.end = requestEnd{endUnreadable, StoreError(err)}
		}
		return
	case q.expects(),
		len(q.sentHead)+len(m.Lines)+len(m.Body.Data) > maxFirstWrite:
		return
	}
	q.freePiece()
	q.piece = newPiece()
	out := bytes.NewBuffer(append((*q.piece)[:0], q.sentHead...))
	if err := q.rebuild(out); err != nil {
		q.end = requestEnd{endUnreadable, StoreError(err)}
		return
	}
	q.first, q.end.how = out.Bytes(), endWhole
}

// rebuild writes the stored body in its wire form to w, in pieces. Parts of a large body are read
// one by one, each in one short query.
func (q *Request) rebuild(w io.Writer) error {
	m := &q.Event.Request
	var body io.Reader
	if m.Body.Parts > 0 {
		var err error
		if body, err = record.OpenBody(q.o.Base, timedParts{q.o.Bodies}, q.Event.ID, 0, &m.Body); err != nil {
			return err
		}
	}
	// The head is left out here, because the first write sends it from sentHead.
	noHead := []byte{}
	return wire.Rebuild(io.MultiWriter(&q.raw, w), m, noHead, body)
}

// timedParts bounds the time in which the store returns each part of a body.
type timedParts struct{ Bodies }

func (s timedParts) BodyPart(ctx context.Context, id relay.ID, n, i int) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	return s.Bodies.BodyPart(ctx, id, n, i)
}

// expects reports whether a stored body has to wait for 100 Continue.
func (q *Request) expects() bool {
	return q.Head.Expect && q.Head.Minor > 0 && q.Event.Request.Body.Size > 0
}

// receive parses bytes of the caller. n of them belong to this request; those after the end of the request are
// given back to the caller's connection.
func (q *Request) receive(p []byte) (n int, end requestEnd) {
	r, limit := &q.rec, q.o.MaxBody
	r.waitForParts(len(p))
	n, whole, e := q.body.Feed(p)
	size, over := r.progress()
	switch {
	case e != nil:
		return n, requestEnd{endMalformed, relay.AsError(e)}
	case over || limit > 0 && size > limit:
		return n, requestEnd{endTooLarge, ErrTooLarge(limit)}
	case whole:
		q.caller.Unread(p[n:])
		r.end()
		end.how = endWhole
	}
	if e := r.partsError(); e != nil {
		end = requestEnd{endUnstored, StoreError(e)}
	}
	return n, end
}

// reserve calls grow, if it is not nil, with the present size of the request, and ends the request if the queue
// has no space.
func (q *Request) reserve(grow func(size int64) bool) {
	if grow != nil && (q.end.how == endOpen || q.end.how == endWhole) && !grow(int64(len(q.Event.Request.Head))+q.rec.cost()) {
		q.end = requestEnd{endQueueFull, ErrQueueFull(false, NotStored)}
	}
}

// readError translates an error of the caller's connection into the end of the request.
func readError(err error) requestEnd {
	var e *relay.Error
	if errors.As(err, &e) && e.Code == relay.CodeRequestTimeout {
		return requestEnd{endStalled, e}
	}
	return requestEnd{endLeft, &relay.Error{
		Code: relay.CodeCallerGone, Detail: "the caller ended the connection inside its request body", Cause: err,
	}}
}

// ErrTooLarge returns the error for a request body larger than limit bytes.
func ErrTooLarge(limit int64) *relay.Error {
	return relay.Errorf(relay.CodeBodyTooLarge, "the request body is larger than the limit of %d bytes", limit)
}

// NotStored says that nothing of a refused request was stored.
const NotStored = "nothing of this request was stored"

// ErrQueueFull returns the error for a request that the queue has no space for. account says that the
// limit of the alias' owner was reached, and not that of the alias. lost is a clause that says what
// happened to the request.
func ErrQueueFull(account bool, lost string) *relay.Error {
	full := "its queue is full"
	if account {
		full = "the owner of this alias has reached the limit of what may wait at all its aliases"
	}
	return &relay.Error{
		Code:       relay.CodeQueueFull,
		Detail:     "the tunnel is offline and " + full + "; " + lost,
		RetryAfter: 30 * time.Second,
	}
}

// bodyNotSent reports whether the caller still waits for 100 Continue and has sent nothing of its
// body.
func (q *Request) bodyNotSent() bool {
	size, _ := q.rec.progress()
	return q.Head.Expect && !q.continued && size == 0
}

const continueLine = "HTTP/1.1 100 Continue\r\n\r\n"

// ReadToEnd reads the request to its end when no response of the local server will come, so that the
// event can be stored and sent later. If the caller waits for 100 Continue, ReadToEnd sends it, and
// does not record it as part of the response. grow, if not nil, reserves space in the queue for a
// request of size bytes in total; it returns false if there is no space.
func (q *Request) ReadToEnd(grow func(size int64) bool) {
	if q.reserve(grow); q.end.how != endOpen {
		return
	}
	// The bytes of the first write will not be sent, so their buffer is not needed any more.
	q.freePiece()
	if q.caller.Buffered() == 0 && q.bodyNotSent() {
		q.continued = true
		if _, err := q.caller.Write([]byte(continueLine)); err != nil {
			q.left = true
		}
	}
	// The end of Cut ends the read.
	stop := context.AfterFunc(q.o.Cut, q.caller.Abort)
	b := newPiece()
	defer pieces.Put(b)
	for q.end.how == endOpen {
		n, err := q.caller.Read(*b)
		if n > 0 {
			n, q.end = q.receive((*b)[:n])
			q.raw.Write((*b)[:n])
			q.reserve(grow)
		}
		if err != nil && q.end.how == endOpen {
			q.end = readError(err)
		}
	}
	// stop has to be called in any case, because otherwise Cut keeps a reference to the caller.
	if !stop() {
		q.left = true
	}
}

// SendStored makes the exchange send the request from the store instead of from the caller.
func (q *Request) SendStored() {
	q.stored, q.end = true, requestEnd{}
	q.raw.Reset()
	q.raw.Write(q.Event.Request.Head)
	q.Gather()
}

// Prepare fills the event with the part of its request that has arrived, and adds the first attempt.
// Event and attempt get the state. It must not be called after the event was given to the journal.
func (q *Request) Prepare(state string) {
	q.accepted = acceptedPart
	body := relay.BodyReceiving
	if q.rec.isWhole() {
		q.accepted, body = acceptedWhole, relay.BodyComplete
	}
	q.fill(body)
	q.addAttempt(state)
}

// addAttempt adds the first attempt to the event. Event and attempt get the state.
func (q *Request) addAttempt(state string) {
	a := q.Attempt
	a.State = state
	q.Event.State, q.Event.Attempts, q.Event.AttemptCount = state, []relay.Attempt{a}, 1
}

// fill copies the request that was received so far into the event.
func (q *Request) fill(bodyState string) {
	e := q.Event
	e.Request = q.rec.message(e.Request.Head, q.Head.Framing, bodyState)
	beginning := e.Request.Body.Data
	if e.Request.Body.Parts > 0 {
		beginning = q.rec.first
	}
	record.ReadRequest(e, beginning, q.o.Site, q.Secrets)
}

// Failed returns the attempt as failed, with why as the reason.
func (q *Request) Failed(why *relay.Error) relay.Attempt {
	a := q.Attempt
	a.State, a.EndedAt, a.Error = relay.StateFailed, time.Now(), asFault(why)
	return a
}

// Body returns the body of a request that arrived completely; ok is false if the body is kept in
// parts.
func (q *Request) Body() (body []byte, ok bool) {
	b := &q.Event.Request.Body
	if !q.stored {
		m := q.rec.message(nil, 0, "")
		b = &m.Body
	}
	return b.Data, b.Parts == 0
}

// Answered returns the attempt as answered by the relay with m. name is the challenge that m answers.
func (q *Request) Answered(name string, status int, m relay.Message) relay.Attempt {
	a := q.Attempt
	a.State, a.StartedAt, a.EndedAt, a.Handshake = relay.StateAnswered, q.began, time.Now(), name
	a.HasResponse, a.Status, a.ResponseState, a.Response = true, status, relay.ResponseComplete, m
	return a
}

// Left reports whether the caller no longer takes a response.
func (q *Request) Left() bool { return q.left }

// Accepted reports whether the event was given to the journal.
func (q *Request) Accepted() bool { return q.accepted != notAccepted }
