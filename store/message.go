package store

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"relay"
)

// payloadColumns are the columns of one request (n = 0) or of what attempt n sent
// and received.
const payloadColumns = `event_id, n, head, lines, framing, codec, body, parts, stored, size, sha256, state, extra, interim`

type payloadRow struct {
	N       int    `db:"n"`
	Head    []byte `db:"head"`
	Lines   []byte `db:"lines"`
	Framing uint8  `db:"framing"`
	Body    []byte `db:"body"`
	Parts   int    `db:"parts"`
	Stored  int64  `db:"stored"`
	Size    int64  `db:"size"`
	SHA256  []byte `db:"sha256"`
	State   string `db:"state"`
	Extra   []byte `db:"extra"`
	Interim []byte `db:"interim"`
}

// message gives the stored message without the parts of a large body.
func (r *payloadRow) message() relay.Message {
	m := relay.Message{Head: r.Head, Lines: r.Lines, Framing: relay.Framing(r.Framing)}
	m.Body = relay.Body{Data: r.Body, Parts: r.Parts, Stored: r.Stored, Size: r.Size, State: r.State}
	copy(m.Body.SHA256[:], r.SHA256)
	return m
}

// newPayloadRow is the row of a message.
func newPayloadRow(n int, m *relay.Message, extra, interim []byte) payloadRow {
	b := &m.Body
	r := payloadRow{
		N: n, Head: m.Head, Lines: m.Lines, Framing: uint8(m.Framing), Parts: b.Parts, Stored: b.Stored, Size: b.Size, SHA256: b.SHA256[:],
		State: storableText(b.State), Extra: extra, Interim: interim,
	}
	if b.Parts == 0 {
		r.Body, r.Stored = b.Data, int64(len(b.Data))
	}
	return r
}

// responseRow is the row of what an attempt sent and received.
func responseRow(a *relay.Attempt) payloadRow {
	return newPayloadRow(a.N, &a.Response, a.SentHead, packInterim(a.Interim))
}

// values are those of payloadColumns.
func (r *payloadRow) values(event relay.ID) []any {
	return []any{event, r.N, r.Head, r.Lines, int(r.Framing), 0, r.Body, r.Parts, r.Stored, r.Size, r.SHA256, r.State, r.Extra, r.Interim}
}

// requestBytes is how many bytes a request counts in the queue.
func requestBytes(m *relay.Message) int64 { return int64(len(m.Head)+len(m.Lines)) + m.Body.Size }

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

// packTiming encodes the five phases in microseconds; nil when there are none.
func packTiming(a *relay.Attempt) []byte {
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

// storableText replaces what a text column of either engine refuses: invalid UTF-8 and NUL.
func storableText(s string) string {
	if utf8.ValidString(s) && !strings.Contains(s, "\x00") {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd")
}

// micros is how a time is stored; 0 is none.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// fromMicros is the time that micros stored.
func fromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// micro is a time that a row holds as micros gives it.
type micro time.Time

// Scan implements sql.Scanner.
func (t *micro) Scan(stored any) error {
	us, ok := stored.(int64)
	if !ok {
		return fmt.Errorf("a time is stored as %T", stored)
	}
	*t = micro(fromMicros(us))
	return nil
}

// boolToInt is how a bool is stored.
func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// nonNil returns p, or an empty slice for nil: for NOT NULL columns.
func nonNil(p []byte) []byte {
	if p == nil {
		return []byte{}
	}
	return p
}
