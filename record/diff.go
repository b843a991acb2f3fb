package record

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"relay"
	reading "relay/record/body"
	"relay/wire"
)

// Parts of an event that can be compared.
const (
	DiffRequest  = "request"
	DiffResponse = "response"
)

// Limits of a comparison. The result says what is left out.
const (
	diffBody    = 2 << 20 // largest number of bytes of each body that are compared; it bounds the stored and the decoded bytes
	diffChanges = 500     // largest number of listed changes
	diffBytes   = 1 << 20 // bytes of the listed changes of JSON; the last change may exceed this number
)

// Diff holds the changes between two responses or two requests.
type Diff struct {
	Left      string         `json:"left" doc:"such as evt_…/1, or evt_… for a request"`
	Right     string         `json:"right"`
	Part      string         `json:"part" enum:"request,response"`
	Headline  string         `json:"headline" doc:"all of it in one line"`
	Status    *StatusChange  `json:"status" doc:"null for requests"`
	Request   *LineChange    `json:"request" doc:"method and path; null for responses, and where both are the same"`
	Headers   []HeaderChange `json:"headers" nullable:"false" doc:"changed lines only"`
	Body      BodyDiff       `json:"body"`
	LatencyMs *float64       `json:"latencyMs" doc:"how much later the right response came; null where not known"`

	right []byte // right body, if both bodies are JSON
}

// StatusChange holds the statuses of two responses, which may be equal.
type StatusChange struct {
	Left  int `json:"left"`
	Right int `json:"right"`
}

// LineChange holds the method and path of two requests if they differ.
type LineChange struct {
	Left  string `json:"left"`
	Right string `json:"right"`
}

// HeaderChange is a header line that differs.
type HeaderChange struct {
	Op    string  `json:"op" enum:"add,remove,replace"`
	Name  string  `json:"name"`
	Left  *string `json:"left"`
	Right *string `json:"right"`
	Noise bool    `json:"noise" doc:"differs between any two messages of most senders and servers, or follows from the body"`
}

// Kinds of a compared body.
const (
	DiffJSON   = "json"
	DiffText   = "text"
	DiffBinary = "binary"
)

// BodyDiff holds the changes between two bodies.
type BodyDiff struct {
	Kind    string       `json:"kind" enum:"json,text,binary"`
	Same    bool         `json:"same" doc:"not one byte differs"`
	Note    string       `json:"note" doc:"what was not compared or not listed; empty when nothing"`
	Total   int          `json:"total" doc:"number of changes, also of those that are not listed"`
	Changes []BodyChange `json:"changes" nullable:"false" doc:"of JSON: a patch (RFC 6902) that makes the right body of the left one; of text: lines"`
}

// BodyChange is one change of a body. For JSON it is an operation of RFC 6902 with the old value added.
// For text it is a line: the op same is an unchanged line near a change, and skip replaces unchanged
// lines that are left out.
type BodyChange struct {
	Op    string          `json:"op" enum:"add,remove,replace,move,same,skip"`
	Path  *string         `json:"path,omitempty" doc:"JSON pointer"`
	From  *string         `json:"from,omitempty" doc:"JSON pointer"`
	Field string          `json:"field,omitempty" doc:"the path for people, such as data.items[0].id; of a removed or moved element as it was in the left body"`
	Value json.RawMessage `json:"value,omitempty"`
	Old   json.RawMessage `json:"old,omitempty"`
	Noise bool            `json:"noise,omitempty" doc:"the id of the delivery, which always differs"`

	LeftLine  int    `json:"leftLine,omitempty" doc:"from 1"`
	RightLine int    `json:"rightLine,omitempty" doc:"from 1"`
	Text      string `json:"text,omitempty"`
	Marks     []Mark `json:"marks,omitempty" doc:"the text in pieces, where it differs from the line that it replaces or is replaced by only in some of them"`
}

// Mark is a piece of a changed line.
type Mark struct {
	Text    string `json:"text"`
	Changed bool   `json:"changed"`
}

// EventSource reads events, attempts and their bodies; package store implements it.
type EventSource interface {
	BodySource
	Request(ctx context.Context, who relay.Actor, id relay.ID, maxBody int) (*relay.Event, error)
	Attempts(ctx context.Context, who relay.Actor, id relay.ID, page relay.AttemptPage) ([]relay.Attempt, error)
}

// Compared names one side of a comparison: the request of an event or, if N is set, the response of its
// attempt N.
type Compared struct {
	Event *relay.Event // event with its request or, if N is set, with the compared attempt
	N     int          // 0 = the request, or the last attempt with a response if responses are compared
}

// ReadCompared reads the event that a reference names: an event id, or an id with the number of an
// attempt, evt_…/2. The error is relay.ErrNotFound if there is no such event that the actor may see.
func ReadCompared(ctx context.Context, from EventSource, who relay.Actor, ref string) (c Compared, err error) {
	head, number, numbered := strings.Cut(ref, "/")
	id, err := relay.ParseID(head)
	if err != nil {
		return c, err
	}
	if numbered {
		c.N, err = strconv.Atoi(number)
		if err != nil || c.N < 1 || strconv.Itoa(c.N) != number {
			return c, relay.ErrNotFound
		}
	}
	if c.Event, err = from.Request(ctx, who, id, 0); err != nil {
		return c, err
	}
	page := relay.AttemptPage{Limit: 1, Answered: true}
	if numbered {
		page = relay.AttemptPage{Before: c.N + 1, Limit: 1}
	}
	c.Event.Attempts, err = from.Attempts(ctx, who, id, page)
	return c, err
}

// ReadDiff reads the bodies of the requests of two events, or of the responses of two attempts, and compares
// the messages. If part is "", it is the result of DiffPart. If N of a side is 0, the last attempt with a
// response is compared. The error is relay.ErrNotFound if there is no such attempt or response.
func ReadDiff(ctx context.Context, from BodySource, left, right Compared, part string) (*Diff, error) {
	if part == "" {
		part = DiffPart(left, right)
	}
	was, err := newDiffSide(left, part)
	if err != nil {
		return nil, err
	}
	is, err := newDiffSide(right, part)
	if err != nil {
		return nil, err
	}
	d := &Diff{Left: was.name, Right: is.name, Part: part}
	size := 0
	for _, side := range []*diffSide{was, is} {
		if err := side.read(ctx, from); err != nil {
			return nil, err
		}
		if size += len(side.stored); len(side.label.Codings) > 0 { // a decoded body may be longer than the stored one
			size += reading.Large
		}
	}
	// Two hostile bodies can take some hundred MiB while they are compared, so large comparisons take turns.
	done, err := reading.Turn(ctx, size)
	if err != nil {
		return nil, err
	}
	defer done()
	d.Body = compareBodies(was, is)
	d.right = is.json
	if was.body.Size == is.body.Size && was.body.SHA256 == is.body.SHA256 {
		d.Body = BodyDiff{Kind: d.Body.Kind, Same: true, Changes: []BodyChange{}}
	}
	d.finish(was, is)
	return d, nil
}

// DiffPart returns the default part to compare: responses if an attempt is named, else requests.
func DiffPart(left, right Compared) string {
	if left.N+right.N > 0 {
		return DiffResponse
	}
	return DiffRequest
}

// diffSide is one of the two compared messages.
type diffSide struct {
	name     string
	id       relay.ID
	n        int // number of the attempt; 0 = the request
	line     string
	status   int
	head     []byte
	trailers []byte // chunk lines and trailers as received
	interim  [][]byte
	body     *relay.Body
	latency  *float64
	delivery string // delivery id, if the message is a request

	label  reading.Label
	stored []byte // the stored body, at most diffBody bytes
	json   []byte // body as JSON; nil = the body is not JSON
}

func newDiffSide(c Compared, part string) (*diffSide, error) {
	e, n := c.Event, c.N
	if part == DiffRequest {
		s := Summarise(e, relay.Site{}, e.ReceivedAt)
		return &diffSide{
			name: e.ID.String(), id: e.ID, line: s.Method + " " + validText(e.Target), head: e.Request.Head, body: &e.Request.Body,
			delivery: e.Provider.DeliveryID, trailers: e.Request.Lines,
		}, nil
	}
	for i := len(e.Attempts) - 1; i >= 0; i-- {
		a := &e.Attempts[i]
		if !a.HasResponse || n != 0 && a.N != n {
			continue
		}
		out := &diffSide{
			name: fmt.Sprintf("%s/%d", e.ID, a.N), id: e.ID, n: a.N, status: a.Status, head: a.Response.Head, body: &a.Response.Body,
			trailers: a.Response.Lines, interim: a.Interim,
		}
		if a.HasTiming {
			out.latency = new(millis(a.Timing.Latency()))
		}
		return out, nil
	}
	switch {
	case n == 0:
		return nil, relay.Errorf(relay.CodeNotFound, "no attempt of %s has a response", e.ID)
	case slices.ContainsFunc(e.Attempts, func(a relay.Attempt) bool { return a.N == n }):
		return nil, NoResponse(e.ID, n)
	}
	return nil, relay.ErrNotFound
}

// NoResponse returns the error for an attempt without a response. It says that the attempt exists, so it is
// only for an actor who may see the attempt.
func NoResponse(id relay.ID, n int) *relay.Error {
	return relay.Errorf(relay.CodeNotFound, "attempt %d of %s has no response", n, id)
}

// read reads the stored body, at most diffBody bytes.
func (s *diffSide) read(ctx context.Context, from BodySource) error {
	s.label = reading.LabelOf(s.head)
	body, err := OpenBody(ctx, from, s.id, s.n, s.body)
	if err == nil {
		s.stored, err = io.ReadAll(io.LimitReader(body, diffBody))
	}
	return err
}

// finish compares everything but the bodies, and adds the headline.
func (d *Diff) finish(was, is *diffSide) {
	var parts []string
	if d.Part == DiffResponse {
		d.Status = &StatusChange{was.status, is.status}
		if was.latency != nil && is.latency != nil {
			d.LatencyMs = new(math.Round((*is.latency-*was.latency)*1000) / 1000)
		}
	}
	switch {
	case d.Status != nil && was.status == is.status:
		parts = append(parts, strconv.Itoa(was.status)+" in both")
	case d.Status != nil:
		parts = append(parts, fmt.Sprintf("%d → %d", was.status, is.status))
	case was.line != is.line:
		d.Request = &LineChange{was.line, is.line}
		parts = append(parts, "different method or path")
	default:
		parts = append(parts, "same method and path")
	}
	d.Headers = headerChanges(headersOf(wire.Fields(was.head)), headersOf(wire.Fields(is.head)), d.Part == DiffRequest)
	changed := 0
	for _, h := range d.Headers {
		if !h.Noise {
			changed++
		}
	}
	if changed > 0 {
		parts = append(parts, Count(changed, "header line", "header lines")+" changed")
	}
	parts = append(parts, d.unlisted(was, is)...)
	parts = append(parts, d.Body.headline())
	if d.LatencyMs != nil {
		switch ms := *d.LatencyMs; {
		case math.Abs(ms) < 0.05:
			parts = append(parts, "same latency")
		case ms > 0:
			parts = append(parts, MillisText(ms)+" slower")
		default:
			parts = append(parts, MillisText(-ms)+" faster")
		}
	}
	d.Headline = strings.Join(parts, ", ")
}

// unlisted lists the differences that only the headline shows: version, reason, interim responses,
// trailers.
func (d *Diff) unlisted(was, is *diffSide) (names []string) {
	differ := func(name string, yes bool) {
		if yes {
			names = append(names, "different "+name)
		}
	}
	a, _, c := wire.StartLine(was.head)
	e, _, g := wire.StartLine(is.head)
	if d.Part == DiffRequest {
		differ("HTTP version", !bytes.Equal(c, g))
	} else {
		differ("HTTP version", !bytes.Equal(a, e))
		differ("reason phrase", was.status == is.status && !bytes.Equal(c, g)) // compared only for equal statuses, because the phrases of different statuses differ anyway
	}
	differ("interim responses", !slices.EqualFunc(was.interim, is.interim, bytes.Equal))
	trailers := headerChanges(headersOf(wire.Trailers(was.trailers)), headersOf(wire.Trailers(is.trailers)), d.Part == DiffRequest)
	differ("trailers", slices.ContainsFunc(trailers, func(h HeaderChange) bool { return !h.Noise }))
	return names
}

// Count returns a number with its noun, such as "1 event" or "2 events".
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

func (b *BodyDiff) headline() string {
	switch {
	case b.Same:
		return "same body"
	case b.Kind == DiffJSON && b.Total == 0:
		return "same JSON values, different formatting"
	case b.Kind == DiffJSON:
		return Count(b.Total, "field", "fields") + " changed"
	case b.Kind == DiffText && b.Total > 0:
		return Count(b.Total, "line", "lines") + " changed"
	case b.Kind == DiffText && b.Note == "":
		return "same text, different bytes"
	}
	return "different body"
}

// MillisText formats milliseconds for display.
func MillisText(ms float64) string {
	switch {
	case ms > 0 && ms < .05:
		return "<0.1 ms"
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 10_000:
		return fmt.Sprintf("%.0f ms", ms)
	default:
		return fmt.Sprintf("%.1f s", ms/1000)
	}
}

func compareBodies(was, is *diffSide) BodyDiff {
	left := reading.Read(was.label, was.stored, int64(len(was.stored)) < was.body.Size, diffBody)
	right := reading.Read(is.label, is.stored, int64(len(is.stored)) < is.body.Size, diffBody)
	var d BodyDiff
	var notes []string
	for _, r := range []*reading.Reading{left, right} {
		if fault := r.FaultText(); fault != "" {
			notes = append(notes, fault)
			break
		}
	}
	a, b := jsonText(left), jsonText(right)
	is.json = b
	switch {
	case a != nil && b != nil && (left.Form == right.Form):
		d = compareJSON(a, b)
		for i := range d.Changes { // a changed delivery id is noise, because two deliveries by one sender always have different ids
			c := &d.Changes[i]
			c.Noise = c.Op == "replace" && was.delivery != "" && jsonLabel(c.Old) == was.delivery && is.delivery != "" && jsonLabel(c.Value) == is.delivery
		}
	case left.Form != reading.Binary && right.Form != reading.Binary:
		plain := func(r *reading.Reading) string { // if both bodies are forms, or both multipart, their fields are compared
			text := r.Text
			if left.Form == right.Form && (r.Form == reading.URLEncoded || r.Form == reading.Multipart) {
				text, _ = r.Plain()
			}
			return validText(text)
		}
		d = compareText([]byte(plain(left)), []byte(plain(right)))
		if left.Cut || right.Cut {
			notes = append(notes, fmt.Sprintf("only the first %d bytes were compared", max(len(left.Text), len(right.Text))))
		} else if d.Total == 0 && d.Note == "" {
			what := "the text is the same, but line ends or compression differ"
			if left.Form == reading.URLEncoded && right.Form == reading.URLEncoded {
				what = "the fields are the same, but they are spelled in another way"
			}
			notes = append(notes, what)
		}
	default:
		d = BodyDiff{Kind: DiffBinary, Total: 1}
		notes = append(notes, fmt.Sprintf("binary bodies are not compared: %d and %d bytes", was.body.Size, is.body.Size))
	}
	if d.Kind != DiffBinary && !(utf8.Valid(left.Text) && utf8.Valid(right.Text)) {
		notes = append(notes, `bytes that are not UTF-8 are written as \xNN`)
	}
	if d.Note != "" {
		notes = append(notes, d.Note)
	}
	if d.Note = strings.Join(notes, "; "); d.Changes == nil {
		d.Changes = []BodyChange{}
	}
	return d
}

// jsonText returns a body as one JSON text; JSON lines become an array. It returns nil if the body is not JSON,
// or if only its beginning was read. Invalid UTF-8 bytes in strings become \xNN.
func jsonText(r *reading.Reading) []byte {
	text := r.Text
	switch {
	case r.Cut:
		return nil
	case r.Form == reading.JSONLines:
		text = []byte{'['}
		for i, d := range r.Documents {
			if i > 0 {
				text = append(text, ',')
			}
			text = append(text, r.Text[d.Start:d.End]...)
		}
		text = append(text, ']')
	case r.Form != reading.JSON:
		return nil
	}
	if !utf8.Valid(text) {
		text = []byte(replaceInvalid(text, `\\x`))
	}
	if !json.Valid(text) {
		return nil
	}
	return text
}

// validText returns text in which invalid UTF-8 bytes are written as \xNN, and the unpaired surrogates that
// jsonString keeps are written as JSON escapes. The comparison is sent as JSON, in which neither is valid.
func validText[T string | []byte](p T) string {
	if s := string(p); utf8.ValidString(s) {
		return s
	}
	return replaceInvalid([]byte(p), `\x`)
}

func replaceInvalid(p []byte, mark string) string {
	var b strings.Builder
	for len(p) > 0 {
		r, size := utf8.DecodeRune(p)
		switch {
		case r != utf8.RuneError || size > 1:
			b.Write(p[:size])
		case len(p) > 2 && p[0] == 0xed && p[1] >= 0xa0 && p[1]&0xc0 == 0x80 && p[2]&0xc0 == 0x80:
			size = 3
			writeHex(&b, 'u', 0xd000|rune(p[1]&0x3f)<<6|rune(p[2]&0x3f), 4)
		default:
			b.WriteString(mark)
			b.WriteByte("0123456789abcdef"[p[0]>>4])
			b.WriteByte("0123456789abcdef"[p[0]&15])
		}
		p = p[size:]
	}
	return b.String()
}
