package wire_test

import (
	"bytes"
	"strings"
	"testing"

	"relay"
	"relay/wire"
)

// FuzzRequest: the result does not depend on the pieces in which the bytes arrive. A rebuilt request
// has the same bytes, and net/http reads every accepted request in the same way.
func FuzzRequest(f *testing.F) {
	for _, c := range goodRequests() {
		if len(c.wire) < 4096 {
			f.Add([]byte(c.wire+"GET /next"), byte(1))
		}
	}
	for _, c := range badRequests() {
		if len(c.wire) < 4096 {
			f.Add([]byte(c.wire), byte(3))
		}
	}
	f.Fuzz(func(t *testing.T, p []byte, step byte) {
		whole, err := readRequest(p, len(p)+1, wire.Limits{})
		parts, partsErr := readRequest(p, int(step)+1, wire.Limits{})
		if code(err) != code(partsErr) {
			t.Fatalf("whole: %v; in parts: %v", err, partsErr)
		}
		if whole.head == nil || err != nil {
			return
		}
		sameMessage(t, &whole, &parts)
		lead := len(p) - len(bytes.TrimPrefix(p, []byte("\r\n")))
		exactWire(t, &whole, p[lead:whole.n], int(step)+1)
		likeNetHTTP(t, &whole, p[lead:], p[whole.n:])
	})
}

// FuzzResponse: responses have the properties that FuzzRequest checks for requests. Only responses without tolerated
// errors are compared with net/http.
func FuzzResponse(f *testing.F) {
	for _, c := range goodResponses() {
		f.Add([]byte(c.wire+c.rest), byte(1), c.to == "HEAD")
	}
	for _, p := range badResponses() {
		if len(p) < 4096 {
			f.Add([]byte(p), byte(2), false)
		}
	}
	f.Fuzz(func(t *testing.T, p []byte, step byte, isHead bool) {
		req := asked("GET")
		if isHead {
			req = asked("HEAD")
		}
		whole, err := readResponse(p, len(p)+1, req)
		parts, partsErr := readResponse(p, int(step)+1, req)
		if code(err) != code(partsErr) {
			t.Fatalf("whole: %v; in parts: %v", err, partsErr)
		}
		if whole.head == nil || err != nil {
			return
		}
		sameMessage(t, &whole, &parts)
		exactWire(t, &whole, p[:whole.n], int(step)+1)
		if whole.head.Sloppy && !whole.head.Close {
			t.Error("a sloppy response keeps the connection")
		}
		if !whole.head.Sloppy {
			responseLikeNetHTTP(t, &whole, p, p[whole.n:], isHead)
		}
	})
}

func sameMessage(t *testing.T, a, b *message) {
	t.Helper()
	if a.n != b.n || a.end != b.end || !bytes.Equal(a.body, b.body) || !bytes.Equal(a.lines, b.lines) {
		t.Fatalf("whole: %d bytes, end %v, body %q, lines %q\nin parts: %d bytes, end %v, body %q, lines %q",
			a.n, a.end, a.body, a.lines, b.n, b.end, b.body, b.lines)
	}
}

// exactWire checks that the stored bytes equal the accepted bytes, also those of an unfinished
// message.
func exactWire(t *testing.T, m *message, taken []byte, piece int) {
	t.Helper()
	got, err := m.rebuilt(piece)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(taken, got) {
		t.Fatalf("rebuilt %q\nwant    %q", got, taken)
	}
}

// FuzzBody: the body, lines, length and end do not depend on the pieces in which the bytes arrive.
func FuzzBody(f *testing.F) {
	for _, s := range []string{"5\r\nhello\r\n0\r\n\r\nnext", "3;a=b\r\nabc\r\n0\r\nX: 1\r\n\r\n", "1 \r\na\r\n0\r\n\r\n", "5\nhello", "ffffffffffffffff\r\n"} {
		f.Add([]byte(s), []byte{1, 2, 3}, true)
		f.Add([]byte(s), []byte{1}, false)
	}
	f.Fuzz(func(t *testing.T, p, cuts []byte, strict bool) {
		h := &wire.Head{Framing: relay.FramingChunked}
		if !strict {
			h.Status = 200
		}
		whole, err := feed(h, p, nil)
		parts, partsErr := feed(h, p, cuts)
		if code(err) != code(partsErr) {
			t.Fatalf("whole: %v; in parts: %v", err, partsErr)
		}
		if err != nil {
			return
		}
		sameMessage(t, &whole, &parts)
		exactWire(t, &whole, p[:whole.n], 1+len(cuts))
		if strict {
			h.Status = 200
			lenient, err := feed(h, p, cuts)
			if err != nil {
				t.Fatalf("taken strictly and refused leniently: %v", err)
			}
			sameMessage(t, &whole, &lenient)
		}
	})
}

// feed parses the body p of a message with the head h in pieces. The lengths of the pieces are the values of
// cuts plus one; after the last value of cuts, the first one is used again.
func feed(h *wire.Head, p, cuts []byte) (m message, err error) {
	m.head = &wire.Head{Framing: h.Framing}
	b := wire.NewBody(h)
	b.Tee = func(decoded, line []byte) {
		m.body = append(m.body, decoded...)
		m.lines = append(m.lines, line...)
	}
	for i := 0; m.n < len(p) && !m.end && err == nil; i++ {
		size := len(p)
		if len(cuts) > 0 {
			size = int(cuts[i%len(cuts)]) + 1
		}
		var n int
		n, m.end, err = b.Feed(p[m.n:min(m.n+size, len(p))])
		m.n += n
	}
	b.Stop()
	return m, err
}

// FuzzRebuild: rebuilding any stored bytes ends, returns each byte at most once, and does not depend
// on the pieces.
func FuzzRebuild(f *testing.F) {
	f.Add([]byte("2\r\n1;x\r\n0\r\nX: 1\r\n\r\n"), []byte("abc"), byte(1), byte(2))
	f.Add([]byte("2\r\n1"), []byte("ab"), byte(0), byte(2))
	f.Fuzz(func(t *testing.T, lines, data []byte, framing, piece byte) {
		m := &relay.Message{Head: []byte("H"), Lines: lines, Framing: relay.Framing(framing % 4), Body: relay.Body{Data: data}}
		whole, err := collect(m, nil, nil)
		parts, partsErr := collect(m, nil, pieces(data, int(piece)+1))
		if err != nil || partsErr != nil || whole != parts {
			t.Fatalf("whole: %q, %v; in parts: %q, %v", whole, err, parts, partsErr)
		}
		if len(whole) > 1+len(lines)+len(data)+2*bytes.Count(lines, []byte("\n")) {
			t.Fatalf("%d bytes came out", len(whole))
		}
	})
}

// FuzzFields: the fields of any bytes, also of refused heads, can be listed and edited.
func FuzzFields(f *testing.F) {
	for _, c := range badRequests() {
		if len(c.wire) < 1024 {
			f.Add([]byte(c.wire), "b.localhost")
		}
	}
	f.Fuzz(func(t *testing.T, head []byte, host string) {
		fields := wire.Fields(head)
		for _, fd := range fields {
			if bytes.ContainsAny(fd.Name, "\n") || !bytes.Contains(head, fd.Name) || !bytes.Contains(head, fd.Value) {
				t.Fatalf("field %q: %q", fd.Name, fd.Value)
			}
			if len(fd.Value) > 0 && (isPad(fd.Value[0]) || isPad(fd.Value[len(fd.Value)-1])) {
				t.Fatalf("field %q has outer white space: %q", fd.Name, fd.Value)
			}
		}
		wire.Trailers(head)
		wire.StartLine(head)
		h, _, err := wire.Request(head, wire.Limits{})
		if err != nil {
			wire.SetHost(head, host)
			wire.AddLines(head, []byte("X: 1\r\n"))
			return
		}
		editLikeNew(t, h, host)
	})
}

func isPad(c byte) bool { return c == ' ' || c == '\t' }

// editLikeNew checks that an edited head is still a valid head, and differs only by the edit.
func editLikeNew(t *testing.T, h *wire.Head, host string) {
	t.Helper()
	fields := wire.Fields(h.Raw)
	more := wire.AddLines(h.Raw, []byte("X-Forwarded-For: 1.2.3.4\r\n"))
	if got := wire.Fields(more); len(got) != len(fields)+1 || list(got[:len(fields)]) != list(fields) {
		t.Fatalf("lines changed: %q, before %q", list(got), list(fields))
	}
	if _, n, err := wire.Request(more, wire.Limits{}); err != nil || n != len(more) {
		t.Fatalf("with a line more: %d, %v", n, err)
	}
	edited, _, err := wire.Request(wire.SetHost(h.Raw, host), wire.Limits{})
	if err != nil {
		return // the edited head is invalid, for example if the new host differs from that of an absolute-form target
	}
	for i, fd := range wire.Fields(edited.Raw) {
		if strings.EqualFold(string(fd.Name), "host") {
			continue
		}
		if !bytes.Equal(fd.Name, fields[i].Name) || !bytes.Equal(fd.Value, fields[i].Value) {
			t.Fatalf("%q became %q: %q", fields[i].Name, fd.Name, fd.Value)
		}
	}
}
