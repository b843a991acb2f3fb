package pool

import (
	"sync"
	"time"

	"relay"
)

// readSize is the size of one read, idleReadSize while nothing is expected.
const readSize, idleReadSize = 32 << 10, 4 << 10

// buffers are those of reads, *[]byte of readSize.
var buffers = sync.Pool{New: func() any { b := make([]byte, readSize); return &b }}

// OriginSpare is the Origin of a channel that was opened ahead.
const OriginSpare = "spare"

// Channel is a channel with the buffer of its outstanding read. It belongs to one exchange,
// or to the pool of its tunnel.
type Channel struct {
	relay.Channel
	Reused bool // it served a request before
	// Owner is the caller whose request body this channel has carried; nil = it has
	// carried none. Only the owner's requests may follow: a local server that answers
	// without reading a body takes the body for the beginning of the next request.
	Owner relay.Caller

	shared   *Shared
	reading  bool   // a read is outstanding
	buf      []byte // where it goes
	large    *[]byte
	small    []byte
	answered bool      // a read was answered: more may follow
	idled    bool      // it waited in the pool: what is wrong with it may be old
	gotBytes bool      // something came while it waited
	keptBy   *Pool     // the pool that kept it first
	since    time.Time // when it was kept
	until    time.Time // how long it may be
	closed   bool
}

// Channel counts a channel that was opened, until its Close.
func (p *Pool) Channel(ch relay.Channel) *Channel {
	p.Shared.open.Add(1)
	return &Channel{Channel: ch, shared: p.Shared}
}

// Usable reports whether the channel is open and no read is outstanding.
func (l *Channel) Usable() bool { return !l.reading && !l.closed }

// Idled reports whether the channel waited in the pool: what is wrong with it may be old.
func (l *Channel) Idled() bool { return l.idled }

// Bytes returns what the read f brought, valid until the next read.
func (l *Channel) Bytes(f relay.Fill) []byte { return l.buf[:f.N] }

// Origin says how the request got the channel: new, reused, or opened ahead.
func (l *Channel) Origin() string {
	switch {
	case l.Reused:
		return relay.ConnectionReused
	case l.idled:
		return OriginSpare
	}
	return relay.ConnectionNew
}

// RequestRead starts a read unless one is outstanding.
func (l *Channel) RequestRead() {
	if l.reading {
		return
	}
	if !l.answered {
		l.requestSmallRead()
		return
	}
	if l.large == nil {
		l.large = buffers.Get().(*[]byte)
	}
	l.reading, l.buf = true, *l.large
	l.Fill(l.buf)
}

// requestSmallRead reads into a small buffer of the channel's own: many channels may
// wait for a local server that hangs.
func (l *Channel) requestSmallRead() {
	if l.small == nil {
		l.small = make([]byte, idleReadSize)
	}
	l.reading, l.buf = true, l.small
	l.Fill(l.buf)
}

// armIdleRead leaves a read outstanding while the channel is in the pool, so that an end
// or a byte there is noticed.
func (l *Channel) armIdleRead() {
	if l.large != nil {
		buffers.Put(l.large)
		l.large = nil
	}
	l.idled = true
	l.requestSmallRead()
}

// ReadDone notes that the outstanding read was answered.
func (l *Channel) ReadDone() { l.reading, l.answered = false, true }

// pollIdleRead reports whether the outstanding read of an idle channel has ended, and
// whether it gave bytes.
func (l *Channel) pollIdleRead() (any, bytes bool) {
	if l.reading {
		select {
		case f := <-l.Filled():
			l.reading, l.gotBytes = false, f.N > 0
		default:
			return false, false
		}
	}
	return true, l.gotBytes
}

// Reads gives the outstanding read; nil if there is none.
func (l *Channel) Reads() <-chan relay.Fill {
	if l == nil || !l.reading {
		return nil
	}
	return l.Filled()
}

// Close ends the channel. A buffer that a read may still write to is given up.
func (l *Channel) Close() {
	if l == nil || l.closed {
		return
	}
	l.closed = true
	_ = l.Channel.Close()
	l.shared.open.Add(-1)
	if p := l.keptBy; p != nil {
		l.shared.kept.Add(-1)
		if p.ended.Add(1); p.kept.Add(-1) == 0 {
			p.proven.Store(0)
		}
	}
	if l.large != nil && !l.reading {
		buffers.Put(l.large)
	}
	l.large = nil
}
