package record

import (
	"bytes"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

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
	status := 0
	if s.Status != nil {
		status = *s.Status
	}
	provider, eventType := "", ""
	if s.Provider != nil {
		provider = s.Provider.Name
		if s.Provider.EventType != nil {
			eventType = *s.Provider.EventType
		}
	}
	label := ""
	if s.Label != nil {
		label = *s.Label
	}
	path := s.exactPath()
	switch {
	case f.Alias != "" && f.Alias != s.Alias,
		f.Method != "" && !strings.EqualFold(f.Method, s.Method),
		!matchStatus(f.Status, s.State, status),
		!strings.HasPrefix(path, f.Path),
		f.State != "" && f.State != s.State,
		f.Provider != "" && f.Provider != provider,
		!matchType(f.Type, eventType),
		f.Replayed != nil && *f.Replayed != (s.AttemptCount > 1),
		f.Pinned != nil && *f.Pinned != s.Pinned,
		!matchType(f.Label, label):
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

// exactPath returns the path with the bytes that were received.
func (s *Summary) exactPath() string {
	if s.PathBase64 != "" {
		if p, err := (&Body{Encoding: EncodingBase64, Data: s.PathBase64}).Bytes(); err == nil {
			return string(p)
		}
	}
	return s.Path
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
	longest int
	buf     []byte // of Read
	plain   scan   // what was read, letter case as it is and folded
	escaped scan   // the same with the escapes of JSON resolved
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
		s.longest = max(s.longest, len(n.text))
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
	s.plain.reset()
	s.plain.add(s, p)
	return s.Found()
}

// searchPiece is how many bytes of a body are searched at once.
const searchPiece = 64 << 10

// Read searches a body to its end, also with the escapes of JSON strings resolved, and
// returns Found. An error of r ends the search.
func (s *TextSearch) Read(r io.Reader) (bool, error) {
	s.plain.reset()
	s.escaped.reset()
	var open unescaper
	if s.buf == nil {
		s.buf = make([]byte, searchPiece)
	}
	buf := s.buf
	for !s.Found() {
		n, err := io.ReadFull(r, buf)
		s.readPiece(buf[:n], &open)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			break
		} else if err != nil {
			return s.Found(), err
		}
	}
	return s.Found(), nil
}

// Search searches a body that is in memory like Read.
func (s *TextSearch) Search(p []byte) bool {
	s.plain.reset()
	s.escaped.reset()
	var open unescaper
	for len(p) > 0 && !s.Found() {
		n := min(len(p), searchPiece)
		s.readPiece(p[:n], &open)
		p = p[n:]
	}
	return s.Found()
}

// readPiece searches the next piece of a body. The resolved form is kept from the first
// backslash on: before that, both forms are equal.
func (s *TextSearch) readPiece(p []byte, open *unescaper) {
	if !open.used && bytes.IndexByte(p, '\\') >= 0 {
		open.used = true
		s.escaped.copyTail(&s.plain)
	}
	s.plain.add(s, p)
	if open.used && !s.Found() {
		s.escaped.add(s, open.resolve(p))
	}
}

// scan searches a stream of pieces. It keeps the end of what it has searched, because a
// text may begin in one piece and end in the next.
type scan struct {
	exact, folded []byte
	cut           []byte // start of a character whose rest is in the next piece
}

func (c *scan) reset() { c.exact, c.folded, c.cut = c.exact[:0], c.folded[:0], c.cut[:0] }

func (c *scan) copyTail(from *scan) {
	c.exact = append(c.exact[:0], from.exact...)
	c.folded = append(c.folded[:0], from.folded...)
	c.cut = append(c.cut[:0], from.cut...)
}

func (c *scan) add(s *TextSearch, p []byte) {
	needsExact, needsFolded := false, false
	for i := range s.needles {
		if n := &s.needles[i]; !n.found {
			needsExact, needsFolded = needsExact || n.exact, needsFolded || !n.exact
		}
	}
	if needsExact {
		c.exact = append(c.exact, p...)
		s.mark(c.exact, true)
		c.exact = keepTail(c.exact, s.longest-1)
	}
	if needsFolded {
		whole := p
		if len(c.cut) > 0 {
			whole = append(c.cut, p...)
		}
		end := len(wholeRunes(whole))
		c.folded = fold(c.folded, whole[:end])
		s.mark(c.folded, false)
		c.folded = keepTail(c.folded, s.longest-1)
		c.cut = append(c.cut[:0], whole[end:]...)
	}
}

// mark notes which texts occur in p.
func (s *TextSearch) mark(p []byte, exact bool) {
	for i := range s.needles {
		if n := &s.needles[i]; !n.found && n.exact == exact && bytes.Contains(p, n.text) {
			n.found = true
			s.missing--
		}
	}
}

func keepTail(p []byte, n int) []byte {
	if len(p) <= n {
		return p
	}
	return append(p[:0], p[len(p)-n:]...)
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
		if r == utf8.RuneError && size == 1 {
			dst = append(dst, p[i])
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
		if len(p) < longestEscape && !wholeEscape(p) {
			u.rest = slices.Clone(p)
			break
		}
		n := 0
		u.out, n = appendEscape(u.out, p)
		p = p[n:]
	}
	return u.out
}

// wholeEscape reports whether what follows p cannot change the meaning of the escape at
// its start.
func wholeEscape(p []byte) bool {
	if len(p) < 2 || p[1] == 'u' && len(p) < 6 {
		return false
	}
	return p[1] != 'u' || !isSurrogate(hexRune(p[2:6]))
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
