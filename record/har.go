package record

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"unicode/utf8"

	"relay"
	"relay/wire"
)

// maxHARRequests bounds the bytes of requests in one archive: each entry has its own,
// and an event may have been replayed a thousand times.
const maxHARRequests = 16 << 20

// object is a JSON object.
type object = map[string]any

// HAROf returns the archive (HAR 1.2) of an event that was read whole: an entry per attempt,
// one without a response where there was none. Names that begin with an underscore are
// additions, as HAR allows them. Entries beyond maxHARRequests have their request without
// headers and body. creator is the version of the program.
func HAROf(e *relay.Event, site relay.Site, creator string, most int64) any {
	request := harRequest(e, site)
	// In the archive, short lines and parameters take about that many times their bytes.
	weight, left := 8*len(e.Request.Head)+min(len(e.Request.Body.Data), MaxBody), maxHARRequests
	attempts := e.Attempts
	if len(attempts) == 0 {
		attempts = []relay.Attempt{{ReceivedAt: e.ReceivedAt, Error: e.Error}}
	}
	entries := make([]object, len(attempts))
	list := AttemptsOf(attempts)
	FitAttempts(list, most)
	answers := list.Data
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
			"startedDateTime": a.ReceivedAt, "time": total, "request": sent, "response": harResponse(a, len(attempts[i].Response.Head)),
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
	parameters := []harPair{}
	if _, query, ok := strings.Cut(s.Path, "?"); ok {
		for part := range strings.SplitSeq(query, "&") {
			name, value, _ := strings.Cut(part, "=")
			parameters = append(parameters, harPair{harUnescape(name), harUnescape(value)})
		}
	}
	r := object{
		"method": s.Method, "url": s.URL, "httpVersion": s.HTTPVersion, "cookies": []harPair{}, "headers": harPairs(m.Headers),
		"queryString": parameters, "headersSize": len(e.Request.Head), "bodySize": e.Request.Body.Size,
	}
	if e.Request.Body.Size > 0 {
		data := harBody(m.Body, m.Headers, "_encoding")
		data["params"] = []harPair{}
		r["postData"] = data
	}
	return r
}

func harUnescape(s string) string {
	if plain, err := url.QueryUnescape(s); err == nil && utf8.ValidString(plain) {
		return plain
	}
	return s
}

// harResponse returns the response of an attempt; its status is 0 when there was none.
func harResponse(a *Attempt, headSize int) object {
	r := object{
		"status": 0, "statusText": "", "httpVersion": "HTTP/1.1", "cookies": []harPair{}, "headers": []harPair{}, "redirectURL": "",
		"headersSize": -1, "bodySize": -1, "content": object{"size": 0, "mimeType": ""},
	}
	if a.Error != nil {
		r["_error"] = a.Error.Code
	}
	if m := a.Response; m != nil {
		r["status"], r["statusText"], r["httpVersion"] = m.Status, m.Reason, m.HTTPVersion
		r["headers"], r["headersSize"], r["bodySize"] = harPairs(m.Headers), headSize, m.Body.Size
		r["redirectURL"], r["content"] = headerValue(m.Headers, "location"), harBody(m.Body, m.Headers, "encoding")
		r["content"].(object)["size"] = m.Body.Size
	}
	return r
}

// harBody returns a body as text, or in base64 with the encoding under the given name.
func harBody(b *Body, headers []Header, encoding string) object {
	out := object{"mimeType": cmp.Or(headerValue(headers, "content-type"), "application/octet-stream"), "text": b.Data}
	if b.Encoding != EncodingUTF8 {
		out[encoding] = EncodingBase64
	}
	if b.Truncated {
		out["comment"] = fmt.Sprintf("only the start of the %d bytes stands here", b.Size)
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
