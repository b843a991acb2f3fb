package exchange

import "time"

// startSender starts the goroutine of the sender. It sends rest, which the first write has left of the first piece,
// and then the request behind the first piece, which it also records if it comes from a caller.
func (x *run) startSender(rest []byte) {
	q, s := x.q, &x.send
	if q.end.how != endWhole {
		if q.stored && q.expects() {
			s.proceed = make(chan bool, 1)
		}
		if !q.stored && !s.failed {
			x.awaitContinue()
		}
	}
	if len(rest) == 0 {
		// All bytes of the first piece were sent.
		q.freePiece()
	}
	x.end, x.sending, x.due.upload = requestEnd{}, true, time.Now().Add(slowAfter)
	s.start(rest)
}

// awaitContinue notes that the caller sends its body only after 100 Continue (RFC 9110, section
// 10.1.1). The stall timeout does not apply to such a body, but the local server has to respond within the
// response timeout.
func (x *run) awaitContinue() {
	q := x.q
	if !q.Head.Expect || q.continued || len(q.first) > len(q.sentHead) {
		return
	}
	x.send.awaiting100.Store(true)
	if q.ResponseTimeout > 0 {
		x.due.continueLine = x.at.open.Add(q.ResponseTimeout)
	}
}

// sent handles the result of the sender if it arrives before the end of the response.
func (x *run) sent(u sent) error {
	x.join(u)
	switch {
	case u.how == endUntaken && x.at.first.IsZero():
		return errUntaken
	case u.how == endUntaken && x.end.how == endOpen:
		// An answer came although no byte of the request was taken. The sender continues, to record the
		// request.
		x.startSender(nil)
		return nil
	case x.end.how == endWhole, x.answer.final != nil:
		// If no byte was taken, the next read reports the end of the connection.
		return nil
	case u.how == endUnreadable, u.how == endUnstored, u.how == endPanicked:
		return x.fail(u.err)
	}
	return errNotWhole
}

// join stores the result of the sender, whose goroutine has ended.
func (x *run) join(u sent) {
	x.sending = false
	if u.how == endUntaken {
		x.send.failed, x.end = true, x.q.end
	} else {
		x.end, x.q.end = u.requestEnd, u.requestEnd
	}
	if x.end.how == endWhole {
		x.at.whole = u.at
	}
}

// joinOn takes the result of the sender. If the connection took nothing of the first piece, joinOn
// starts the sender once more to record the rest of the request.
func (x *run) joinOn(u sent) {
	if x.join(u); x.end.how == endOpen {
		x.startSender(nil)
	}
}

// joinSender waits a moment for a sender that has read the whole request and is in its last write: the
// response can arrive before that write returns.
func (x *run) joinSender() {
	if !x.sending || !x.q.rec.isWhole() {
		return
	}
	select {
	case u := <-x.send.done:
		x.join(u)
	case <-time.After(lastWriteWait):
	}
}

// readToEnd reads the request to its end when no response of the local server will come.
func (x *run) readToEnd() {
	q := x.q
	x.send.awaiting100.Store(false)
	if !x.sending {
		q.ReadToEnd(nil)
		x.end = q.end
		if q.left {
			x.out.leave(readerLeft)
		}
		return
	}
	if x.end.how == endOpen && q.bodyNotSent() {
		// The sender has read all bytes that had arrived, none of them of the body: the caller waits for 100
		// Continue.
		q.continued = true
		x.out.write([]byte(continueLine))
	}
	x.awaitSender(nil)
}

// awaitSender waits for the end of the sender. It stops the sender when the channel enough is closed, or Cut
// ends.
func (x *run) awaitSender(enough <-chan struct{}) {
	for x.sending {
		select {
		case u := <-x.send.done:
			x.joinOn(u)
		case <-enough:
			x.stopSender()
		case <-x.q.o.Cut.Done():
			x.stopSender()
		}
	}
}

// stopSender ends a sender that may be waiting for a silent caller.
func (x *run) stopSender() {
	x.send.stop.Store(true)
	x.out.abort()
	x.endSender()
}

// endStoredSender waits until the goroutine that sends a stored request has ended. The connection must already
// be closed.
func (x *run) endStoredSender() {
	if x.sending && x.q.stored {
		x.send.signalProceed(false)
		x.endSender()
	}
}

// endSender waits for a sender that will end soon, because its connection is closed, or because it is writing the
// last byte of the request.
func (x *run) endSender() {
	for x.sending {
		x.joinOn(<-x.send.done)
	}
}
