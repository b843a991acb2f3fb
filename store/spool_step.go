package store

import (
	"encoding/binary"
	"errors"
	"time"

	"relay"
)

// stepFormat is the first byte of a step in the spool.
const stepFormat = 1

var errStepDamaged = errors.New("a step of the spool cannot be read")

// coder encodes and decodes steps: one list of fields does both, so that the two cannot
// differ. Decoded slices point into the input. Lengths are checked against the remaining
// input before anything is allocated.
type coder struct {
	b       []byte // written, or still to be read
	reading bool
	err     error
}

// appendStep appends an encoded step to out.
func appendStep(out []byte, st *step) []byte {
	c := coder{b: append(out, stepFormat)}
	c.step(st)
	return c.b
}

// parseStep decodes the output of appendStep; nothing may follow it.
func parseStep(b []byte) (*step, error) {
	if len(b) == 0 || b[0] != stepFormat {
		return nil, errStepDamaged
	}
	c, st := coder{b: b[1:], reading: true}, &step{}
	c.step(st)
	if c.err == nil && len(c.b) > 0 {
		c.err = errStepDamaged
	}
	if c.err != nil {
		return nil, c.err
	}
	return st, nil
}

func (c *coder) fail() {
	c.err, c.b = errStepDamaged, nil
}

// number encodes or decodes an integer.
func number[T ~int | ~int64 | ~uint8](c *coder, v *T) {
	if !c.reading {
		c.b = binary.AppendVarint(c.b, int64(*v))
		return
	}
	n, used := binary.Varint(c.b)
	if used <= 0 {
		c.fail()
		return
	}
	*v, c.b = T(n), c.b[used:]
	if int64(*v) != n {
		c.fail()
	}
}

// count encodes or decodes the length of a list. At least one byte follows for each entry,
// which bounds a decoded length.
func (c *coder) count(n int) int {
	number(c, &n)
	if c.reading && (n < 0 || n > len(c.b)) {
		c.fail()
		return 0
	}
	return n
}

// bytes encodes or decodes a slice and whether it is nil.
func (c *coder) bytes(p *[]byte) {
	n := -1
	if *p != nil {
		n = len(*p)
	}
	number(c, &n)
	switch {
	case !c.reading:
		c.b = append(c.b, *p...)
	case n == -1:
		*p = nil
	case n < 0 || n > len(c.b):
		c.fail()
	default:
		*p, c.b = c.b[:n:n], c.b[n:]
	}
}

func (c *coder) text(s *string) {
	p := []byte(*s)
	c.bytes(&p)
	if c.reading {
		*s = string(p)
	}
}

func (c *coder) flag(v *bool) {
	n := boolToInt(*v)
	number(c, &n)
	*v = n != 0
}

// when encodes or decodes a time in microseconds, as in the tables.
func (c *coder) when(t *time.Time) {
	us := micros(*t)
	number(c, &us)
	if c.reading {
		*t = fromMicros(us)
	}
}

// present encodes or decodes whether an optional value follows.
func (c *coder) present(there bool) bool {
	c.flag(&there)
	return there && c.err == nil
}

func (c *coder) id(id *relay.ID) {
	if !c.reading {
		c.b = append(c.b, id[:]...)
		return
	}
	if len(c.b) < len(id) {
		c.fail()
		return
	}
	c.b = c.b[copy(id[:], c.b):]
}

func (c *coder) step(st *step) {
	number(c, &st.kind)
	c.id(&st.id)
	number(c, &st.n)
	number(c, &st.i)
	c.text(&st.state)
	c.bytes(&st.data)
	if c.present(st.event != nil) {
		if c.reading {
			st.event = &relay.Event{}
		}
		c.event(st.event)
	}
	if c.present(st.attempt != nil) {
		if c.reading {
			st.attempt = &relay.Attempt{}
		}
		c.attempt(st.attempt)
	}
	if c.present(st.message != nil) {
		if c.reading {
			st.message = &relay.Message{}
		}
		c.message(st.message)
	}
	if c.reading && !st.usable() {
		c.fail()
	}
}

// usable reports whether a step has the fields that its kind needs.
func (st *step) usable() bool {
	switch st.kind {
	case stepAccept:
		return st.event != nil
	case stepFinish:
		return st.attempt != nil
	case stepAmend:
		return st.message != nil
	}
	return st.kind <= stepRequeue
}

func (c *coder) event(e *relay.Event) {
	c.id(&e.ID)
	number(c, &e.AliasID)
	c.text(&e.Alias)
	c.when(&e.ReceivedAt)
	c.when(&e.LastReceivedAt)
	remote, _ := e.Remote.MarshalBinary() // it never fails
	c.bytes(&remote)
	if c.reading && c.err == nil && e.Remote.UnmarshalBinary(remote) != nil {
		c.fail()
	}
	c.flag(&e.TLS)
	c.text(&e.Method)
	c.bytes(&e.Target)
	number(c, &e.HTTPMinor)
	c.text(&e.Host)
	c.provider(&e.Provider)
	c.text(&e.State)
	c.fault(&e.Error)
	number(c, &e.Status)
	number(c, &e.Latency)
	c.flag(&e.HasLatency)
	number(c, &e.AttemptCount)
	c.text(&e.Blocker)
	c.message(&e.Request)
	c.bytes(&e.ForwardedLines)
	n := c.count(len(e.Attempts))
	for i := 0; i < n && c.err == nil; i++ {
		if c.reading {
			e.Attempts = append(e.Attempts, relay.Attempt{})
		}
		c.attempt(&e.Attempts[i])
	}
}

func (c *coder) provider(p *relay.Provider) {
	c.text(&p.Name)
	c.text(&p.EventType)
	c.text(&p.DeliveryID)
	c.when(&p.SignedAt)
	number(c, &p.Tolerance)
}

func (c *coder) fault(f **relay.Fault) {
	if !c.present(*f != nil) {
		return
	}
	if c.reading {
		*f = &relay.Fault{}
	}
	c.text(&(*f).Code)
	c.text(&(*f).Message)
}

func (c *coder) attempt(a *relay.Attempt) {
	number(c, &a.N)
	c.text(&a.Kind)
	c.text(&a.State)
	c.when(&a.ReceivedAt)
	c.when(&a.StartedAt)
	c.when(&a.EndedAt)
	c.text(&a.Actor)
	c.fault(&a.Error)
	c.flag(&a.Released)
	number(c, &a.Position)
	c.text(&a.Connection)
	c.bytes(&a.SentHead)
	if c.present(a.Identical != nil) {
		if c.reading {
			a.Identical = new(bool)
		}
		c.flag(a.Identical)
	}
	for _, d := range []*time.Duration{&a.Timing.Blocked, &a.Timing.Connect, &a.Timing.Send, &a.Timing.Wait, &a.Timing.Receive} {
		number(c, d)
	}
	c.flag(&a.HasTiming)
	c.flag(&a.HasResponse)
	number(c, &a.Status)
	n := c.count(len(a.Interim))
	for i := 0; i < n && c.err == nil; i++ {
		if c.reading {
			a.Interim = append(a.Interim, nil)
		}
		c.bytes(&a.Interim[i])
	}
	c.text(&a.ResponseState)
	c.message(&a.Response)
}

func (c *coder) message(m *relay.Message) {
	c.bytes(&m.Head)
	c.bytes(&m.Lines)
	number(c, &m.Framing)
	b := &m.Body
	number(c, &b.Parts)
	if data := b.Data; b.Parts == 0 { // the parts are steps of their own
		c.bytes(&data)
		b.Data = data
	}
	number(c, &b.Stored)
	number(c, &b.Size)
	sum := b.SHA256[:]
	c.bytes(&sum)
	if c.reading && c.err == nil && copy(b.SHA256[:], sum) != len(b.SHA256) {
		c.fail()
	}
	c.text(&b.State)
}
