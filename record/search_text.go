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
	reading "relay/record/body"
)

// TextSearch searches one event for the texts of a filter: first with Look in the parts in memory, then
// with Body in bodies. It remembers the texts found so far; Reset starts with the next event. A
// TextSearch is not safe for concurrent use.
type TextSearch struct {
	needles []needle
	missing int
	overlap int    // number of bytes at the end of a piece in which a wanted text may begin that ends in the next piece
	folded  []byte // buffer of Look
	window  []byte // buffer of the method read: the end of the searched text, and the next piece
	layers  [3]layer
}

type needle struct {
	text  []byte
	exact bool
	found bool
}

// NewTextSearch returns a search for all of the texts.
func NewTextSearch(texts []relay.TextFilter) *TextSearch {
	s := &TextSearch{needles: make([]needle, len(texts)), missing: len(texts)}
	s.layers = [3]layer{{escapes: new(unescaper)}, {escapes: new(formUnescaper)}, {escapes: new(unescaper), buffer: []byte{}}}
	for i, t := range texts {
		n := needle{text: []byte(t.Text), exact: t.Exact}
		if !t.Exact {
			n.text = fold(nil, n.text)
		}
		s.needles[i] = n
		// A byte of a folded text comes from at most three bytes, as for the Kelvin sign, and a piece may
		// end within a character.
		s.overlap = max(s.overlap, 3*len(n.text)+utf8.UTFMax)
	}
	return s
}

// Reset forgets the texts found so far.
func (s *TextSearch) Reset() {
	s.missing = len(s.needles)
	for i := range s.needles {
		s.needles[i].found = false
	}
}

// Found reports whether every text was found.
func (s *TextSearch) Found() bool { return s.missing == 0 }

// Look searches one part of an event that is completely in memory, and returns Found.
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

// LookDecoded searches a target or a head, both as it was sent and with its percent codes decoded. It returns
// Found.
func (s *TextSearch) LookDecoded(p []byte) bool {
	if s.Look(p) || bytes.IndexByte(p, '%') < 0 && bytes.IndexByte(p, '+') < 0 {
		return s.Found()
	}
	if s.Look(reading.Unescape(p)) || bytes.IndexByte(p, '+') < 0 {
		return s.Found()
	}
	return s.Look(reading.Unescape(bytes.ReplaceAll(p, []byte("+"), []byte("%2B")))) // in a path, + is a plus and not a space
}

// searchPiece is the number of bytes of a body that are searched at a time.
const searchPiece = 64 << 10

// searchParts bounds the searched bytes of a body whose parts or fields must be in memory, because each has
// its own coding or charset. Bytes beyond this number are searched as they were sent.
const searchParts = 8 << 20

// Body searches a body after undoing its content coding and charset: unchanged, with JSON escapes
// resolved, and with forms and multipart parts decoded. It returns Found. An error of src ends the
// search. At most the number most of decoded bytes are searched.
func (s *TextSearch) Body(l reading.Label, src io.Reader, most int64) (bool, error) {
	text, start := reading.Open(l, src, most)
	isForm := l.IsForm() || l.IsVague() && reading.LooksLikeForm(start)
	if l.IsMultipart() || isForm && l.Charset != "" {
		p, err := io.ReadAll(io.LimitReader(text, searchParts))
		l.Codings = nil
		if s.read(bytes.NewReader(p), isForm); !s.Found() {
			s.parts(reading.Read(l, p, len(p) == searchParts, searchParts))
		}
		if err != nil || s.Found() {
			return s.Found(), err
		}
	}
	return s.read(text, isForm)
}

// parts searches the decoded fields and parts of a body.
func (s *TextSearch) parts(r *reading.Reading) {
	for i := range r.Fields {
		if s.Look([]byte(r.Fields[i].Name)) || s.Search([]byte(r.Fields[i].Value)) {
			return
		}
	}
	for i := range r.Parts {
		p := &r.Parts[i]
		if s.Look([]byte(p.Name)) || s.Look([]byte(p.File)) || s.Search(p.Text) {
			return
		}
		s.parts(p.Reading)
	}
}

// SearchBody is Body for a body that is in memory.
func (s *TextSearch) SearchBody(l reading.Label, p []byte) bool {
	if l.IsPlain(p) {
		return s.Search(p)
	}
	found, _ := s.Body(l, bytes.NewReader(p), int64(len(p))*64)
	return found
}

// Search searches a text in memory, also with its JSON escapes resolved.
func (s *TextSearch) Search(p []byte) bool {
	found, _ := s.read(bytes.NewReader(p), false)
	return found
}

// read searches a text to its end, also with JSON escapes resolved and, if it is a form (isForm), with the
// escapes of its fields resolved. It returns Found. An error of r ends the search.
func (s *TextSearch) read(r io.Reader, isForm bool) (bool, error) {
	if s.window == nil {
		s.window = make([]byte, s.overlap+searchPiece)
	}
	ofText, form, ofForm := &s.layers[0], &s.layers[1], &s.layers[2]
	ofText.begin(nil)
	form.begin(nil)
	ofForm.begin(ofForm.buffer[:0])
	kept := 0 // number of bytes of the window that were searched before
	for !s.Found() {
		n, err := io.ReadFull(r, s.window[kept:kept+searchPiece])
		before, p := s.window[:kept], s.window[kept:kept+n]
		s.Look(s.window[:kept+n])
		s.look(ofText, before, p)
		if isForm {
			s.look(ofForm, nil, s.look(form, before, p))
		}
		kept = copy(s.window, s.end(s.window[:kept+n]))
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			break
		} else if err != nil {
			return s.Found(), err
		}
	}
	return s.Found(), nil
}

// end returns the last bytes of a searched piece: a wanted text may begin in them and end in the next
// piece.
func (s *TextSearch) end(p []byte) []byte { return p[max(0, len(p)-s.overlap):] }

// layer is a text with one kind of escapes resolved, piece by piece.
type layer struct {
	escapes escapes
	window  []byte // the end of the searched text; nil = no escape has occurred, and the text equals that of the layer below
	buffer  []byte // memory of window, reused for later events
}

// escapes resolves the escapes in a stream of pieces. All other bytes stay unchanged.
type escapes interface {
	marks() string               // the bytes that begin an escape
	resolve(piece []byte) []byte // the result is valid until the next call
	reset()                      // prepares for the next stream
}

// begin starts the layer for a new stream, with window as its buffer.
func (l *layer) begin(window []byte) {
	l.window = window
	l.escapes.reset()
}

// look searches the next piece of a text, after the layer has resolved its escapes. p is the piece in the
// form of the layer below, and before is the end of that layer's text before p. It returns the resolved
// piece.
func (s *TextSearch) look(l *layer, before, p []byte) []byte {
	if s.Found() {
		return nil
	}
	if l.window == nil {
		if !bytes.ContainsAny(p, l.escapes.marks()) { // without escapes, the text is the same in both layers
			return p
		}
		l.window = append(l.buffer[:0], before...)
	}
	out := l.escapes.resolve(p)
	l.window = append(l.window, out...)
	s.Look(l.window)
	l.window = l.window[:copy(l.window, s.end(l.window))]
	l.buffer = l.window
	return out
}

// fold appends p to dst with its letters in one case.
func fold(dst, p []byte) []byte {
	dst = slices.Grow(dst, len(p))
	for i := 0; i < len(p); {
		// Most bytes are ASCII: a run of ASCII bytes is copied first and then changed in place.
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
			// A letter is converted to upper case first, because some letters have two lower-case forms, such
			// as σ and ς.
			dst = utf8.AppendRune(dst, unicode.ToLower(unicode.ToUpper(r)))
		}
		i += size
	}
	return dst
}

// unescaper resolves the escapes of JSON strings in a stream of pieces. All other bytes stay unchanged.
type unescaper struct {
	out  []byte
	rest []byte // start of an escape whose end is in the next piece
}

func (u *unescaper) marks() string { return `\` }

func (u *unescaper) reset() { u.rest = nil }

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
		// The escape may be incomplete: the next bytes may belong to it or change its meaning.
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

// appendEscape appends the character of the escape at the start of p, and returns the length of the
// escape.
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

// hexRune reads four hexadecimal digits; -1 if p does not begin with them.
func hexRune(p []byte) rune {
	v, err := strconv.ParseUint(string(p), 16, 16)
	if err != nil || p[0] == '+' {
		return -1
	}
	return rune(v)
}

// formUnescaper resolves the escapes of a form in a stream of pieces.
type formUnescaper struct {
	rest []byte // start of an escape whose end is in the next piece
}

func (u *formUnescaper) marks() string { return "%+" }

func (u *formUnescaper) reset() { u.rest = nil }

func (u *formUnescaper) resolve(p []byte) []byte {
	if len(u.rest) > 0 {
		p = append(u.rest, p...)
	}
	u.rest = nil
	if at := bytes.LastIndexByte(p, '%'); at >= 0 && at+3 > len(p) {
		p, u.rest = p[:at], slices.Clone(p[at:])
	}
	return reading.Unescape(p)
}
