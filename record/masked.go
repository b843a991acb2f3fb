package record

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"relay"
	"relay/record/body"
	"relay/record/mask"
	"relay/signature"
)

// Mask hides the secrets in the record of an event, as the page of a share does. It hides each value whose name
// is that of a secret, such as token, wherever the value occurs in the event. A body becomes decoded text, and
// loses its SHA-256 if that text differs from its bytes. Mask waits for a turn before it reads large bodies, see
// body.Turn. If ctx ends, it returns the error of ctx.
func Mask(ctx context.Context, e *Event) error {
	v, answered, done, err := learned(ctx, e)
	if err != nil {
		return err
	}
	defer done()
	e.Attempts = v.all(answered)
	e.Request, e.Response = v.request, v.response
	v.summary(&e.Summary)
	return nil
}

// learned returns a view of an event that knows the secrets of the event, and the decoded bodies of the
// responses to its attempts. done ends the turn for reading large bodies.
func learned(ctx context.Context, e *Event) (v *sharedView, answered []*body.Reading, done func(), err error) {
	size := textSize(e)
	for i := range e.Attempts {
		if r := e.Attempts[i].Response; r != nil && r.Body != nil {
			size += len(r.Body.Data)
		}
	}
	if done, err = body.Turn(ctx, size); err != nil {
		return nil, nil, nil, err
	}
	v = &sharedView{full: e, owner: true, m: mask.New(""), sent: readBody(e.Request.Body, e.Request.Headers)}
	answered = make([]*body.Reading, len(e.Attempts))
	for i := range e.Attempts {
		if r := e.Attempts[i].Response; r != nil && r.Body != nil {
			answered[i] = readBody(r.Body, r.Headers)
		}
	}
	if r := e.Response; r != nil {
		v.answered = readBody(r.Body, r.Headers)
	}
	v.all(answered)
	v.m.Learned()
	return v, answered, done, nil
}

// maxPartName is the length, in bytes, of the longest name of a signature part in the table of senders.
const maxPartName = len("sign")

// MaskReport hides secrets in a report on the signature of an event, as Mask does in the record. It hides the
// signature itself, the secrets of the event, and the SHA-256 of a body that may contain secrets. It waits
// for a turn as Mask does.
func MaskReport(ctx context.Context, e *Event, r *signature.Report) error {
	v, _, done, err := learned(ctx, e)
	if err != nil {
		return err
	}
	defer done()
	r.Message = v.m.Text(MaskVerdict(r.Reason, r.Message))
	for i := range r.Checks {
		switch c := &r.Checks[i]; c.Name {
		case signature.CheckTime:
			c.Detail = maskUnlessTime(c.Detail)
		case signature.CheckForm:
			c.Detail, _, _ = strings.Cut(c.Detail, ": ")
		case signature.CheckDigest:
			c.Detail = v.m.Text(MaskVerdict(r.Reason, c.Detail))
		}
	}
	for i := range r.Signature.Parts {
		p := &r.Signature.Parts[i]
		p.Value = maskUnlessTime(p.Value)
		if len(p.Name) > maxPartName && !strings.HasSuffix(p.Name, "=") { // a name that ends with = is a prefix from the scheme
			p.Name = mask.Masked
		}
	}
	r.Signed.SHA256 = ""
	return nil
}

// all hides the secrets in the record as Mask does, and returns masked copies of all attempts.
func (v *sharedView) all(answered []*body.Reading) []Attempt {
	v.mask()
	list := slices.Clone(v.full.Attempts)
	for i := range list {
		list[i].Cause, list[i].Error = v.text(list[i].Cause), v.fault(list[i].Error)
		if r := list[i].Response; r != nil {
			list[i].Response = v.answer(r, answered[i])
		}
	}
	return list
}

// MaskSummary hides the secrets in the summary of an event whose bodies are not read. It leaves out the
// error text of the response, which may repeat a secret of the request.
func MaskSummary(s *Summary) {
	v := &sharedView{m: mask.New("")}
	v.learnQuery(s.Provider, s.Path)
	v.m.Target(s.Path)
	v.m.Learned()
	s.Cause = nil
	if s.Error != nil {
		short := *s.Error
		short.Message, _, _ = strings.Cut(short.Message, relay.FaultSent)
		s.Error = &short
	}
	v.summary(s)
}

// fault returns an error with the secrets in its message masked, because the message may quote the
// local server.
func (v *sharedView) fault(f *relay.Fault) *relay.Fault {
	if f == nil {
		return nil
	}
	return &relay.Fault{Code: f.Code, Message: v.m.Text(f.Message)}
}

// text returns a text of unknown form without its secrets.
func (v *sharedView) text(s *string) *string {
	if s == nil {
		return nil
	}
	return new(v.m.Text(*s))
}

func (v *sharedView) summary(s *Summary) {
	s.Path, s.URL, s.PathBase64 = v.m.Target(s.Path), v.m.Target(s.URL), ""
	s.Cause, s.Error = v.text(s.Cause), v.fault(s.Error)
	if s.Signature != nil {
		masked := *s.Signature
		masked.Message = v.m.Text(MaskVerdict(masked.Reason, masked.Message))
		s.Signature = &masked
	}
	if s.Provider != nil {
		masked := *s.Provider
		masked.EventType, masked.DeliveryID = v.text(masked.EventType), v.text(masked.DeliveryID)
		s.Provider = &masked
	}
	s.Warnings = slices.Clone(s.Warnings)
	for i := range s.Warnings {
		s.Warnings[i].Message = v.m.Text(s.Warnings[i].Message)
	}
}

// maskUnlessTime returns a text of the request if it is a time, and otherwise a placeholder.
func maskUnlessTime(text string) string {
	if len(text) > maxTime || strings.Trim(text, "0123456789-:.TZ+") != "" {
		return mask.Masked
	}
	return text
}

// maxTime is the length, in bytes, of the longest time that a sender signs: RFC 3339 with nanoseconds and a
// zone.
const maxTime = len("2006-01-02T15:04:05.999999999+07:00")

// MaskVerdict returns the message of a verdict without parts that may repeat the request, such as an address
// or a part of its lines.
func MaskVerdict(reason, message string) string {
	switch reason {
	case signature.URLDiffers:
		return "it fits for another address than that of the event"
	case signature.VersionUnknown:
		return "the line has no signature of the version that is checked"
	case signature.TimeMalformed:
		return "the signed time is missing or cannot be read"
	}
	return message
}

// MaskedEvent converts a masked record back into an event that ReadDiff and Export accept, and returns
// a source of its bodies. Chunked bodies become bodies with a length.
func MaskedEvent(e *Event) (*relay.Event, BodySource) {
	id, _ := relay.ParseID(e.ID)
	out := &relay.Event{
		ID: id, Alias: e.Alias, ReceivedAt: e.ReceivedAt.Time, LastReceivedAt: e.ReceivedAt.Time, TLS: e.TLS,
		Method: e.Method, Host: e.Host, State: e.State, Error: e.Error, AttemptCount: e.AttemptCount,
		Blocker: textFrom(e.ReplayBlocker),
	}
	if e.HTTPVersion == "HTTP/1.1" {
		out.HTTPMinor = 1
	}
	if e.Provider != nil {
		out.Provider.DeliveryID = textFrom(e.Provider.DeliveryID)
	}
	parts := maskedParts{}
	target := strings.ReplaceAll(e.Path, mask.Masked, url.QueryEscape(mask.Masked)) // the brackets of the placeholder are not allowed in an address
	out.Target = []byte(target)
	out.Request = parts.message(0, e.Method+" "+target+" "+e.HTTPVersion, e.Request.Headers, e.Request.Body)
	for i := range e.Attempts {
		a := &e.Attempts[i]
		made := relay.Attempt{N: a.Number, Kind: a.Kind, State: a.State, ReceivedAt: a.ReceivedAt.Time, Error: a.Error}
		if t := a.Timing; t != nil {
			made.HasTiming, made.Timing = true, relay.Timing{Blocked: span(t.Blocked), Connect: span(t.Connect), Send: span(t.Send), Wait: span(t.Wait), Receive: span(t.Receive)}
		}
		if r := a.Response; r != nil {
			made.HasResponse, made.Status, made.ResponseState = true, r.Status, r.State
			made.Response = parts.message(a.Number, r.HTTPVersion+" "+strconv.Itoa(r.Status)+" "+r.Reason, r.Headers, r.Body)
		}
		out.Attempts = append(out.Attempts, made)
	}
	return out, parts
}

func span(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

func textFrom(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// maskedParts holds the bodies of a masked event, by the number of the attempt; 0 = the request.
type maskedParts map[int][]byte

// BodyPart implements BodySource.
func (p maskedParts) BodyPart(_ context.Context, _ relay.ID, n, _ int) ([]byte, error) {
	return p[n], nil
}

func (p maskedParts) message(n int, start string, headers []Header, b *Body) relay.Message {
	data, _ := b.Bytes()
	p[n] = data
	m := relay.Message{Body: relay.Body{Data: data, Stored: int64(len(data)), Size: int64(len(data)), State: b.State}}
	if b.Truncated {
		m.Body.Size = max(b.Size, m.Body.Stored+1)
	}
	if sum, err := hex.DecodeString(b.SHA256); err == nil && len(sum) == sha256.Size {
		copy(m.Body.SHA256[:], sum)
	} else {
		m.Body.SHA256 = sha256.Sum256(data)
	}
	var head bytes.Buffer
	head.WriteString(start + "\r\n")
	for _, h := range headers {
		name, value := h.Name(), h.Value()
		switch strings.ToLower(name) {
		case "content-length", "transfer-encoding":
			name, value = "Content-Length", strconv.FormatInt(m.Body.Size, 10)
			m.Framing = relay.FramingLength
		case "content-encoding":
			if b.SHA256 == "" {
				continue // without a SHA-256, the body is the decoded text, so this line would be false
			}
		}
		if raw, err := base64.StdEncoding.DecodeString(h.item(2)); err == nil && len(raw) > 0 {
			value = string(raw)
		}
		head.WriteString(name + ": " + value + "\r\n")
	}
	head.WriteString("\r\n")
	m.Head = head.Bytes()
	return m
}
