package record

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/time/rate"

	"relay"
)

// Verdict is what a filter says about an event.
type Verdict int

// The verdicts. Unknown means that the summary of an event does not decide, because the
// filter looks into headers or bodies; the store's method Matches reads these.
const (
	Miss Verdict = iota
	Hit
	Unknown
)

// MatchSummary reports whether the filter selects an event of which only the summary is
// known, such as an item of the live feed. Cursor and Limit do not count.
func MatchSummary(f *relay.Filter, s *Summary) Verdict {
	var sender Provider
	if s.Provider != nil {
		sender = *s.Provider
	}
	path := s.Path
	if s.PathBase64 != "" { // the bytes that were received
		if p, err := base64.StdEncoding.DecodeString(s.PathBase64); err == nil {
			path = string(p)
		}
	}
	switch {
	case f.Alias != "" && f.Alias != s.Alias,
		f.Method != "" && !strings.EqualFold(f.Method, s.Method),
		!matchStatus(f.Status, s.State, valueOf(s.Status)),
		!strings.HasPrefix(path, f.Path),
		f.State != "" && f.State != s.State,
		f.Provider != "" && f.Provider != sender.Name,
		!matchType(f.Type, valueOf(sender.EventType)),
		f.Replayed != nil && *f.Replayed != (s.AttemptCount > 1),
		f.Pinned != nil && *f.Pinned != s.Pinned,
		!matchType(f.Label, valueOf(s.Label)):
		return Miss
	}
	if !f.Since.IsZero() || !f.Until.IsZero() {
		// The id carries the first arrival; receivedAt is that of the last attempt.
		id, err := relay.ParseID(s.ID)
		if err != nil || id.Time().Before(f.Since) || !f.Until.IsZero() && !id.Time().Before(f.Until) {
			return Miss
		}
	}
	search := NewTextSearch(f.Texts)
	if len(f.JSON) > 0 || !search.Look([]byte(path)) {
		return Unknown
	}
	return Hit
}

// liveLookups is how many events a second one live list reads to compare their headers and
// bodies with its filter.
const liveLookups = 20

// LiveMatcher tells which items of the live feed a filter selects. It is used by one
// goroutine.
type LiveMatcher struct {
	Filter relay.Filter
	// Look tells whether the filter selects an event of which the summary is not enough:
	// Matches of the store.
	Look func(ctx context.Context, id relay.ID) (bool, error)

	lookups *rate.Limiter
	found   string // id of the event that Look selected last, which changes a moment later
}

// Match returns Unknown where the list has to be read again to tell, because too many events
// would have to be read one by one.
func (m *LiveMatcher) Match(ctx context.Context, s *Summary) Verdict {
	verdict := MatchSummary(&m.Filter, s)
	if verdict != Unknown {
		return verdict
	}
	if s.ID == m.found {
		return Hit
	}
	if m.lookups == nil {
		m.lookups = rate.NewLimiter(liveLookups, liveLookups)
	}
	id, err := relay.ParseID(s.ID)
	if err != nil || !m.lookups.Allow() {
		return Unknown
	}
	hit, err := m.Look(ctx, id)
	switch {
	case err != nil:
		return Unknown
	case !hit:
		return Miss
	}
	m.found = s.ID
	return Hit
}

func matchStatus(want, state string, status int) bool {
	switch {
	case want == "":
		return true
	case want == relay.StatusError:
		return relay.IsError(state, status)
	}
	have := strconv.Itoa(status)
	return status != 0 && (have == want || want[1:] == "xx" && have[0] == want[0])
}

func matchType(want, have string) bool {
	if prefix, wild := strings.CutSuffix(want, "*"); wild {
		return have != "" && strings.HasPrefix(have, prefix)
	}
	return want == "" || want == have
}

// TextSearch looks for the texts of a filter in one event: first with Look in what is in
// memory, then with Read in bodies. It remembers what was found; Reset begins with the
// next event. It is not safe for concurrent use.
type TextSearch struct {
	needles []needle
	missing int
	overlap int    // bytes at the end of a piece in which a text may begin
	folded  []byte // of Look
	window  []byte // of Read: the end of what was searched, and the next piece
	escaped []byte // the same with the escapes of JSON resolved
}

type needle struct {
	text  []byte
	exact bool
	found bool
}

// NewTextSearch prepares a search for all of the texts.
func NewTextSearch(texts []relay.TextFilter) *TextSearch {
	s := &TextSearch{needles: make([]needle, len(texts)), missing: len(texts)}
	for i, t := range texts {
		n := needle{text: []byte(t.Text), exact: t.Exact}
		if !t.Exact {
			n.text = fold(nil, n.text)
		}
		s.needles[i] = n
		// A byte of a folded text stands for three bytes at most, such as those of the sign
		// for Kelvin, and a character may be cut.
		s.overlap = max(s.overlap, 3*len(n.text)+utf8.UTFMax)
	}
	return s
}

// Reset forgets what was found.
func (s *TextSearch) Reset() {
	s.missing = len(s.needles)
	for i := range s.needles {
		s.needles[i].found = false
	}
}

// Found reports whether every text was found.
func (s *TextSearch) Found() bool { return s.missing == 0 }

// Look searches a piece that is whole, and returns Found.
func (s *TextSearch) Look(p []byte) bool {
	s.folded = s.folded[:0]
	for i := range s.needles {
		n, in := &s.needles[i], p
		if n.found {
			continue
		}
		if !n.exact {
			if len(s.folded) == 0 {
				s.folded = fold(s.folded, p)
			}
			in = s.folded
		}
		if bytes.Contains(in, n.text) {
			n.found = true
			s.missing--
		}
	}
	return s.Found()
}

// searchPiece is how many bytes of a body are searched at once.
const searchPiece = 64 << 10

// Read searches a body to its end, also with the escapes of JSON strings resolved, and
// returns Found. An error of r ends the search.
func (s *TextSearch) Read(r io.Reader) (bool, error) {
	if s.window == nil {
		s.window = make([]byte, s.overlap+searchPiece)
	}
	var open unescaper
	escaped, kept := s.escaped[:0], 0 // kept: how much of the window was searched before
	for !s.Found() {
		n, err := io.ReadFull(r, s.window[kept:kept+searchPiece])
		p := s.window[kept : kept+n]
		if !open.used && bytes.IndexByte(p, '\\') >= 0 { // before it, both forms are equal
			open.used, escaped = true, append(escaped, s.window[:kept]...)
		}
		s.Look(s.window[:kept+n])
		if open.used && !s.Found() {
			escaped = append(escaped, open.resolve(p)...)
			s.Look(escaped)
			escaped = escaped[:copy(escaped, s.end(escaped))]
		}
		kept = copy(s.window, s.end(s.window[:kept+n]))
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			break
		} else if err != nil {
			return s.Found(), err
		}
	}
	s.escaped = escaped
	return s.Found(), nil
}

// end returns the end of what was searched, in which a text may begin that ends in the next
// piece.
func (s *TextSearch) end(p []byte) []byte { return p[max(0, len(p)-s.overlap):] }

// Search searches a body that is in memory like Read.
func (s *TextSearch) Search(p []byte) bool {
	found, _ := s.Read(bytes.NewReader(p))
	return found
}

// fold appends p to dst with its letters in one case.
func fold(dst, p []byte) []byte {
	dst = slices.Grow(dst, len(p))
	for i := 0; i < len(p); {
		// Most bytes are ASCII: a run of these is copied first and then changed in place.
		run := i
		for run < len(p) && p[run] < utf8.RuneSelf {
			run++
		}
		start := len(dst)
		dst = append(dst, p[i:run]...)
		for k, c := range dst[start:] {
			dst[start+k] = foldASCII(c)
		}
		if i = run; i == len(p) {
			break
		}
		r, size := utf8.DecodeRune(p[i:])
		if r == utf8.RuneError {
			dst = append(dst, p[i:i+size]...)
		} else {
			// Upper case first: some letters have two lower-case forms, as σ and ς.
			dst = utf8.AppendRune(dst, unicode.ToLower(unicode.ToUpper(r)))
		}
		i += size
	}
	return dst
}

// unescaper resolves the escapes of JSON strings in a stream of pieces. What is not an
// escape stays as it is.
type unescaper struct {
	used bool
	out  []byte
	rest []byte // start of an escape whose end is in the next piece
}

// longestEscape is the length of a pair of surrogates: \ud83d\ude00.
const longestEscape = 12

// resolve returns the resolved form of the next piece; it is valid until the next call.
func (u *unescaper) resolve(p []byte) []byte {
	if len(u.rest) > 0 {
		p = append(u.rest, p...)
	}
	u.out, u.rest = u.out[:0], nil
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\\')
		if i < 0 {
			u.out = append(u.out, p...)
			break
		}
		u.out = append(u.out, p[:i]...)
		p = p[i:]
		// What follows may change what a short escape means.
		if len(p) < 2 || p[1] == 'u' && (len(p) < 6 || len(p) < longestEscape && isSurrogate(hexRune(p[2:6]))) {
			u.rest = slices.Clone(p)
			break
		}
		n := 0
		u.out, n = appendEscape(u.out, p)
		p = p[n:]
	}
	return u.out
}

func isSurrogate(r rune) bool { return r >= 0xd800 && r < 0xe000 }

// appendEscape appends what the escape at the start of p stands for, and returns how many
// bytes it has.
func appendEscape(dst, p []byte) ([]byte, int) {
	if len(p) >= 2 {
		if i := strings.IndexByte(`"\/bfnrt`, p[1]); i >= 0 {
			return append(dst, "\"\\/\b\f\n\r\t"[i]), 2
		}
	}
	if len(p) < 6 || p[1] != 'u' {
		return append(dst, '\\'), 1
	}
	r, n := hexRune(p[2:6]), 6
	if isSurrogate(r) && len(p) >= longestEscape && p[6] == '\\' && p[7] == 'u' {
		if low := hexRune(p[8:12]); r < 0xdc00 && low >= 0xdc00 && low < 0xe000 {
			r, n = 0x10000+(r-0xd800)<<10+(low-0xdc00), longestEscape
		}
	}
	if r < 0 {
		return append(dst, '\\'), 1
	}
	return utf8.AppendRune(dst, r), n
}

// hexRune reads four hexadecimal digits; -1 if they are none.
func hexRune(p []byte) rune {
	v, err := strconv.ParseUint(string(p), 16, 16)
	if err != nil || p[0] == '+' {
		return -1
	}
	return rune(v)
}
