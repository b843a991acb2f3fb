package record

import (
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"

	"relay"
	"relay/wire"
)

// HAR is an archive of the attempts of an event (HAR 1.2).
type HAR struct {
	Log HARLog `json:"log"`
}

// HARLog is the one member of a HAR.
type HARLog struct {
	Version string     `json:"version"`
	Creator HARCreator `json:"creator"`
	Entries []HAREntry `json:"entries"`
}

// HARCreator names the program that wrote the archive.
type HARCreator struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// HAREntry is one attempt. Names that begin with an underscore are additions, as
// HAR allows them.
type HAREntry struct {
	StartedDateTime Time        `json:"startedDateTime"`
	Time            float64     `json:"time"`
	Request         HARRequest  `json:"request"`
	Response        HARResponse `json:"response"`
	Cache           struct{}    `json:"cache"`
	Timings         HARTimings  `json:"timings"`
	Attempt         int         `json:"_attempt"`
	Event           string      `json:"_event"`
}

// HARRequest is the request of an attempt.
type HARRequest struct {
	Method      string       `json:"method"`
	URL         string       `json:"url"`
	HTTPVersion string       `json:"httpVersion"`
	Cookies     []HARPair    `json:"cookies"`
	Headers     []HARPair    `json:"headers"`
	QueryString []HARPair    `json:"queryString"`
	PostData    *HARPostData `json:"postData,omitempty"`
	HeadersSize int          `json:"headersSize"`
	BodySize    int64        `json:"bodySize"`
	Comment     string       `json:"comment,omitempty"`
}

// HARPostData is the body of a request; Encoding is base64 where it is no text.
type HARPostData struct {
	MimeType string    `json:"mimeType"`
	Params   []HARPair `json:"params"`
	Text     string    `json:"text"`
	Encoding string    `json:"_encoding,omitempty"`
	Comment  string    `json:"comment,omitempty"`
}

// HARResponse is the response of an attempt; status 0 when there was none.
type HARResponse struct {
	Status      int        `json:"status"`
	StatusText  string     `json:"statusText"`
	HTTPVersion string     `json:"httpVersion"`
	Cookies     []HARPair  `json:"cookies"`
	Headers     []HARPair  `json:"headers"`
	Content     HARContent `json:"content"`
	RedirectURL string     `json:"redirectURL"`
	HeadersSize int        `json:"headersSize"`
	BodySize    int64      `json:"bodySize"`
	Error       string     `json:"_error,omitempty"`
}

// HARContent is the body of a response.
type HARContent struct {
	Size     int64  `json:"size"`
	MimeType string `json:"mimeType"`
	Text     string `json:"text,omitempty"`
	Encoding string `json:"encoding,omitempty"`
	Comment  string `json:"comment,omitempty"`
}

// HARTimings are the phases in ms; -1 = does not apply.
type HARTimings struct {
	Blocked float64 `json:"blocked"`
	DNS     float64 `json:"dns"`
	Connect float64 `json:"connect"`
	Send    float64 `json:"send"`
	Wait    float64 `json:"wait"`
	Receive float64 `json:"receive"`
	SSL     float64 `json:"ssl"`
}

// HARPair is a name and a value.
type HARPair struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// maxHARRequests bounds the bytes of requests in one archive: each entry has its own,
// and an event may have been replayed a thousand times.
const maxHARRequests = 16 << 20

// HAROf gives the archive of an event that was read whole: an entry per attempt,
// one without a response where there was none. Entries beyond maxHARRequests have
// their request without headers and body. creator is the version of the program.
func HAROf(e *relay.Event, site relay.Site, creator string) *HAR {
	h := &HAR{HARLog{Version: "1.2", Creator: HARCreator{Name: "relay", Version: creator}, Entries: []HAREntry{}}}
	request, left := harRequest(e, site), maxHARRequests
	attempts := e.Attempts
	if len(attempts) == 0 {
		attempts = []relay.Attempt{{ReceivedAt: e.ReceivedAt, Error: e.Error}}
	}
	for i := range attempts {
		a := OfAttempt(&attempts[i], true)
		entry := HAREntry{
			StartedDateTime: a.ReceivedAt, Request: request, Response: harResponse(a, &attempts[i]), Attempt: a.Number, Event: e.ID.String(),
			Timings: HARTimings{Blocked: -1, DNS: -1, Connect: -1, SSL: -1},
		}
		if t := a.Timing; t != nil {
			entry.Time = t.Total
			entry.Timings = HARTimings{Blocked: t.Blocked, DNS: -1, Connect: t.Connect, Send: t.Send, Wait: t.Wait, Receive: t.Receive, SSL: -1}
		}
		if len(attempts[i].SentHead) > 0 {
			entry.Request.Headers = harPairs(headersOf(wire.Fields, attempts[i].SentHead))
			entry.Request.HeadersSize = len(attempts[i].SentHead)
		}
		if left -= entry.Request.weight(); left < 0 && i > 0 {
			entry.Request.strip()
		}
		h.Log.Entries = append(h.Log.Entries, entry)
	}
	return h
}

func harRequest(e *relay.Event, site relay.Site) HARRequest {
	m, s := messageOf(&e.Request), Summarise(e, site, e.ReceivedAt)
	r := HARRequest{
		Method: s.Method, URL: s.URL, HTTPVersion: s.HTTPVersion, Cookies: []HARPair{}, Headers: harPairs(m.Headers),
		QueryString: []HARPair{}, HeadersSize: len(e.Request.Head), BodySize: e.Request.Body.Size,
	}
	if _, query, ok := strings.Cut(s.Path, "?"); ok {
		for part := range strings.SplitSeq(query, "&") {
			name, value, _ := strings.Cut(part, "=")
			r.QueryString = append(r.QueryString, HARPair{unescape(name), unescape(value)})
		}
	}
	if e.Request.Body.Size > 0 {
		text, encoding := harText(m.Body)
		r.PostData = &HARPostData{MimeType: mimeOf(m.Headers), Params: []HARPair{}, Text: text, Encoding: encoding, Comment: cutNote(m.Body)}
	}
	return r
}

// weight is about how many bytes a request takes in the archive.
func (r *HARRequest) weight() int {
	const pair = 30 // of its punctuation
	n := len(r.URL)
	for _, list := range [][]HARPair{r.Headers, r.QueryString} {
		for _, p := range list {
			n += len(p.Name) + len(p.Value) + pair
		}
	}
	if r.PostData != nil {
		n += len(r.PostData.Text)
	}
	return n
}

// strip leaves out what the first entry has too.
func (r *HARRequest) strip() {
	r.Headers, r.QueryString, r.PostData = []HARPair{}, []HARPair{}, nil
	r.Comment = "headers and body of the request stand in the first entries only: they are too large to be repeated in all"
}

func unescape(s string) string {
	if plain, err := url.QueryUnescape(s); err == nil && utf8.ValidString(plain) {
		return plain
	}
	return s
}

func harResponse(a *Attempt, from *relay.Attempt) HARResponse {
	r := HARResponse{Cookies: []HARPair{}, Headers: []HARPair{}, HeadersSize: -1, BodySize: -1, HTTPVersion: "HTTP/1.1"}
	if a.Error != nil {
		r.Error = a.Error.Code
	}
	m := a.Response
	if m == nil {
		return r
	}
	r.Status, r.StatusText, r.HTTPVersion = m.Status, m.Reason, m.HTTPVersion
	r.Headers, r.HeadersSize, r.BodySize = harPairs(m.Headers), len(from.Response.Head), m.Body.Size
	r.Content = HARContent{Size: m.Body.Size, MimeType: mimeOf(m.Headers)}
	r.Content.Text, r.Content.Encoding = harText(m.Body)
	r.Content.Comment = cutNote(m.Body)
	for _, h := range m.Headers {
		if strings.EqualFold(h.Name(), "location") {
			r.RedirectURL = h.Value()
		}
	}
	return r
}

// harText is text as it is, and everything else in base64.
func harText(b *Body) (text, encoding string) {
	if b.Encoding == EncodingUTF8 {
		return b.Data, ""
	}
	return b.Data, EncodingBase64
}

// cutNote says of a body that the archive holds only its start.
func cutNote(b *Body) string {
	if !b.Truncated {
		return ""
	}
	return fmt.Sprintf("only the start of the %d bytes stands here", b.Size)
}

func harPairs(headers []Header) []HARPair {
	list := make([]HARPair, 0, len(headers))
	for _, h := range headers {
		list = append(list, HARPair{h.Name(), h.Value()})
	}
	return list
}

func mimeOf(headers []Header) string {
	for _, h := range headers {
		if strings.EqualFold(h.Name(), "content-type") {
			return h.Value()
		}
	}
	return "application/octet-stream"
}
