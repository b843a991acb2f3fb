package record

import (
	"context"
	"encoding/base64"
	"net/url"
	"slices"
	"strings"
	"time"

	"relay"
	"relay/record/body"
	"relay/record/mask"
)

// SharedEvent is the view of an event for the holder of a share token. Request and Response are null unless the
// share allows viewing. It contains nothing about the owner: no account, no alias, and no host name, from which
// the alias could be read.
type SharedEvent struct {
	Method       string    `json:"method"`
	Path         string    `json:"path"`
	ReceivedAt   Time      `json:"receivedAt" format:"date-time"`
	State        string    `json:"state"`
	PayloadSize  int64     `json:"payloadSize"`
	Status       *int      `json:"status"`
	LatencyMs    *float64  `json:"latencyMs"`
	ResponseSize *int64    `json:"responseSize"`
	Online       bool      `json:"online" doc:"a replay would be delivered at once"`
	Replayable   bool      `json:"replayable"`
	View         bool      `json:"view"`
	OneUse       bool      `json:"oneUse" doc:"the first replay ends the share"`
	ExpiresAt    *Time     `json:"expiresAt" format:"date-time"`
	Request      *Message  `json:"request"`
	Response     *Response `json:"response"`
}

// ReadShared reads the parts of an event that a share shows: its request and the last ended attempt, with at most
// maxBody bytes of each body.
func ReadShared(ctx context.Context, from EventSource, who relay.Actor, id relay.ID, maxBody int) (*relay.Event, error) {
	e, err := from.Request(ctx, who, id, maxBody)
	if err == nil {
		e.Attempts, err = from.Attempts(ctx, who, id, relay.AttemptPage{Limit: 1, Ended: true, MaxBody: maxBody})
	}
	if err != nil {
		return nil, err
	}
	return e, nil
}

// OfShared returns the parts of an event that its share shows. The event must be read by ReadShared. Before
// it reads large bodies it waits for a turn, see body.Turn; if ctx ends first, it returns the error of ctx.
func OfShared(ctx context.Context, e *relay.Event, s relay.Share, online bool) (*SharedEvent, error) {
	full := Of(e, relay.Site{}, time.Time{})
	done, err := body.Turn(ctx, textSize(full))
	if err != nil {
		return nil, err
	}
	defer done()
	v := newSharedView(e, full)
	v.mask()
	v.m.Learned()
	path := v.mask()
	out := &SharedEvent{
		Method:      full.Method,
		Path:        path,
		ReceivedAt:  full.ReceivedAt,
		State:       full.State,
		PayloadSize: full.PayloadSize,
		Status:      full.Status,
		LatencyMs:   full.LatencyMs,
		Online:      online,
		Replayable:  full.Replayable,
		View:        s.View,
		OneUse:      s.OneUse,
		ExpiresAt:   timeOf(s.ExpiresAt),
	}
	if full.Response != nil {
		out.ResponseSize = &full.Response.Body.Size
	}
	if s.View {
		out.Request, out.Response = v.request, v.response
	}
	return out, nil
}

// textSize returns an upper bound of the bytes of the bodies' texts. A body with a content coding may become as
// large as MaxBody, however short it is.
func textSize(e *Event) (n int) {
	add := func(b *Body, headers []Header) {
		switch {
		case headerValue(headers, "content-encoding") != "" && b.Data != "":
			n += MaxBody
		default:
			n += len(b.Data)
		}
	}
	add(e.Request.Body, e.Request.Headers)
	if e.Response != nil {
		add(e.Response.Body, e.Response.Headers)
	}
	return n
}

// sharedView is an event as the holder of a share may see it.
type sharedView struct {
	full     *Event
	host     string // host of the alias, to be hidden; "" = the viewer knows the alias
	owner    bool   // the viewer knows the owner, so header lines with the host of the owner are shown
	m        *mask.Masker
	sent     *body.Reading // body of the request; nil if its content coding could not be decoded
	answered *body.Reading // body of the response; nil if its content coding could not be decoded
	request  *Message
	response *Response
}

func newSharedView(e *relay.Event, full *Event) *sharedView {
	host, _, _ := strings.Cut(strings.ToLower(e.Host), ":")
	host = strings.Trim(host, ".")
	v := &sharedView{full: full, host: host, m: mask.New(host), sent: readBody(full.Request.Body, full.Request.Headers)}
	if r := full.Response; r != nil {
		v.answered = readBody(r.Body, r.Headers)
	}
	return v
}

// readBody decodes a body; nil if its content coding could not be decoded.
func readBody(b *Body, headers []Header) *body.Reading {
	r, err := b.Read(headers)
	if err != nil || len(r.Codings) < len(r.Label.Codings) {
		return nil
	}
	return r
}

// learnQuery adds the query values of the address to the known secrets, if the sender puts its secret into
// the query under any name.
func (v *sharedView) learnQuery(provider *Provider, target string) {
	if provider == nil || provider.Name != "event-grid" {
		return
	}
	_, query, _ := strings.Cut(target, "?")
	for pair := range strings.SplitSeq(query, "&") {
		_, value, _ := strings.Cut(pair, "=")
		if value, err := url.QueryUnescape(value); err == nil {
			v.m.Secret(value)
		}
	}
}

// mask makes masked copies of request and response, and returns the masked target.
func (v *sharedView) mask() (path string) {
	v.learnQuery(v.full.Provider, v.full.Path)
	path = v.m.Target(v.full.Path)
	request := *v.full.Request
	request.Body = v.body(request.Body, v.sent)
	request.Headers, request.Trailers = v.headers(request.Headers), v.headers(request.Trailers)
	v.request = &request
	if v.full.Response != nil {
		v.response = v.answer(v.full.Response, v.answered)
	}
	return path
}

// answer returns a response without its secrets. The argument read is the result of readBody for its body.
func (v *sharedView) answer(from *Response, read *body.Reading) *Response {
	r := *from
	if r.Body != nil {
		r.Body = v.body(r.Body, read)
	}
	r.Headers, r.Trailers, r.Interim = v.headers(r.Headers), v.headers(r.Trailers), slices.Clone(r.Interim)
	r.Reason = v.m.Text(r.Reason)
	for i := range r.Interim {
		r.Interim[i].Reason, r.Interim[i].Headers = v.m.Text(r.Interim[i].Reason), v.headers(r.Interim[i].Headers)
	}
	return &r
}

// body returns the text of a body without its secrets. It leaves out the SHA-256 if the text differs from the
// stored bytes, because short secrets can be guessed from the sum.
func (v *sharedView) body(b *Body, r *body.Reading) *Body {
	if b.Data == "" {
		return b
	}
	out := *b
	if r == nil { // the body could not be decoded and may contain secrets, so it is left out
		out.Encoding, out.Data, out.Truncated, out.SHA256 = EncodingBase64, "", true, ""
		return &out
	}
	text, changed, whole := v.m.Body(r)
	out.Encoding, out.Data, out.Truncated = EncodingUTF8, text, b.Truncated || !whole
	if r.Form == body.Binary {
		out.Encoding, out.Data = EncodingBase64, base64.StdEncoding.EncodeToString([]byte(text))
	}
	if changed || r.How() != "" {
		out.SHA256 = ""
	}
	return &out
}

func (v *sharedView) headers(list []Header) []Header {
	out := slices.Clone(list)
	for i, h := range list {
		if v.owner && mask.OwnerHeader(h.Name()) {
			continue
		}
		name := h.Name()
		if v.m.Text(name) != name {
			name = "masked" // the placeholder has brackets, which a name must not contain
		}
		if value, changed := v.m.Header(h.Name(), h.Value(), v.host); changed {
			out[i] = Header{name, value}
		} else if name != h.Name() {
			out[i] = slices.Clone(h)
			out[i][0] = name
		}
	}
	return out
}

// SharedReplay is the response to a replay by share token.
type SharedReplay struct {
	Event   SharedReplayEvent   `json:"event"`
	Attempt SharedReplayAttempt `json:"attempt"`
}

// SharedReplayEvent is the state of the event after a replay by share token.
type SharedReplayEvent struct {
	State      string `json:"state"`
	ReceivedAt Time   `json:"receivedAt" format:"date-time"`
}

// SharedReplayAttempt is the attempt that a replay by share token made.
type SharedReplayAttempt struct {
	Number    int      `json:"number"`
	State     string   `json:"state"`
	Status    *int     `json:"status"`
	LatencyMs *float64 `json:"latencyMs"`
}

// OfSharedReplay returns the JSON form of a replay by share token, which made attempt n of the event.
func OfSharedReplay(e *relay.Event, n int) *SharedReplay {
	asked := e.LastReceivedAt
	if asked.IsZero() {
		asked = e.ReceivedAt
	}
	out := &SharedReplay{
		Event:   SharedReplayEvent{State: e.State, ReceivedAt: Time{asked}},
		Attempt: SharedReplayAttempt{Number: n, State: e.State},
	}
	if made := e.Attempt(n); made != nil {
		a := OfAttempt(made, false)
		out.Attempt.State, out.Attempt.LatencyMs = a.State, a.LatencyMs
		if a.Response != nil {
			out.Attempt.Status = &a.Response.Status
		}
	}
	return out
}
