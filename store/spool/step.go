package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"relay"
)

// Kind says what a step changes.
type Kind uint8

// The kinds of steps. Their numbers are in files.
const (
	Accept Kind = iota
	Chunk
	Amend
	Finish
	Requeue
)

// Step is one change to make durable. What it points to must not be changed any more.
type Step struct {
	Kind    Kind
	ID      relay.ID
	Event   *relay.Event   // Accept
	Attempt *relay.Attempt // Finish
	Message *relay.Message // Amend
	Data    []byte         // Chunk
	N, I    int            // attempt number; part number
	State   string         // Finish: event state, "" = that of the attempt; Requeue: "held" takes the release back
	Size    int64          // bytes of memory that it holds while it waits; not in the file
}

// stepOverhead is what an encoded step needs in addition to its bytes, about.
const stepOverhead = 512

// stepFormat is the first byte of a step in the spool, stepWithGone that of one that has the
// field CallerGone of its attempts, stepWithSent of one that has Sent of its event too, stepWithSignature of one
// that has Signature too, stepWithHandshake of one that also names challenges: only steps where these are set, so
// that an earlier relayd can read the others.
const stepFormat, stepWithGone, stepWithSent, stepWithSignature, stepWithHandshake = 1, 2, 3, 4, 5

var errStepDamaged = errors.New("a step of the spool cannot be read")

// coder encodes and decodes steps: one list of fields does both, so that the two cannot
// differ. Decoded slices point into the input. Lengths are checked against the remaining
// input before anything is allocated.
type coder struct {
	b       []byte // written, or still to be read
	reading bool
	format  byte
	err     error
}

// appendStep appends an encoded step to out.
func appendStep(out []byte, st *Step) []byte {
	format := formatOf(st)
	c := coder{b: append(out, format), format: format}
	c.step(st)
	return c.b
}

// formatOf returns the first format that has all fields of a step.
func formatOf(st *Step) byte {
	var attempts []relay.Attempt
	named := false
	if st.Attempt != nil {
		attempts = []relay.Attempt{*st.Attempt}
	}
	if e := st.Event; e != nil {
		attempts, named = append(attempts, e.Attempts...), e.Handshake != "" || e.MissedHandshake != ""
	}
	switch {
	case named || slices.ContainsFunc(attempts, func(a relay.Attempt) bool { return a.Handshake != "" }):
		return stepWithHandshake
	case st.Event != nil && st.Event.Signature != nil:
		return stepWithSignature
	case st.Event != nil && st.Event.Sent != nil:
		return stepWithSent
	case slices.ContainsFunc(attempts, func(a relay.Attempt) bool { return a.CallerGone }):
		return stepWithGone
	}
	return stepFormat
}

// parseStep decodes the output of appendStep; nothing may follow it.
func parseStep(b []byte) (*Step, error) {
	if len(b) == 0 || b[0] < stepFormat || b[0] > stepWithHandshake {
		return nil, errStepDamaged
	}
	c, st := coder{b: b[1:], reading: true, format: b[0]}, &Step{}
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

// list encodes or decodes a list. At least one byte follows for each entry, which bounds a
// decoded length.
func list[T any](c *coder, p *[]T, entry func(*T)) {
	n := len(*p)
	number(c, &n)
	if c.reading && (n < 0 || n > len(c.b)) {
		c.fail()
	}
	for i := 0; i < n && c.err == nil; i++ {
		if c.reading {
			*p = append(*p, *new(T))
		}
		entry(&(*p)[i])
	}
}

// optional encodes or decodes a value that may be absent.
func optional[T any](c *coder, p **T, value func(*T)) {
	there := *p != nil
	if c.fields(&there); !there || c.err != nil {
		return
	}
	if c.reading {
		*p = new(T)
	}
	value(*p)
}

// fields encodes or decodes values, in this order.
func (c *coder) fields(values ...any) {
	for _, v := range values {
		switch p := v.(type) {
		case *int:
			number(c, p)
		case *int64:
			number(c, p)
		case *time.Duration:
			number(c, p)
		case *relay.Framing:
			number(c, p)
		case *bool:
			n := 0
			if *p {
				n = 1
			}
			if number(c, &n); c.reading { // what is encoded may be in use elsewhere
				*p = n != 0
			}
		case *[]byte:
			c.bytes(p)
		case *string:
			b := []byte(*p)
			if c.bytes(&b); c.reading {
				*p = string(b)
			}
		case *time.Time: // in microseconds, as in the tables
			us := int64(0)
			if !p.IsZero() {
				us = p.UnixMicro()
			}
			if number(c, &us); !c.reading {
				break
			}
			if *p = (time.Time{}); us != 0 {
				*p = time.UnixMicro(us).UTC()
			}
		case *relay.ID:
			if !c.reading {
				c.b = append(c.b, p[:]...)
			} else if len(c.b) < len(p) {
				c.fail()
			} else {
				c.b = c.b[copy(p[:], c.b):]
			}
		case *netip.AddrPort:
			b, _ := p.MarshalBinary() // it never fails
			if c.bytes(&b); c.reading && c.err == nil && p.UnmarshalBinary(b) != nil {
				c.fail()
			}
		case *[32]byte:
			b := p[:]
			if c.bytes(&b); c.reading && c.err == nil && copy(p[:], b) != len(p) {
				c.fail()
			}
		case **relay.Fault:
			optional(c, p, func(f *relay.Fault) { c.fields(&f.Code, &f.Message) })
		default:
			panic(fmt.Sprintf("the spool cannot keep a %T", v))
		}
	}
}

func (c *coder) step(st *Step) {
	number(c, &st.Kind)
	c.fields(&st.ID, &st.N, &st.I, &st.State, &st.Data)
	optional(c, &st.Event, c.event)
	optional(c, &st.Attempt, c.attempt)
	optional(c, &st.Message, c.message)
	lacks := st.Kind == Accept && st.Event == nil || st.Kind == Finish && st.Attempt == nil || st.Kind == Amend && st.Message == nil
	if c.reading && (lacks || st.Kind > Requeue) {
		c.fail()
	}
}

func (c *coder) event(e *relay.Event) {
	p := &e.Provider
	c.fields(&e.ID, &e.AliasID, &e.Alias, &e.ReceivedAt, &e.LastReceivedAt, &e.Remote, &e.TLS, &e.Method, &e.Target, &e.HTTPMinor, &e.Host,
		&p.Name, &p.EventType, &p.DeliveryID, &p.SignedAt, &p.Tolerance,
		&e.State, &e.Error, &e.Status, &e.Latency, &e.HasLatency, &e.AttemptCount, &e.Blocker)
	c.message(&e.Request)
	c.fields(&e.ForwardedLines)
	if c.format >= stepWithSignature {
		optional(c, &e.Signature, func(s *relay.Signature) {
			c.fields(&s.Provider, &s.Verdict, &s.Reason, &s.Message, &s.SignedAt, &s.SecretID)
		})
	}
	if c.format >= stepWithHandshake {
		c.fields(&e.Handshake, &e.MissedHandshake)
	}
	list(c, &e.Attempts, c.attempt)
	if c.format >= stepWithSent {
		optional(c, &e.Sent, func(s *relay.Sent) {
			c.fields(&s.Actor, &s.MadeFrom, &s.SignedBy)
			list(c, &s.Changes, func(text *string) { c.fields(text) })
		})
	}
}

func (c *coder) attempt(a *relay.Attempt) {
	t := &a.Timing
	c.fields(&a.N, &a.Kind, &a.State, &a.ReceivedAt, &a.StartedAt, &a.EndedAt, &a.Actor, &a.Error, &a.Released, &a.Position, &a.Connection, &a.SentHead)
	optional(c, &a.Identical, func(same *bool) { c.fields(same) })
	c.fields(&t.Blocked, &t.Connect, &t.Send, &t.Wait, &t.Receive, &a.HasTiming, &a.HasResponse, &a.Status)
	list(c, &a.Interim, c.bytes)
	c.fields(&a.ResponseState)
	if c.format >= stepWithGone {
		c.fields(&a.CallerGone)
	}
	if c.format >= stepWithHandshake {
		c.fields(&a.Handshake)
	}
	c.message(&a.Response)
}

func (c *coder) message(m *relay.Message) {
	b := &m.Body
	c.fields(&m.Head, &m.Lines, &m.Framing, &b.Parts)
	if b.Parts == 0 { // otherwise the parts are steps of their own
		c.fields(&b.Data)
	}
	c.fields(&b.Stored, &b.Size, &b.SHA256, &b.State)
}
