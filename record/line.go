package record

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"relay"
	reading "relay/record/body"
)

// Line is one line about an event or an attempt. Its texts are safe to print.
//
//	15:04:05 [200] POST /hook (23ms) evt_…
//	15:04:05 [500] POST /hook (2ms) evt_… invoice.paid stripe pinned label:bug-12 - Cannot read properties of null
type Line struct {
	Time         string // time of the event or attempt; in lists with date and zone
	Status       int    // status of the response or, without a response, the status that the relay answers with; 0 = none
	State        string // shown if there is no status
	Method, Path string
	Took         string // "" = unknown
	ID           string
	What         string // text after the id: event type, sender and the marks of users
	Note         string // text after What: the number of the replay, and the error
	Cause        string // text after Note: the text of an error response
}

// CallerHadLeft is the note on an attempt whose caller did not get the whole response.
const CallerHadLeft = "the caller had left"

// AttemptLine returns the line about an attempt that has ended.
func AttemptLine(e *Summary, a *Attempt) Line {
	at, status := a.ReceivedAt.Time, 0
	if a.StartedAt != nil {
		at = a.StartedAt.Time
	}
	if a.Response != nil {
		status = a.Response.Status
	}
	l := newLine(at.Local().Format(time.TimeOnly), e, status, a.State, a.Error, a.LatencyMs)
	l.Cause = causeText(a.Cause)
	if a.CallerGone {
		l.Note = strings.TrimSpace(CallerHadLeft + " " + l.Note)
	}
	if a.Kind == relay.KindReplay {
		l.Note = strings.TrimSpace(AttemptName(a.Number, a.Kind) + " " + l.Note)
	}
	return l
}

// AttemptName returns the name of an attempt, such as attempt 2 (replay). All attempts of an event are
// numbered together.
func AttemptName(number int, kind string) string {
	return "attempt " + strconv.Itoa(number) + " (" + SafeText(kind) + ")"
}

// ZonedTime formats a time in the zone of this machine, with the zone. The text is unambiguous, and filters
// such as since accept it.
func ZonedTime(t time.Time) string { return t.Local().Format(time.RFC3339) }

// Arrived returns the time at which an event arrived, which a replay does not change. Lists are in the order
// of this time.
func (s *Summary) Arrived() time.Time {
	if id, err := relay.ParseID(s.ID); err == nil && !id.IsZero() {
		return id.Time()
	}
	return s.ReceivedAt.Time
}

// EventLine returns the line about an event in a list, with the time of its arrival.
func EventLine(e *Summary) Line {
	status := 0
	if e.Status != nil && e.State == relay.StateDelivered {
		status = *e.Status
	}
	l := newLine(ZonedTime(e.Arrived()), e, status, e.State, e.Error, e.LatencyMs)
	if status != 0 {
		l.Cause = causeText(e.Cause)
	}
	if e.AttemptCount > 1 {
		l.Note = strings.TrimSpace(fmt.Sprintf("(%d attempts) %s", e.AttemptCount, l.Note))
	}
	return l
}

func newLine(at string, e *Summary, status int, state string, fault *relay.Fault, latencyMs *float64) Line {
	l := Line{Time: at, Status: status, State: SafeText(state), Method: SafeText(e.Method), Path: SafeText(e.Path), ID: SafeText(e.ID), What: whatText(e)}
	if fault != nil && state != relay.StateQueued && state != relay.StateCanceled {
		l.Note = SafeText(fault.Code)
		if fault.Message != "" {
			l.Note += ": " + SafeText(fault.Message)
		}
		// 500 is the status of codes that are never sent to a caller, such as caller-gone.
		if answered := relay.Status(fault.Code); status == 0 && answered != http.StatusInternalServerError {
			l.Status = answered
		}
	} else if w := e.AddressRefused(); w != nil {
		l.Note = w.Code
	}
	if latencyMs != nil {
		l.Took = fmt.Sprintf("(%.0fms)", *latencyMs)
	}
	return l
}

// whatText returns event type and sender, and the marks that users set, in the form of a typed filter: pinned
// and label:NAME.
func whatText(e *Summary) string {
	var words []string
	if p := e.Provider; p != nil {
		if p.EventType != nil {
			words = append(words, SafeTextMax(*p.EventType, 60))
		}
		words = append(words, SafeTextMax(p.Name, 20))
	}
	if e.Pinned {
		words = append(words, "pinned")
	}
	if e.Label != nil {
		words = append(words, "label:"+SafeTextMax(*e.Label, 40))
	}
	return strings.Join(words, " ")
}

func causeText(cause *string) string {
	if cause == nil {
		return ""
	}
	return SafeTextMax(*cause, maxCause)
}

// Outcome returns the status or the state in brackets.
func (l Line) Outcome() string {
	if l.Status != 0 {
		return "[" + strconv.Itoa(l.Status) + "]"
	}
	return "[" + l.State + "]"
}

// String returns the whole line.
func (l Line) String() string {
	var words []string
	for _, w := range []string{l.Time, l.Outcome(), l.Method, l.Path, l.Took, l.ID, l.What, l.Note} {
		if w != "" {
			words = append(words, w)
		}
	}
	if l.Cause != "" {
		words = append(words, "- "+l.Cause)
	}
	return strings.Join(words, " ")
}

// EventText describes an event in lines, the request first. All text in it is safe to print.
func EventText(e *Event) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  %s\n", SafeText(e.ID), SafeText(e.State), SafeText(e.URL))
	fmt.Fprintf(&b, "received %s from %s, %d bytes\n", ZonedTime(e.Arrived()), SafeText(e.RemoteAddr), e.PayloadSize)
	if e.Sent != nil {
		b.WriteString(SentText(e.Sent) + "\n")
	}
	if mark := MarkText(&e.Summary); mark != "" {
		b.WriteString(mark + "\n")
	}
	b.WriteString("\n")
	fmt.Fprintf(&b, "> %s %s %s\n", SafeText(e.Method), SafeText(e.Path), SafeText(e.HTTPVersion))
	if e.Request != nil {
		writeMessage(&b, "> ", e.Request.Headers, e.Request.Body)
	}
	for i := range e.Attempts {
		if n := e.Attempts[i].Number; i == 1 && n > 2 {
			fmt.Fprintf(&b, "\n(%s not shown; --before %d shows them)\n", Count(n-2, "older attempt is", "older attempts are"), n)
		}
		b.WriteString("\n" + AttemptText(&e.Attempts[i]))
	}
	for _, w := range e.Warnings {
		fmt.Fprintf(&b, "\nwarning: %s\n", SafeText(w.Message))
	}
	return b.String()
}

// AttemptText describes an attempt in lines. All text in it is safe to print.
func AttemptText(a *Attempt) string {
	var b strings.Builder
	fmt.Fprintf(&b, "attempt %d (%s): %s", a.Number, SafeText(a.Kind), SafeText(a.State))
	if a.Error != nil {
		fmt.Fprintf(&b, ", %s: %s", SafeText(a.Error.Code), SafeText(a.Error.Message))
	}
	if a.LatencyMs != nil {
		b.WriteString(", " + MillisText(*a.LatencyMs))
	}
	if a.CallerGone {
		b.WriteString(", " + CallerHadLeft)
	}
	b.WriteString("\n")
	if a.Cause != nil {
		b.WriteString(causeText(a.Cause) + "\n")
	}
	if r := a.Response; r != nil {
		fmt.Fprintf(&b, "< %s %d %s\n", SafeText(r.HTTPVersion), r.Status, SafeText(r.Reason))
		writeMessage(&b, "< ", r.Headers, r.Body)
	}
	return b.String()
}

// SentText returns a line with the actor, the source and the changes of a new event. It is safe to
// print.
func SentText(s *Sent) string {
	_, name, named := strings.Cut(s.Actor, ":")
	if !named {
		name = s.Actor
	}
	text := "sent by " + SafeText(name)
	if s.MadeFrom != nil {
		text += ", made from " + SafeText(*s.MadeFrom)
	}
	if len(s.Changes) > 0 {
		text += ", changed: " + SafeTextMax(strings.Join(s.Changes, ", "), 1000)
	}
	if s.SignedBy != nil {
		text += ", " + SignedText(*s.SignedBy)
	}
	return text
}

// SignedText says which secret signed a new event: a secret of the alias, of a client, or one that a user
// entered for this event.
func SignedText(by string) string {
	if by == relay.SignedByClient {
		return "signed with a secret that Relay does not store"
	}
	return "signed by " + SafeText(by)
}

// MarkText returns the marks that users set on an event; "" = none.
func MarkText(e *Summary) string {
	var words []string
	if e.Pinned {
		words = append(words, "pinned")
	}
	if e.Label != nil {
		words = append(words, "label "+SafeText(*e.Label))
	}
	if e.Note != nil {
		words = append(words, "note: "+SafeText(*e.Note))
	}
	return strings.Join(words, ", ")
}

func writeMessage(b *strings.Builder, mark string, headers []Header, body *Body) {
	for _, h := range headers {
		b.WriteString(mark + SafeText(h.Name()) + ": " + SafeText(h.Value()) + "\n")
	}
	if body == nil || body.Size == 0 {
		return
	}
	b.WriteString("\n")
	writeBody(b, headers, body)
}

// writeBody writes a body for reading: decoded, and forms and multipart bodies as their fields. A note at its
// end names unreadable and omitted parts.
func writeBody(b *strings.Builder, headers []Header, body *Body) {
	r, err := body.Read(headers)
	if err != nil || r.Form == reading.Binary {
		fmt.Fprintf(b, "(%d bytes of binary data, sha256 %s)\n", body.Size, SafeText(body.SHA256))
		return
	}
	text := r.Text
	if r.Form == reading.URLEncoded || r.Form == reading.Multipart {
		text, _ = r.Plain()
	}
	for line := range bytes.Lines(text) {
		b.WriteString(SafeText(strings.ReplaceAll(string(bytes.TrimRight(line, "\r\n")), "\t", "    ")) + "\n")
	}
	if how := r.How(); how != "" {
		fmt.Fprintf(b, "(%s)\n", how)
	}
	for _, f := range r.Faults {
		fmt.Fprintf(b, "(%s)\n", SafeText(f.Text))
	}
	switch {
	case body.Truncated:
		p, _ := body.Bytes()
		fmt.Fprintf(b, "(%d of %d bytes)\n", len(p), body.Size)
	case r.Cut:
		fmt.Fprintf(b, "(only the first %d unpacked bytes)\n", len(r.Text))
	}
}

// SafeJSON returns the same valid JSON in a form that is safe to print: it writes \uXXXX for every
// character that SafeText would change. Such characters occur within strings only.
func SafeJSON(p []byte) string {
	text := string(p)
	if IsSafeText(text) {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		switch {
		case r < 0x7f: // valid JSON has no unescaped control characters within strings
			b.WriteByte(byte(r))
		case r == utf8.RuneError || IsSafeText(text[i:i+utf8.RuneLen(r)]):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			writeHex(&b, 'u', high, 4)
			writeHex(&b, 'u', low, 4)
		default:
			writeHex(&b, 'u', r, 4)
		}
	}
	return b.String()
}
