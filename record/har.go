package record

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"unicode/utf8"

	"relay"
	"relay/record/body"
	"relay/wire"
)

// maxHARRequests bounds the bytes of requests in one archive, because each entry repeats the request and an
// event may have been replayed a thousand times.
const maxHARRequests = 16 << 20

// maxHARFields is the largest number of form fields in an archive.
const maxHARFields = 10_000

// maxHARUnpacked bounds the bytes of decoded responses, as JSON, in one archive.
const maxHARUnpacked = 4 << 20

// object is a JSON object.
type object = map[string]any

// HAROf returns the archive (HAR 1.2) of an event that was read with its bodies: an entry for each attempt,
// without a response if it got none. Names that begin with an underscore are extensions, which HAR allows.
// Entries beyond maxHARRequests contain their request without headers and body. The argument creator is the
// version of the program; the argument most limits the bytes of all response bodies, as JSON.
func HAROf(e *relay.Event, site relay.Site, creator string, most int64) any {
	request := harRequest(e, site)
	// Short lines and parameters take about eight times as many bytes in the archive as in the request.
	weight, left := 8*len(e.Request.Head)+min(len(e.Request.Body.Data), MaxBody), maxHARRequests
	attempts := e.Attempts
	if len(attempts) == 0 {
		attempts = []relay.Attempt{{ReceivedAt: e.ReceivedAt, Error: e.Error}}
	}
	entries := make([]object, len(attempts))
	list := AttemptsOf(attempts)
	FitAttempts(list, most)
	answers, unpackedLeft := list.Data, min(most, maxHARUnpacked)
	for i := range attempts {
		a, sent := &answers[i], maps.Clone(request)
		if head := attempts[i].SentHead; len(head) > 0 {
			sent["headers"], sent["headersSize"] = harPairs(headersOf(wire.Fields(head))), len(head)
		}
		if left -= weight; left < 0 && i > 0 {
			sent["headers"], sent["queryString"] = []harPair{}, []harPair{}
			delete(sent, "postData")
			sent["comment"] = "headers and body of the request stand in the first entries only: they are too large to be repeated in all"
		}
		timings, total := object{"blocked": -1, "dns": -1, "connect": -1, "send": 0, "wait": 0, "receive": 0, "ssl": -1}, 0.0 // ms; -1 = does not apply
		if t := a.Timing; t != nil {
			total = t.Total
			timings = object{"blocked": t.Blocked, "dns": -1, "connect": t.Connect, "send": t.Send, "wait": t.Wait, "receive": t.Receive, "ssl": -1}
		}
		entries[i] = object{
			"startedDateTime": a.ReceivedAt, "time": total, "request": sent, "response": harResponse(a, &attempts[i].Response, &unpackedLeft),
			"cache": object{}, "timings": timings, "_attempt": a.Number, "_event": e.ID.String(),
		}
	}
	log := object{"version": "1.2", "creator": object{"name": "relay", "version": creator}, "entries": entries}
	if older := e.AttemptCount - len(e.Attempts); older > 0 {
		log["comment"] = fmt.Sprintf("of %d attempts, the first and the newest %d stand here", e.AttemptCount, len(e.Attempts)-1)
	}
	return object{"log": log}
}

func harRequest(e *relay.Event, site relay.Site) object {
	m, s := messageOf(&e.Request), Summarise(e, site, e.ReceivedAt)
	_, query, _ := strings.Cut(s.Path, "?")
	parameters := harFields(query)
	r := object{
		"method": s.Method, "url": site.AliasURL(e.Alias) + string(sentTarget(e)), "httpVersion": s.HTTPVersion, "cookies": []harPair{}, "headers": harPairs(m.Headers),
		"queryString": parameters, "headersSize": len(e.Request.Head), "bodySize": e.Request.Body.Size,
	}
	if e.Request.Body.Size > 0 {
		r["postData"] = harPosted(string(e.Request.Body.Data), headerValue(m.Headers, "content-type"))
	}
	return r
}

// harPosted returns the body of a request. A body that is labelled as a form is exported as plain text if it
// is no form, which is common with curl, or has more than maxHARFields fields: programs that read HAR rebuild
// a form from its parameters and ignore its text. The Content-Type line of the request keeps the media type
// that was sent.
func harPosted(text, kind string) object {
	params := []harPair{}
	if body.NewLabel(kind).IsForm() {
		if strings.Count(text, "&") < maxHARFields && body.LooksLikeForm([]byte(text)) {
			params = harFields(text)
		} else {
			kind = "text/plain"
		}
	}
	return object{"mimeType": cmp.Or(kind, "application/octet-stream"), "text": text, "params": params}
}

// harFields returns the fields of a query or a form, decoded.
func harFields(form string) []harPair {
	list := []harPair{}
	for part := range strings.SplitSeq(form, "&") {
		if part != "" {
			name, value, _ := strings.Cut(part, "=")
			list = append(list, harPair{harUnescape(name), harUnescape(value)})
		}
	}
	return list
}

func harUnescape(s string) string {
	if plain, err := url.QueryUnescape(s); err == nil && utf8.ValidString(plain) {
		return plain
	}
	return s
}

// harResponse returns the response of an attempt; its status is 0 if there was no response. m is the stored
// message of the response, and left is the argument of harContent.
func harResponse(a *Attempt, m *relay.Message, left *int64) object {
	r := object{
		"status": 0, "statusText": "", "httpVersion": "HTTP/1.1", "cookies": []harPair{}, "headers": []harPair{}, "redirectURL": "",
		"headersSize": -1, "bodySize": -1, "content": object{"size": 0, "mimeType": ""},
	}
	if a.Error != nil {
		r["_error"] = a.Error.Code
	}
	if s := a.Response; s != nil {
		r["status"], r["statusText"], r["httpVersion"] = s.Status, s.Reason, s.HTTPVersion
		r["headers"], r["headersSize"], r["bodySize"] = harPairs(s.Headers), len(m.Head), s.Body.Size
		r["redirectURL"], r["content"] = headerValue(s.Headers, "location"), harContent(s, m, left)
	}
	return r
}

// harContent returns the body of a response, as text or in base64. Content codings and charset are decoded if
// the whole body can be decoded and has, as JSON, at most *left bytes, which are then subtracted from *left.
func harContent(s *Response, m *relay.Message, left *int64) object {
	out := object{"mimeType": cmp.Or(headerValue(s.Headers, "content-type"), "application/octet-stream"), "size": s.Body.Size, "text": s.Body.Data}
	b := s.Body
	if label := body.LabelOf(m.Head); !b.Truncated && (len(label.Codings) > 0 || label.Charset != "") && int64(len(m.Body.Data)) == m.Body.Size {
		r := body.Read(label, m.Body.Data, false, int(min(MaxBody, *left)))
		plain := bodyOf(&relay.Body{Data: r.Text, Size: int64(len(r.Text))})
		if size := jsonSize(plain.Data); !r.Cut && len(r.Codings) == len(label.Codings) && len(r.Faults) == 0 && size <= *left {
			*left -= size
			b = plain
			out["size"], out["compression"], out["text"] = b.Size, b.Size-s.Body.Size, b.Data
		}
	}
	if b.Encoding != EncodingUTF8 {
		out["encoding"] = EncodingBase64
	}
	if b.Truncated {
		out["comment"] = fmt.Sprintf("only the start of the %d bytes stands here", s.Body.Size)
	}
	return out
}

// harPair is a name and a value.
type harPair struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func harPairs(headers []Header) []harPair {
	list := make([]harPair, 0, len(headers))
	for _, h := range headers {
		list = append(list, harPair{h.Name(), h.Value()})
	}
	return list
}
