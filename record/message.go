package record

import (
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"strings"

	"relay"
	reading "relay/record/body"
	"relay/wire"
)

// MaxBody is the largest number of bytes of a body in a record.
const MaxBody = 1 << 20

// Body encodings.
const (
	EncodingUTF8   = "utf8"
	EncodingBase64 = "base64"
)

// Header is one header or trailer line: name and value. If the value is not UTF-8, the third item has
// its bytes in base64.
type Header []string

// Name returns the name as received.
func (h Header) Name() string { return h.item(0) }

// Value returns the value without outer white space. If the line has a third item, the bytes that are
// not UTF-8 are replaced.
func (h Header) Value() string { return h.item(1) }

// exact returns the value. Bytes that are not UTF-8 are written as \xNN.
func (h Header) exact() *string {
	if raw, err := base64.StdEncoding.DecodeString(h.item(2)); err == nil && len(raw) > 0 {
		return new(validText(raw))
	}
	return &h[1]
}

func (h Header) item(i int) string {
	if i < len(h) {
		return h[i]
	}
	return ""
}

// Body is a message body. Size and SHA256 cover the whole body; Data has at most its first MaxBody
// bytes.
type Body struct {
	Size      int64  `json:"size" doc:"bytes, without transfer coding"`
	SHA256    string `json:"sha256" doc:"hexadecimal, over the decoded body"`
	Encoding  string `json:"encoding" enum:"utf8,base64"`
	Data      string `json:"data"`
	Truncated bool   `json:"truncated" doc:"data holds less than size"`
	State     string `json:"state" enum:"complete,receiving,aborted,not_sent,over_limit"`
}

// Bytes decodes Data.
func (b *Body) Bytes() ([]byte, error) {
	if b.Encoding == EncodingBase64 {
		return base64.StdEncoding.DecodeString(b.Data)
	}
	return []byte(b.Data), nil
}

// Read decodes the body, according to the header lines of its message.
func (b *Body) Read(headers []Header) (*reading.Reading, error) {
	p, err := b.Bytes()
	if err != nil {
		return nil, err
	}
	var kind string
	var codings []string
	for _, h := range headers {
		switch {
		case kind == "" && strings.EqualFold(h.Name(), "content-type"):
			kind = h.Value()
		case strings.EqualFold(h.Name(), "content-encoding"):
			codings = append(codings, h.Value())
		}
	}
	return reading.Read(reading.NewLabel(kind, codings...), p, b.Truncated, MaxBody), nil
}

// Message is a captured request.
type Message struct {
	Headers  []Header `json:"headers" nullable:"false"`
	Trailers []Header `json:"trailers" nullable:"false"`
	Framing  string   `json:"framing" enum:"none,length,chunked,close"`
	Body     *Body    `json:"body" nullable:"false"`
}

// RequestOf returns the JSON form of a request.
func RequestOf(m *relay.Message) *Message { return messageOf(m) }

// Response is the response of a local server.
type Response struct {
	HTTPVersion string    `json:"httpVersion"`
	Status      int       `json:"status"`
	Reason      string    `json:"reason"`
	Headers     []Header  `json:"headers" nullable:"false"`
	Trailers    []Header  `json:"trailers" nullable:"false"`
	Interim     []Interim `json:"interim" nullable:"false"`
	Framing     string    `json:"framing" enum:"none,length,chunked,close"`
	State       string    `json:"state" enum:"complete,truncated,cut,upgraded"`
	// HeadersOmitted is set if the heads of an event are too large for one record.
	HeadersOmitted bool `json:"headersOmitted,omitempty" doc:"the headers are too large to stand in this answer; response.raw of the attempt has them"`
	// Body is left out of the live feed.
	Body *Body `json:"body,omitempty"`
}

// Interim is a 1xx response that came before the final one.
type Interim struct {
	Status  int      `json:"status"`
	Reason  string   `json:"reason"`
	Headers []Header `json:"headers" nullable:"false"`
}

func messageOf(m *relay.Message) *Message {
	return &Message{
		Headers:  headersOf(wire.Fields(m.Head)),
		Trailers: headersOf(wire.Trailers(m.Lines)),
		Framing:  m.Framing.String(),
		Body:     bodyOf(&m.Body),
	}
}

func responseOf(a *relay.Attempt, body bool) *Response {
	if !a.HasResponse {
		return nil
	}
	version, status, reason := statusLine(a.Response.Head)
	if status == 0 {
		status = a.Status
	}
	r := &Response{
		HTTPVersion:    version,
		Status:         status,
		Reason:         reason,
		Headers:        headersOf(wire.Fields(a.Response.Head)),
		Trailers:       headersOf(wire.Trailers(a.Response.Lines)),
		Interim:        make([]Interim, 0, len(a.Interim)),
		Framing:        a.Response.Framing.String(),
		State:          a.ResponseState,
		HeadersOmitted: a.Response.HeadOmitted,
	}
	for _, head := range a.Interim {
		_, status, reason := statusLine(head)
		r.Interim = append(r.Interim, Interim{Status: status, Reason: reason, Headers: headersOf(wire.Fields(head))})
	}
	if body {
		r.Body = bodyOf(&a.Response.Body)
	}
	return r
}

func statusLine(head []byte) (version string, status int, reason string) {
	a, b, c := wire.StartLine(head)
	version, _ = lossy(a)
	reason, _ = lossy(c)
	status, _ = strconv.Atoi(string(b))
	return version, status, reason
}

func headersOf(fields []wire.Field) []Header {
	list := make([]Header, 0, len(fields))
	space := make([]string, 0, 2*len(fields)) // memory for all lines
	for _, f := range fields {
		name, _ := lossy(f.Name)
		value, exact := lossy(f.Value)
		if !exact {
			list = append(list, Header{name, value, base64.StdEncoding.EncodeToString(f.Value)})
			continue
		}
		space = append(space, name, value)
		list = append(list, space[len(space)-2:len(space):len(space)])
	}
	return list
}

// headerValue returns the value of the first header line with a name, in any letter case; "" = none.
func headerValue(headers []Header, name string) string {
	for _, h := range headers {
		if strings.EqualFold(h.Name(), name) {
			return h.Value()
		}
	}
	return ""
}

// bodyOf returns the loaded part of a body. The encoding depends only on that part, so that a large
// body need not be read to its end.
func bodyOf(b *relay.Body) *Body {
	data := b.Data
	if len(data) > MaxBody {
		data = data[:MaxBody]
	}
	cut := int64(len(data)) < b.Size
	out := &Body{Size: b.Size, SHA256: hex.EncodeToString(b.SHA256[:]), Truncated: cut, State: b.State}
	if !reading.IsText(data, cut) {
		out.Encoding, out.Data = EncodingBase64, base64.StdEncoding.EncodeToString(data)
		return out
	}
	if cut {
		data = reading.WholeRunes(data)
	}
	out.Encoding, out.Data = EncodingUTF8, string(data)
	return out
}
