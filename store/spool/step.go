package spool

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"time"

	"relay"
)

// Kind is the kind of change that a step makes.
type Kind uint8

// The kinds of steps. Their numbers are stored in files and never change.
const (
	Accept Kind = iota
	Chunk
	Amend
	Finish
	Requeue
)

// Step is one change to make durable. The data that it points to must not be changed afterwards.
type Step struct {
	Kind    Kind
	ID      relay.ID
	Event   *relay.Event   // of an Accept; of an Amend, where the file has only what the end of the request may change
	Attempt *relay.Attempt // of a Finish
	Data    []byte         // of a Chunk
	N, I    int            // attempt number; part number
	State   string         // event state of a Finish, "" = the state of the attempt; "held" in a Requeue withholds the attempt: it removes the mark Released
	Size    int64          // bytes of memory that the step holds while it waits; not in the file
}

// stepOverhead is the approximate size of an encoded step without its content.
const stepOverhead = 512

// Formats of steps. The first byte of a step is its format: the lowest format that has all fields that the
// step uses. An earlier relayd can therefore read steps without newer fields. Each format has the fields of
// those before it. A new field of the event has the number of a new format in its tag spool, such as
// `spool:"7"`. Any other new field needs a format here and a call of coder.since at its place. Formats are never
// changed, see testdata/steps.txt.
const (
	stepFormat        = 1
	stepWithGone      = 2 // CallerGone of attempts
	stepWithSent      = 3 // Sent of the event
	stepWithSignature = 4 // Signature of the event
	stepWithHandshake = 5 // Handshake and MissedHandshake of the event, Handshake of attempts
	stepWithVerdict   = 6 // Signature of the event of an Amend
)

// newestFormat is the last format.
var newestFormat = func() byte {
	newest := byte(stepWithVerdict)
	for _, f := range taggedFields {
		newest = max(newest, f.format)
	}
	return newest
}()

// taggedField is a field of a struct with the tag spool, which is the first format that has the field.
type taggedField struct {
	index  int
	format byte
}

// taggedFields are those of an event, in the order in which they stand at its end in a step.
var taggedFields = taggedIn(reflect.TypeFor[relay.Event]())

func taggedIn(t reflect.Type) (list []taggedField) {
	for i := range t.NumField() {
		if format, err := strconv.ParseUint(t.Field(i).Tag.Get("spool"), 10, 8); err == nil {
			list = append(list, taggedField{i, byte(format)})
		}
	}
	slices.SortStableFunc(list, func(a, b taggedField) int { return cmp.Compare(a.format, b.format) })
	return list
}

// tagged encodes or decodes fields of the struct that v points to.
func (c *coder) tagged(v any, fields []taggedField) {
	for _, f := range fields {
		field := reflect.ValueOf(v).Elem().Field(f.index)
		if c.since(f.format, !field.IsZero()) {
			c.fields(field.Addr().Interface())
		}
	}
}

var errStepDamaged = errors.New("a step of the spool cannot be read")

// coder encodes and decodes steps. One list of fields serves for both directions, so that they cannot differ.
// Decoded slices point into the input. Lengths are checked against the remaining input before memory is
// allocated.
type coder struct {
	b       []byte // bytes that were written, or that are still to be read
	reading bool
	format  byte
	needed  byte // while writing: the lowest format that has all fields written so far
	err     error
}

// appendStep appends an encoded step to out.
func appendStep(out []byte, st *Step) []byte {
	c := coder{b: append(out, stepFormat), format: stepFormat}
	if c.step(st); c.needed > stepFormat {
		c = coder{b: append(out, c.needed), format: c.needed}
		c.step(st)
	}
	return c.b
}

// since reports whether a step in c.format has the fields of the given format. used tells whether one of
// these fields has a value; if so, since raises c.needed to the given format.
func (c *coder) since(format byte, used bool) bool {
	if used {
		c.needed = max(c.needed, format)
	}
	return c.format >= format
}

// parseStep decodes the output of appendStep. Bytes after the step are an error.
func parseStep(b []byte) (*Step, error) {
	if len(b) == 0 || b[0] < stepFormat || b[0] > newestFormat {
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

// list encodes or decodes a list. Each entry takes at least one byte, which limits the length that a decoder
// accepts.
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

// asNumber encodes or decodes a value as a number. n is the encoded value, and valueOf decodes it. Encoding does
// not change the value, because it may be in use elsewhere.
func asNumber[T any](c *coder, p *T, n int64, valueOf func(int64) T) {
	if number(c, &n); c.reading {
		*p = valueOf(n)
	}
}

// asBytes encodes or decodes a value as bytes. Like asNumber, it does not change the value when it encodes. b is
// the encoded value, and valueOf decodes it.
func asBytes[T any](c *coder, p *T, b []byte, valueOf func([]byte) (T, error)) {
	if c.bytes(&b); !c.reading || c.err != nil {
		return
	}
	v, err := valueOf(b)
	if err != nil {
		c.fail()
		return
	}
	*p = v
}

// microsOf returns a time in the form that the database stores: microseconds, 0 for the zero time.
func microsOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func timeOf(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}

func sumOf(b []byte) (sum [sha256.Size]byte, err error) {
	if copy(sum[:], b) != len(sum) {
		err = errStepDamaged
	}
	return sum, err
}

func addrPortOf(b []byte) (a netip.AddrPort, err error) {
	err = a.UnmarshalBinary(b)
	return a, err
}

// fields encodes or decodes values, in the given order.
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
			n := int64(0)
			if *p {
				n = 1
			}
			asNumber(c, p, n, func(n int64) bool { return n != 0 })
		case *[]byte:
			c.bytes(p)
		case *string:
			asBytes(c, p, []byte(*p), func(b []byte) (string, error) { return string(b), nil })
		case *time.Time:
			asNumber(c, p, microsOf(*p), timeOf)
		case *relay.ID:
			if !c.reading {
				c.b = append(c.b, p[:]...)
			} else if len(c.b) < len(p) {
				c.fail()
			} else {
				c.b = c.b[copy(p[:], c.b):]
			}
		case *netip.AddrPort:
			b, _ := p.MarshalBinary() // never fails
			asBytes(c, p, b, addrPortOf)
		case *[sha256.Size]byte:
			asBytes(c, p, p[:], sumOf)
		case **relay.Fault:
			optional(c, p, func(f *relay.Fault) { c.fields(&f.Code, &f.Message) })
		default:
			panic(fmt.Sprintf("the spool cannot store a %T", v))
		}
	}
}

func (c *coder) step(st *Step) {
	number(c, &st.Kind)
	c.fields(&st.ID, &st.N, &st.I, &st.State, &st.Data)
	whole, amended := st.Event, st.Event
	if st.Kind == Amend {
		whole = nil
	} else {
		amended = nil
	}
	optional(c, &whole, c.event)
	optional(c, &st.Attempt, c.attempt)
	optional(c, &amended, func(e *relay.Event) { c.message(&e.Request) })
	var judged *relay.Signature
	if amended != nil {
		judged = amended.Signature
	}
	if c.since(stepWithVerdict, judged != nil) {
		optional(c, &judged, c.signature)
	}
	if amended != nil {
		c.tagged(amended, taggedFields)
	}
	if c.reading {
		if st.Event = whole; st.Kind == Amend && amended != nil {
			amended.ID, amended.Signature, st.Event = st.ID, judged, amended
		}
		if st.Event == nil && (st.Kind == Accept || st.Kind == Amend) || st.Attempt == nil && st.Kind == Finish || st.Kind > Requeue {
			c.fail()
		}
	}
}

func (c *coder) event(e *relay.Event) {
	p := &e.Provider
	c.fields(&e.ID, &e.AliasID, &e.Alias, &e.ReceivedAt, &e.LastReceivedAt, &e.Remote, &e.TLS, &e.Method, &e.Target, &e.HTTPMinor, &e.Host,
		&p.Name, &p.EventType, &p.DeliveryID, &p.SignedAt, &p.Tolerance,
		&e.State, &e.Error, &e.Status, &e.Latency, &e.HasLatency, &e.AttemptCount, &e.Blocker)
	c.message(&e.Request)
	c.fields(&e.ForwardedLines)
	if c.since(stepWithSignature, e.Signature != nil) {
		optional(c, &e.Signature, c.signature)
	}
	if c.since(stepWithHandshake, e.Handshake != "" || e.MissedHandshake != "") {
		c.fields(&e.Handshake, &e.MissedHandshake)
	}
	list(c, &e.Attempts, c.attempt)
	if c.since(stepWithSent, e.Sent != nil) {
		optional(c, &e.Sent, func(s *relay.Sent) {
			c.fields(&s.Actor, &s.MadeFrom, &s.SignedBy)
			list(c, &s.Changes, func(text *string) { c.fields(text) })
		})
	}
	c.tagged(e, taggedFields)
}

func (c *coder) signature(s *relay.Signature) {
	c.fields(&s.Provider, &s.Verdict, &s.Reason, &s.Message, &s.SignedAt, &s.SecretID)
}

func (c *coder) attempt(a *relay.Attempt) {
	t := &a.Timing
	c.fields(&a.N, &a.Kind, &a.State, &a.ReceivedAt, &a.StartedAt, &a.EndedAt, &a.Actor, &a.Error, &a.Released, &a.Position, &a.Connection, &a.SentHead)
	optional(c, &a.Identical, func(same *bool) { c.fields(same) })
	c.fields(&t.Blocked, &t.Connect, &t.Send, &t.Wait, &t.Receive, &a.HasTiming, &a.HasResponse, &a.Status)
	list(c, &a.Interim, c.bytes)
	c.fields(&a.ResponseState)
	if c.since(stepWithGone, a.CallerGone) {
		c.fields(&a.CallerGone)
	}
	if c.since(stepWithHandshake, a.Handshake != "") {
		c.fields(&a.Handshake)
	}
	c.message(&a.Response)
}

func (c *coder) message(m *relay.Message) {
	b := &m.Body
	c.fields(&m.Head, &m.Lines, &m.Framing, &b.Parts)
	if b.Parts == 0 { // the parts of a larger body are separate steps
		c.fields(&b.Data)
	}
	c.fields(&b.Stored, &b.Size, &b.SHA256, &b.State)
}
