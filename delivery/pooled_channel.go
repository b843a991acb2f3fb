package delivery

import (
	"time"

	"relay"
)

// pooledChannel is a channel with the buffer of its outstanding read. It belongs to one
// exchange, or to the pool of its tunnel.
type pooledChannel struct {
	d        *Delivery
	ch       relay.Channel
	reading  bool   // a read is outstanding
	buf      []byte // where it goes
	large    *[]byte
	small    []byte
	answered bool      // a read was answered: more may follow
	idled    bool      // it waited in the pool: what is wrong with it may be old
	gotBytes bool      // something came while it waited
	reused   bool      // it served a request before
	keptBy   *pool     // the pool that kept it first
	since    time.Time // when it was kept
	until    time.Time // how long it may be
	// owner is the caller whose request body this channel has carried; nil = it has
	// carried none. Only the owner's requests may follow: a local server that answers
	// without reading a body takes the body for the beginning of the next request.
	owner  relay.Caller
	closed bool
}

func newPooledChannel(d *Delivery, ch relay.Channel) *pooledChannel {
	d.channels.Add(1)
	return &pooledChannel{d: d, ch: ch}
}

// origin says how the request got the channel: new, reused, or opened ahead.
func (l *pooledChannel) origin() string {
	switch {
	case l.reused:
		return relay.ConnectionReused
	case l.idled:
		return originSpare
	}
	return relay.ConnectionNew
}

// requestRead starts a read unless one is outstanding.
func (l *pooledChannel) requestRead() {
	if l.reading {
		return
	}
	if !l.answered {
		l.requestSmallRead()
		return
	}
	if l.large == nil {
		l.large = l.d.piece()
	}
	l.reading, l.buf = true, *l.large
	l.ch.Fill(l.buf)
}

// requestSmallRead reads into a small buffer of the channel's own: many channels may
// wait for a local server that hangs.
func (l *pooledChannel) requestSmallRead() {
	if l.small == nil {
		l.small = make([]byte, idleReadSize)
	}
	l.reading, l.buf = true, l.small
	l.ch.Fill(l.buf)
}

// armIdleRead leaves a read outstanding while the channel is in the pool, so that an end
// or a byte there is noticed.
func (l *pooledChannel) armIdleRead() {
	if l.large != nil {
		l.d.pieces.Put(l.large)
		l.large = nil
	}
	l.idled = true
	l.requestSmallRead()
}

// readDone notes that the outstanding read was answered.
func (l *pooledChannel) readDone() { l.reading, l.answered = false, true }

// pollIdleRead reports whether the outstanding read of an idle channel has ended, and
// whether it gave bytes.
func (l *pooledChannel) pollIdleRead() (any, bytes bool) {
	if l.reading {
		select {
		case f := <-l.ch.Filled():
			l.reading, l.gotBytes = false, f.N > 0
		default:
			return false, false
		}
	}
	return true, l.gotBytes
}

// reads is the channel that delivers the outstanding read; nil if there is none.
func (l *pooledChannel) reads() <-chan relay.Fill {
	if l == nil || !l.reading {
		return nil
	}
	return l.ch.Filled()
}

// close ends the channel. A buffer that a read may still write to is given up.
func (l *pooledChannel) close() {
	if l == nil || l.closed {
		return
	}
	l.closed = true
	_ = l.ch.Close()
	l.d.channels.Add(-1)
	if p := l.keptBy; p != nil {
		l.d.kept.Add(-1)
		if p.ended.Add(1); p.kept.Add(-1) == 0 {
			p.proven.Store(0)
		}
	}
	if l.large != nil && !l.reading {
		l.d.pieces.Put(l.large)
	}
	l.large = nil
}

// piece gives a pooled buffer of readPiece bytes.
func (d *Delivery) piece() *[]byte {
	b, _ := d.pieces.Get().(*[]byte)
	return b
}
