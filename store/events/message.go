package events

import (
	"encoding/binary"
	"time"

	"relay"
	"relay/store/db"
)

// PayloadColumns are the columns of a request (n = 0), or of the messages that attempt n sent and received.
const PayloadColumns = `event_id, n, head, lines, framing, codec, body, parts, stored, size, sha256, state, extra, interim`

// PayloadTypes are the types of PayloadColumns in Postgres.
const PayloadTypes = `uuid bigint bytea bytea bigint bigint bytea bigint bigint bigint bytea text bytea bytea`

// messageFields returns the destinations of head, lines, framing, body, parts, stored, size, sha256 and
// state of a stored message.
func messageFields(m *relay.Message) []any {
	b := &m.Body
	return []any{&m.Head, &m.Lines, &m.Framing, &b.Data, &b.Parts, &b.Stored, &b.Size, db.Digest(&b.SHA256), &b.State}
}

// payload is a request (n = 0), or the messages that attempt n sent and received.
type payload struct {
	event relay.ID
	n     int
	relay.Message
	extra   []byte // Forwarded header lines of a request, or the head that an attempt sent
	interim []byte

	heads int64 // bytes of Head, Lines, extra and interim
	read  int64 // number of bytes of the body to read
}

// payloadQuery reads payloads without their bytes.
const payloadQuery = `SELECT event_id, n, framing, parts, stored, size, sha256, state,
	COALESCE(LENGTH(head), 0) + COALESCE(LENGTH(lines), 0) + COALESCE(LENGTH(extra), 0) + COALESCE(LENGTH(interim), 0) FROM payloads WHERE `

func (p *payload) fields() []any {
	b := &p.Body
	return []any{&p.event, &p.n, &p.Framing, &b.Parts, &b.Stored, &b.Size, db.Digest(&b.SHA256), &b.State, &p.heads}
}

// headQuery reads the bytes of payloads without their bodies.
const headQuery = `SELECT event_id, n, head, lines, extra, interim FROM payloads WHERE `

func (p *payload) headFields() []any {
	return []any{&p.event, &p.n, &p.Head, &p.Lines, &p.extra, &p.interim}
}

// PayloadValues returns the values of PayloadColumns.
func PayloadValues(event relay.ID, n int, m *relay.Message, extra, interim []byte) []any {
	b := &m.Body
	body, stored := b.Data, int64(len(b.Data))
	if b.Parts > 0 {
		body, stored = nil, b.Stored
	}
	return []any{
		event, n, m.Head, m.Lines, int(m.Framing), 0, body, b.Parts, stored, b.Size, b.SHA256[:], db.StorableText(b.State), extra, interim,
	}
}

// ResponseValues returns the values of PayloadColumns for the messages that an attempt sent and received.
func ResponseValues(event relay.ID, a *relay.Attempt) []any {
	return PayloadValues(event, a.N, &a.Response, a.SentHead, packInterim(a.Interim))
}

// RequestBytes returns the number of bytes that a request counts for in the queue.
func RequestBytes(m *relay.Message) int64 { return int64(len(m.Head)+len(m.Lines)) + m.Body.Size }

// packInterim joins 1xx heads, each preceded by its length.
func packInterim(heads [][]byte) []byte {
	var out []byte
	for _, h := range heads {
		out = append(binary.AppendUvarint(out, uint64(len(h))), h...)
	}
	return out
}

func unpackInterim(b []byte) [][]byte {
	var heads [][]byte
	for len(b) > 0 {
		n, used := binary.Uvarint(b)
		if used <= 0 || n > uint64(len(b)-used) {
			return heads
		}
		heads = append(heads, b[used:used+int(n)])
		b = b[used+int(n):]
	}
	return heads
}

// PackTiming encodes the five phases of an attempt's Timing in microseconds; nil if they were not measured.
func PackTiming(a *relay.Attempt) []byte {
	if !a.HasTiming {
		return nil
	}
	t := a.Timing
	var out []byte
	for _, d := range []time.Duration{t.Blocked, t.Connect, t.Send, t.Wait, t.Receive} {
		out = binary.AppendUvarint(out, uint64(max(d.Microseconds(), 0)))
	}
	return out
}

func unpackTiming(b []byte) (t relay.Timing, ok bool) {
	for _, d := range []*time.Duration{&t.Blocked, &t.Connect, &t.Send, &t.Wait, &t.Receive} {
		us, used := binary.Uvarint(b)
		if used <= 0 {
			return relay.Timing{}, false
		}
		*d, b = time.Duration(us)*time.Microsecond, b[used:]
	}
	return t, true
}

// faultCode and faultMessage return the destinations of the two columns of a fault, read in this
// order; "" = no fault.
func faultCode(to **relay.Fault) db.Column {
	return func(stored any) {
		if code, _ := stored.(string); code != "" {
			*to = &relay.Fault{Code: code}
		}
	}
}

func faultMessage(to **relay.Fault) db.Column {
	return func(stored any) {
		if *to != nil {
			(*to).Message, _ = stored.(string)
		}
	}
}

// FaultText returns the stored form of a fault.
func FaultText(f *relay.Fault) (code, message string) {
	if f == nil {
		return "", ""
	}
	return db.StorableText(f.Code), db.StorableText(f.Message)
}

// StoredFault returns a fault in the form in which it is read back.
func StoredFault(f *relay.Fault) *relay.Fault {
	code, message := FaultText(f)
	if code == "" {
		return nil
	}
	return &relay.Fault{Code: code, Message: message}
}
