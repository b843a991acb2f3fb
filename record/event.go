package record

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"relay"
	"relay/handshake"
	"relay/record/body"
	"relay/wire"
)

// Summary is an event in lists and in the live feed: the record without request,
// response, timing and attempts.
type Summary struct {
	ID            string       `json:"id"`
	Alias         string       `json:"alias"`
	URL           string       `json:"url"`
	ReceivedAt    Time         `json:"receivedAt" format:"date-time" doc:"set by arrival, and anew when a replay is asked for"`
	State         string       `json:"state" enum:"delivering,queued,delivered,failed,interrupted,canceled,rejected,incomplete,answered"`
	Error         *relay.Fault `json:"error"`
	Method        string       `json:"method"`
	Path          string       `json:"path"`
	PathBase64    string       `json:"pathBase64,omitempty" doc:"only when the path is not UTF-8"`
	HTTPVersion   string       `json:"httpVersion"`
	Host          string       `json:"host"`
	RemoteAddr    string       `json:"remoteAddr"`
	TLS           bool         `json:"tls"`
	PayloadSize   int64        `json:"payloadSize"`
	Status        *int         `json:"status" doc:"of the last attempt that ended"`
	LatencyMs     *float64     `json:"latencyMs" doc:"of the last attempt that ended"`
	Cause         *string      `json:"cause" doc:"what an error answer of the last attempt that ended says, in one line"`
	AttemptCount  int          `json:"attemptCount"`
	Replayable    bool         `json:"replayable"`
	ReplayBlocker *string      `json:"replayBlocker" doc:"rejected, incomplete, body, upgraded, or null"`
	Provider      *Provider    `json:"provider"`
	Signature     *Signature   `json:"signature" doc:"what the signature was worth when the request arrived, or when it was verified; null where no scheme is known"`
	Handshake     *string      `json:"handshake" doc:"name of the registration challenge that the relay has answered"`
	Warnings      []Warning    `json:"warnings" nullable:"false"`
	Pinned        bool         `json:"pinned" doc:"retention keeps the event"`
	Label         *string      `json:"label"`
	Note          *string      `json:"note"`
	Origin        string       `json:"origin" enum:"caller,send" doc:"send: somebody made and sent it here, and the record says who, from what, and what was changed"`
	*Sent
}

// Sent describes how a new event was made. Only events that were made with Relay have a Sent.
type Sent struct {
	Actor    string   `json:"actor" doc:"who sent it, as user:NAME, token:NAME or ssh:NAME; only where origin is send, as the next three"`
	MadeFrom *string  `json:"madeFrom" doc:"id of the event that it was made from, or null"`
	Changes  []string `json:"changes" nullable:"false" doc:"what differs from that: method, path, header:NAME, body, or body: with a JSON pointer"`
	SignedBy *string  `json:"signedBy" doc:"id of the secret of the alias that signed it; client: it came signed; null: nobody"`
}

// Event is the whole record of an event. Response and Timing belong to the last attempt that ended.
type Event struct {
	Summary
	Request  *Message  `json:"request" nullable:"false"`
	Response *Response `json:"response"`
	Timing   *Timing   `json:"timing"`
	Attempts []Attempt `json:"attempts" nullable:"false" doc:"the first and the newest 20; GET /events/{id}/attempts has the others"`
}

// Sample is a request from which a new event can be made.
type Sample struct {
	Name     string `json:"name"`
	Provider string `json:"provider"`
	Type     string `json:"type"`
	Source   string `json:"source" enum:"relay,last" doc:"relay: of our own making; last: the newest event of the type, which the name last:TYPE stands for"`
}

// Page is one page of events, newest first.
type Page struct {
	Data           []Summary `json:"data" nullable:"false"`
	NextCursor     *string   `json:"nextCursor" doc:"null when there is nothing older"`
	SearchedBackTo *Time     `json:"searchedBackTo" format:"date-time" doc:"first arrival of the oldest event looked at"`
}

// Of returns the JSON form of an event and of the attempts that were read with it. The argument now is the
// present time, because one warning depends on the age of the signature.
func Of(e *relay.Event, site relay.Site, now time.Time) *Event {
	out := &Event{
		Summary:  *Summarise(e, site, now),
		Request:  messageOf(&e.Request),
		Attempts: make([]Attempt, 0, len(e.Attempts)),
	}
	for i := range e.Attempts {
		out.Attempts = append(out.Attempts, *OfAttempt(&e.Attempts[i], true))
	}
	out.Status, out.LatencyMs, out.Cause = nil, nil, nil
	ended := e.LastEnded()
	if ended == nil {
		out.Fit(MaxJSON)
		return out
	}
	i := slices.IndexFunc(out.Attempts, func(a Attempt) bool { return a.Number == ended.N })
	var last *Attempt
	if i >= 0 {
		last = &out.Attempts[i]
	} else {
		last = OfAttempt(ended, true)
	}
	out.Response, out.Timing, out.LatencyMs, out.Cause = last.Response, last.Timing, last.LatencyMs, last.Cause
	if last.Response != nil {
		out.Status = &last.Response.Status
	}
	out.Fit(MaxJSON)
	return out
}

// AttemptsOf returns a page of attempts with their bodies. If the bodies are larger than MaxJSON, the attempts at
// the end of the page lose theirs.
func AttemptsOf(attempts []relay.Attempt) List[Attempt] {
	data := make([]Attempt, 0, len(attempts))
	for i := range attempts {
		data = append(data, *OfAttempt(&attempts[i], true))
	}
	list := ListOf(data)
	FitAttempts(list, MaxJSON)
	return list
}

// ReadRequest sets what an event tells about its request: the sender, and what ReadBody sets. The head of the request is
// whole; of the body, beginning is at least what Recognise looks at, or all that has arrived.
func ReadRequest(e *relay.Event, beginning []byte, site relay.Site, secrets relay.OpenSecrets) {
	e.Provider = Recognise(e.Request.Head, beginning)
	ReadBody(e, site, secrets)
}

// ReadBody sets what an event tells about its request as the sender in e has made it: the verdict on the signature, which
// is nil if secrets has none for it. It runs again, without ReadRequest, for a request whose body ends or breaks off after
// the event was stored, because the sender of a stored event stays (see Amend of delivery.Journal).
func ReadBody(e *relay.Event, site relay.Site, secrets relay.OpenSecrets) {
	if len(secrets) > 0 {
		e.Signature = JudgeEvent(e, site, secrets)
	}
}

// Summarise returns the summary of an event. The event may have been read without its attempts and bodies.
func Summarise(e *relay.Event, site relay.Site, now time.Time) *Summary {
	path, exact := lossy(e.Target)
	host, _ := lossy([]byte(e.Host))
	method, _ := lossy([]byte(e.Method))
	out := &Summary{
		ID:            e.ID.String(),
		Alias:         e.Alias,
		URL:           site.AliasURL(e.Alias),
		ReceivedAt:    Time{e.LastReceivedAt},
		State:         e.State,
		Error:         e.Error,
		Method:        method,
		Path:          path,
		HTTPVersion:   "HTTP/1." + strconv.Itoa(e.HTTPMinor),
		Host:          host,
		TLS:           e.TLS,
		PayloadSize:   e.Request.Body.Size,
		Cause:         textOf(e.Cause),
		AttemptCount:  e.AttemptCount,
		Replayable:    e.Blocker == "",
		ReplayBlocker: textOf(e.Blocker),
		Provider:      providerOf(e.Provider),
		Signature:     signatureOf(e),
		Handshake:     textOf(e.Handshake),
		Warnings:      warningsOf(e, now),
		Pinned:        e.Mark.Pinned,
		Label:         textOf(e.Mark.Label),
		Note:          textOf(e.Mark.Note),
		Origin:        relay.OriginCaller,
	}
	if s := e.Sent; s != nil {
		out.Origin = relay.OriginSend
		out.Sent = &Sent{Actor: s.Actor, MadeFrom: textOf(s.MadeFrom), Changes: ListOf(s.Changes).Data, SignedBy: textOf(s.SignedBy)}
	}
	if e.LastReceivedAt.IsZero() {
		out.ReceivedAt = Time{e.ReceivedAt}
	}
	if !exact {
		out.PathBase64 = base64.StdEncoding.EncodeToString(e.Target)
	}
	if strings.HasPrefix(path, "/") || strings.HasPrefix(path, "?") {
		out.URL += path
	}
	// Not every event has the following values.
	if e.Remote.IsValid() {
		out.RemoteAddr = e.Remote.String()
	}
	if e.Status != 0 {
		out.Status = new(e.Status)
	}
	if e.HasLatency {
		out.LatencyMs = new(millis(e.Latency))
	}
	return out
}

// PageOf returns a page of summaries.
func PageOf(p relay.Page, site relay.Site, now time.Time) *Page {
	out := &Page{Data: make([]Summary, 0, len(p.Events)), NextCursor: textOf(p.Next), SearchedBackTo: timeOf(p.SearchedBackTo)}
	for i := range p.Events {
		out.Data = append(out.Data, *Summarise(&p.Events[i], site, now))
	}
	return out
}

// WarningTimestampExpired is the code of a warning before a replay: the signature is so old that the
// provider's own library will reject it.
const WarningTimestampExpired = "signature-timestamp-expired"

// Warning is a hint for the user before a replay.
type Warning struct {
	Code    string `json:"code" doc:"signature-timestamp-expired, host-refused, forwarded-needed or handshake-unanswered"`
	Message string `json:"message"`
}

func warningsOf(e *relay.Event, now time.Time) []Warning {
	list := []Warning{}
	p := &e.Provider
	if !p.SignedAt.IsZero() && p.Tolerance > 0 && now.After(p.SignedAt.Add(p.Tolerance)) {
		list = append(list, Warning{
			Code: WarningTimestampExpired,
			Message: fmt.Sprintf("the signature was made at %s and %s libraries refuse it after %s; a replay sends it unchanged; relay send ALIAS --from ID --sign makes a new event with a fresh signature",
				p.SignedAt.UTC().Format(time.RFC3339), p.Name, relay.FormatDuration(p.Tolerance)),
		})
	}
	if e.MissedHandshake != "" {
		list = append(list, Warning{WarningHandshake, MissedText(e)})
	}
	return append(list, refusalOf(e)...)
}

// WarningHandshake is the code of the warning that a registration challenge arrived while the alias
// was offline, and that the alias is not set to answer it.
const WarningHandshake = "handshake-unanswered"

// MissedText returns the advice for a challenge that was queued without an answer. The command in the text
// replaces the whole setting handshakes of the alias, because the event does not contain the present value.
func MissedText(e *relay.Event) string {
	name, first := e.MissedHandshake, ""
	switch handshake.NeedOf(name) {
	case handshake.NeedsToken:
		first = " verifyToken=TOKEN with the token that you entered at the sender,"
	case handshake.NeedsSecret:
		first = fmt.Sprintf(" and relay secret add %s --provider %s,", e.Alias, name)
	}
	return fmt.Sprintf("this is a registration challenge (%s), and no tunnel was online to answer it; run relayd alias set %s handshakes=%s%s to let the relay answer it, and let the sender try again; this list replaces the one before, so add the names to keep", name, e.Alias, name, first)
}

// refusalOf returns the warning about a local server that refused the request because of its host name or
// scheme; nil = no refusal.
func refusalOf(e *relay.Event) []Warning {
	by, origin := strings.CutSuffix(e.HostRefusedBy, originRefused)
	host, _ := lossy([]byte(e.Host))
	switch {
	case by == "":
		return nil
	case origin:
		return []Warning{{WarningForwardedNeeded, fmt.Sprintf("the local server (%s) refused the Origin header, because it does not know that the request was sent to https://%s; %s", by, host, forwardedHint(e.Alias))}}
	case by == RedirectedToSelf:
		return []Warning{{WarningForwardedNeeded, fmt.Sprintf("the local server redirected the request to the address that it was sent to, by https, because it does not know that it came so; %s", forwardedHint(e.Alias))}}
	}
	return []Warning{{WarningHostRefused, fmt.Sprintf("the local server (%s) refused the Host header %s; %s", by, host, HostRefusedHint(e.Alias))}}
}

// forwardedHint returns the advice for a local server that does not know its public address.
func forwardedHint(alias string) string {
	return fmt.Sprintf("run relayd alias set %s forwarded=on, and let the server trust X-Forwarded-Proto and X-Forwarded-Host", alias)
}

// Codes of the warnings about a local server that refused the address of the request: its Host header, or its
// scheme, because the server does not know that the request came by https.
const (
	WarningHostRefused     = "host-refused"
	WarningForwardedNeeded = "forwarded-needed"
)

// Missed reports whether the event is a registration challenge that was queued without an answer.
func (s *Summary) Missed() bool {
	return slices.ContainsFunc(s.Warnings, func(w Warning) bool { return w.Code == WarningHandshake })
}

// AddressRefused returns the warning about a local server that refused the request because of its host name
// or scheme; nil = no refusal.
func (s *Summary) AddressRefused() *Warning {
	if i := slices.IndexFunc(s.Warnings, func(w Warning) bool { return w.Code == WarningHostRefused || w.Code == WarningForwardedNeeded }); i >= 0 {
		return &s.Warnings[i]
	}
	return nil
}

// Values of HostRefusedBy besides the names of frameworks: the suffix of a framework that refused the
// Origin header, and the word for a redirect to the event's own address.
const (
	originRefused    = " (Origin)"
	RedirectedToSelf = "redirect to https"
)

// RefusedBy returns the framework that refused a request because of its host name or scheme, in the form of
// an event's HostRefusedBy; "" = none. It recognises the framework by the start of the response.
func RefusedBy(status int, head, stored []byte) string {
	if status >= http.StatusBadRequest && len(stored) > 0 {
		if label := body.LabelOf(head); len(label.Codings) > 0 {
			text, _ := body.Open(label, bytes.NewReader(stored), refusalBytes)
			stored, _ = io.ReadAll(text) // if the coding is invalid, stored becomes the text decoded before the error
		}
	}
	if by := HostRefusedBy(status, stored); by != "" {
		return by
	}
	stored = stored[:min(len(stored), refusalBytes)]
	has := func(text string) bool { return bytes.Contains(stored, []byte(text)) }
	switch {
	// Only the end of "didn't match request.base_url" is searched, because its apostrophe is escaped in HTML.
	case status == http.StatusUnprocessableEntity && has("HTTP Origin header (") && has("match request.base_url"):
		return "Rails" + originRefused
	case status == http.StatusForbidden && has("Origin checking failed"): // Django writes this text only with DEBUG on
		return "Django" + originRefused
	}
	return ""
}

// RefusedHost reports whether by, a result of RefusedBy, means a refused Host header.
func RefusedHost(by string) bool {
	return by != "" && by != RedirectedToSelf && !strings.HasSuffix(by, originRefused)
}

// RedirectTo returns the host and target of the https address to which a response redirects. ok is
// false if the response does not redirect to https.
func RedirectTo(status int, head []byte) (host string, target []byte, ok bool) {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return "", nil, false
	}
	address, ok := strings.CutPrefix(headValue(head, "location"), "https://")
	if !ok {
		return "", nil, false
	}
	end := strings.IndexAny(address, "/?#")
	if end < 0 {
		return strings.ToLower(address), []byte("/"), wire.ValidHost([]byte(address))
	}
	return strings.ToLower(address[:end]), []byte(address[end:]), wire.ValidHost([]byte(address[:end]))
}

// refusalBytes is the number of bytes of a response that are searched for the text of a refused Host
// header.
const refusalBytes = 16 << 10

// HostRefusedBy returns the framework whose development server refused a request because of its Host
// header; "" = none. It recognises the framework by the text at the beginning of the response. body
// may contain chunk lines.
func HostRefusedBy(status int, body []byte) string {
	body = body[:min(len(body), refusalBytes)]
	has := func(text string) bool { return bytes.Contains(body, []byte(text)) }
	switch {
	case status == http.StatusForbidden && has("Blocked request. This host ("):
		return "Vite"
	case status == http.StatusBadRequest && (has("DisallowedHost") || has("Invalid HTTP_HOST header")):
		return "Django" // Django writes this text only with DEBUG on, and otherwise only Bad Request
	case status == http.StatusForbidden && has("Invalid Host header"),
		status == http.StatusOK && bytes.Equal(bytes.TrimSpace(body), []byte("Invalid Host header")): // webpack-dev-server before 5
		return "webpack-dev-server"
	case status == http.StatusBadRequest && has("Bad Request - Invalid Hostname"):
		return "IIS Express"
	case status == http.StatusForbidden && (has("Blocked hosts: ") || has("Blocked host: ")): // Rails 7 and later have the first text, Rails 6 has the second
		return "Rails"
	}
	return ""
}

// HostRefusedHint returns the advice when the local server of an alias refuses the Host header.
func HostRefusedHint(alias string) string {
	return fmt.Sprintf("run relay up with --host-header rewrite, or relayd alias set %s hostHeader=rewrite, or make the server accept the host", alias)
}

// BlockerText returns the reason why an event cannot be replayed, as the end of a sentence; "" = the
// event can be replayed.
func BlockerText(blocker string) string {
	switch blocker {
	case "":
		return ""
	case relay.BlockedRejected:
		return "the request was rejected and not stored completely"
	case relay.BlockedIncomplete:
		return "the caller disconnected before the request was complete"
	case relay.BlockedBody:
		return "its body was not stored completely"
	default:
		return "it was a connection upgrade, which cannot be repeated"
	}
}
