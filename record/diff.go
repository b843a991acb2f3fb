package record

import (
	"bytes"
	"cmp"
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
	"relay/wire"
)

// Parts of an event that can be compared.
const (
	DiffRequest  = "request"
	DiffResponse = "response"
)

// Bounds of a comparison. What is left out is said in the result.
const (
	diffBody    = 2 << 20 // bytes of each body, stored and decoded
	diffChanges = 500     // changes that are listed
	diffBytes   = 1 << 20 // bytes of the listed changes of JSON, and one change more
	diffSmall   = 256 << 10
)

// comparing has a place for each comparison of large bodies under way: of bodies that are
// made for that, one uses some hundred MiB. Bodies of at most diffSmall bytes together wait
// for none.
var comparing = make(chan struct{}, 2)

// Diff says what changed between two responses or two requests.
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
}

// StatusChange has the statuses of two responses, which may be equal.
type StatusChange struct {
	Left  int `json:"left"`
	Right int `json:"right"`
}

// LineChange has two lines that differ.
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

// BodyDiff says what changed between two bodies.
type BodyDiff struct {
	Kind    string       `json:"kind" enum:"json,text,binary"`
	Same    bool         `json:"same" doc:"not one byte differs"`
	Note    string       `json:"note" doc:"what was not compared or not listed; empty when nothing"`
	Total   int          `json:"total" doc:"number of changes, also of those that are not listed"`
	Changes []BodyChange `json:"changes" nullable:"false" doc:"of JSON: a patch (RFC 6902) that makes the right body of the left one; of text: lines"`
}

// BodyChange is one change of a body. Of JSON it is an operation of RFC 6902 with the old
// value besides; of text it is a line, where the op same is an unchanged line around a
// change and skip stands for unchanged lines that are left out.
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

// EventSource reads events, attempts and their bodies; the store satisfies it.
type EventSource interface {
	BodySource
	Request(ctx context.Context, who relay.Actor, id relay.ID, maxBody int) (*relay.Event, error)
	Attempts(ctx context.Context, who relay.Actor, id relay.ID, page relay.AttemptPage) ([]relay.Attempt, error)
}

// Compared is an event whose request is compared, or whose response to attempt N.
type Compared struct {
	Event *relay.Event // with the attempt that is compared, where there is one
	N     int          // 0 = none is named
}

// ReadCompared reads what a reference names: an event id, or one with the number of an
// attempt, evt_…/2. The error is relay.ErrNotFound where there is no such event that the
// actor may see.
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

// ReadDiff reads the bodies of the requests of two events, or of the responses of two
// attempts, and compares them; without a part, those of DiffPart. Without a number, the
// response of an event is that of its last attempt that got one. The error is
// relay.ErrNotFound where there is no such attempt or response.
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
	if err := cmp.Or(was.read(ctx, from), is.read(ctx, from)); err != nil {
		return nil, err
	}
	if len(was.plain)+len(is.plain) > diffSmall {
		select {
		case comparing <- struct{}{}:
			defer func() { <-comparing }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	d.Body = compareBodies(was, is)
	if was.body.Size == is.body.Size && was.body.SHA256 == is.body.SHA256 {
		d.Body = BodyDiff{Kind: d.Body.Kind, Same: true, Changes: []BodyChange{}}
	}
	d.finish(was, is)
	return d, nil
}

// DiffPart is the part that is compared where none is named: responses where an attempt is
// named, else requests.
func DiffPart(left, right Compared) string {
	if left.N+right.N > 0 {
		return DiffResponse
	}
	return DiffRequest
}

// diffSide is one of the two messages that are compared.
type diffSide struct {
	name     string
	id       relay.ID
	n        int // of the attempt; 0 = the request
	line     string
	status   int
	head     []byte
	trailers []byte // lines as they were received
	interim  [][]byte
	body     *relay.Body
	latency  *float64
	delivery string // id of the delivery, of a request

	plain   []byte // decoded body, at most diffBody bytes
	cut     bool   // plain is not all of it
	problem string
}

func newDiffSide(c Compared, part string) (*diffSide, error) {
	e, n := c.Event, c.N
	if part == DiffRequest {
		s := Summarise(e, relay.Site{}, e.ReceivedAt)
		return &diffSide{
			name: e.ID.String(), id: e.ID, line: s.Method + " " + s.Path, head: e.Request.Head, body: &e.Request.Body,
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

// NoResponse says that an attempt which the actor may see got no response.
func NoResponse(id relay.ID, n int) *relay.Error {
	return relay.Errorf(relay.CodeNotFound, "attempt %d of %s has no response", n, id)
}

// read reads the body, as much of it as is compared, and removes its content coding.
func (s *diffSide) read(ctx context.Context, from BodySource) error {
	body, err := OpenBody(ctx, from, s.id, s.n, s.body)
	if err != nil {
		return err
	}
	stored, err := io.ReadAll(io.LimitReader(body, diffBody))
	if err != nil {
		return err
	}
	s.cut = int64(len(stored)) < s.body.Size
	r, decoded := DecodeContent(s.head, bytes.NewReader(stored))
	if !decoded {
		if coding := ContentCoding(s.head); coding != "" {
			s.problem = "a body is coded as " + SafeTextMax(coding, 40) + " and was compared as it is"
		}
		s.plain = stored
		return nil
	}
	plain, err := io.ReadAll(io.LimitReader(r, diffBody+1))
	if err != nil && !s.cut {
		s.problem = "the compressed data of a body is damaged"
	}
	if s.plain = plain; len(plain) > diffBody {
		s.plain, s.cut = plain[:diffBody], true
	}
	return nil
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

// unlisted names what differs and is in no list of changes: it stands in the headline alone.
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
		differ("reason phrase", was.status == is.status && !bytes.Equal(c, g)) // another status has another one
	}
	differ("interim responses", !slices.EqualFunc(was.interim, is.interim, bytes.Equal))
	trailers := headerChanges(headersOf(wire.Trailers(was.trailers)), headersOf(wire.Trailers(is.trailers)), d.Part == DiffRequest)
	differ("trailers", slices.ContainsFunc(trailers, func(h HeaderChange) bool { return !h.Noise }))
	return names
}

// Count returns a number with its noun.
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

// MillisText formats milliseconds for people.
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
	var d BodyDiff
	var notes []string
	for _, s := range []*diffSide{was, is} {
		if s.problem != "" {
			notes = append(notes, s.problem)
			break
		}
	}
	switch {
	case !was.cut && !is.cut && looksLikeJSON(was) && looksLikeJSON(is):
		d = compareJSON(was.plain, is.plain)
		for i := range d.Changes { // the ids of two deliveries of one sender always differ
			c := &d.Changes[i]
			c.Noise = c.Op == "replace" && was.delivery != "" && jsonLabel(c.Old) == was.delivery && is.delivery != "" && jsonLabel(c.Value) == is.delivery
		}
	case IsReadable(was.plain, was.cut) && IsReadable(is.plain, is.cut):
		d = compareText(was.plain, is.plain)
		if was.cut || is.cut {
			notes = append(notes, fmt.Sprintf("only the first %d bytes were compared", max(len(was.plain), len(is.plain))))
		} else if d.Total == 0 && d.Note == "" {
			notes = append(notes, "the text is the same, but line ends or compression differ")
		}
	default:
		d = BodyDiff{Kind: DiffBinary, Total: 1}
		notes = append(notes, fmt.Sprintf("binary bodies are not compared: %d and %d bytes", was.body.Size, is.body.Size))
	}
	if d.Note != "" {
		notes = append(notes, d.Note)
	}
	if d.Note = strings.Join(notes, "; "); d.Changes == nil {
		d.Changes = []BodyChange{}
	}
	return d
}

// looksLikeJSON reports whether a whole body is JSON, by its content.
func looksLikeJSON(s *diffSide) bool {
	kind, _ := ContentType(s.head)
	start := bytes.TrimLeft(s.plain[:min(len(s.plain), 1024)], " \t\r\n")
	return len(start) > 0 && (kind == "application/json" || strings.HasSuffix(kind, "+json") || start[0] == '{' || start[0] == '[') && json.Valid(s.plain)
}

// IsReadable reports whether bytes are text: UTF-8 without NUL. Of a body that was cut, the
// last character may be incomplete.
func IsReadable(p []byte, cut bool) bool {
	if cut {
		p = wholeRunes(p)
	}
	return utf8.Valid(p) && bytes.IndexByte(p, 0) < 0
}
