package delivery

import (
	"time"

	"relay"
)

// line is one channel with the buffer of its outstanding read. It belongs to one
// exchange, or to the pool of its tunnel.
type line struct {
	d     *Delivery
	ch    relay.Channel
	asked bool   // a read is outstanding
	into  []byte // where it goes
	large *[]byte
	small []byte
	first bool      // a read was answered: more may follow
	spare bool      // it waited in the pool: what is wrong with it may be old
	bytes bool      // something came while it waited
	kept  bool      // it served a request before
	since time.Time // when it was kept
	until time.Time // how long it may be
	// owner is the caller whose request body this channel has carried; nil = it has
	// carried none. Only the owner's requests may follow: a local server that answers
	// without reading a body takes the body for the beginning of the next request.
	owner relay.Caller
	shut  bool
}

func newLine(d *Delivery, ch relay.Channel) *line {
	d.channels.Add(1)
	return &line{d: d, ch: ch}
}

// way says how a request came by the channel.
func (l *line) way() string {
	switch {
	case l.kept:
		return relay.ConnectionReused
	case l.spare:
		return viaSpare
	}
	return relay.ConnectionNew
}

// ask has one read outstanding; it may be called again before the answer.
func (l *line) ask() {
	if l.asked {
		return
	}
	if !l.first {
		l.askSmall()
		return
	}
	if l.large == nil {
		l.large = l.d.piece()
	}
	l.asked, l.into = true, *l.large
	l.ch.Fill(l.into)
}

// askSmall reads into a buffer of the channel's own, small because the answer may be
// long in coming: of those who wait for a local server that hangs there may be many.
func (l *line) askSmall() {
	if l.small == nil {
		l.small = make([]byte, smallBuffer)
	}
	l.asked, l.into = true, l.small
	l.ch.Fill(l.into)
}

// rest leaves a read outstanding while the channel waits in the pool.
func (l *line) rest() {
	if l.large != nil {
		l.d.pieces.Put(l.large)
		l.large = nil
	}
	l.spare = true
	l.askSmall()
}

// filled notes that the outstanding read was answered.
func (l *line) filled() { l.asked, l.first = false, true }

// heard tells whether the outstanding read of a waiting channel was answered, and
// whether by bytes.
func (l *line) heard() (any, bytes bool) {
	if l.asked {
		select {
		case f := <-l.ch.Filled():
			l.asked, l.bytes = false, f.N > 0
		default:
			return false, false
		}
	}
	return true, l.bytes
}

// answers is where the outstanding read is answered; nil when there is none.
func (l *line) answers() <-chan relay.Fill {
	if l == nil || !l.asked {
		return nil
	}
	return l.ch.Filled()
}

// close ends the channel. A buffer that a read may still write to is given up.
func (l *line) close() {
	if l == nil || l.shut {
		return
	}
	l.shut = true
	_ = l.ch.Close()
	l.d.channels.Add(-1)
	if l.large != nil && !l.asked {
		l.d.pieces.Put(l.large)
	}
	l.large = nil
}

// piece gives a pooled buffer of readPiece bytes.
func (d *Delivery) piece() *[]byte {
	b, _ := d.pieces.Get().(*[]byte)
	return b
}
