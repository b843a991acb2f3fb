package mask

import (
	"bytes"
	"encoding/base64"
	"strings"

	"relay/record/body"
)

// Limits for reading compressed data in base64. maxPacked and maxUnpacked count for all texts of one event
// together; pieces beyond them are hidden without being read.
const (
	minPacked   = 20        // smallest number of base64 digits of a piece
	minLine     = 60        // smallest number of base64 digits of each line of a piece except the last one
	maxPacked   = 100       // largest number of pieces
	maxUnpacked = 256 << 10 // largest number of bytes of the decompressed texts
)

// packings are the base64 digits with which data in the formats of the list archives begins. next are the
// digits that may follow ("" = any), and coding is the content coding that decodes the data ("" = none). zlib
// begins differently for each of its levels, and its third base64 digit already contains bits of the data.
var packings = []struct{ start, next, coding string }{
	{"H4sI", "", "gzip"},
	{"KLUv", "", "zstd"},
	{"eA", "EFGH", "deflate"},
	{"eF", "4567", "deflate"},
	{"eJ", "wxyz", "deflate"},
	{"eN", "opqr", "deflate"},
	{"UEsDB", "", ""},
	{"UmFyI", "", ""},
	{"/Td6W", "", ""},
	{"Qlpo", "MNO", ""},
	{"BCJNG", "", ""},
	{"N3q8r", "", ""},
}

// isPacked reports whether a text may contain compressed data in base64.
func isPacked(s []byte) bool {
	if len(s) < minPacked {
		return false
	}
	for _, p := range packings {
		if bytes.Contains(s, []byte(p.start)) {
			return true
		}
	}
	return false
}

// packed hides pieces of compressed data in base64 that contain a secret, or that cannot be read.
func (m *Masker) packed(n *normal, hide func(from, to int)) {
	for _, packing := range packings {
		for from := 0; ; {
			at := bytes.Index(n.p[from:], []byte(packing.start))
			if at < 0 {
				break
			}
			at += from
			from = packedEnd(n.p, at)
			begins := at == 0 || n.p[at-1] == '=' || !isBase64(n.p[at-1])
			if !begins || from-at < minPacked || packing.next != "" && strings.IndexByte(packing.next, n.p[at+len(packing.start)]) < 0 {
				continue
			}
			if m.hides(n.p[at:from], packing.coding) {
				hide(at, from)
			}
		}
	}
}

// packedEnd returns the end of the base64 digits that begin at a position. They continue after a line break
// if the line before it has at least minLine digits, as in MIME and PEM.
func packedEnd(p []byte, at int) int {
	line := at
	for i := at; ; i++ {
		if i < len(p) && isBase64(p[i]) && p[i] != '=' {
			continue
		}
		next := i
		for next < len(p) && next < i+2 && (p[next] == '\r' || p[next] == '\n') {
			next++
		}
		if i-line < minLine || next == i || next == len(p) || !isBase64(p[next]) || p[next] == '=' {
			return i
		}
		i, line = next, next
	}
}

// hides reports whether a piece of compressed data in base64 must be hidden, because it contains a secret or is
// not read.
func (m *Masker) hides(piece []byte, coding string) bool {
	if m.pieces++; coding == "" || m.pieces > maxPacked || m.unpacked >= maxUnpacked {
		return true
	}
	plain := bytes.Map(func(r rune) rune {
		switch r {
		case '-':
			return '+'
		case '_':
			return '/'
		}
		return r
	}, piece)
	data := make([]byte, base64.RawStdEncoding.DecodedLen(len(plain)))
	size, _ := base64.RawStdEncoding.Decode(data, plain) // if the data was cut, only its beginning is decoded
	most := maxUnpacked - m.unpacked
	r := body.Read(body.NewLabel("", coding), data[:size], true, most)
	m.unpacked += len(r.Text)
	if len(r.Codings) == 0 || len(r.Text) == 0 {
		return false // the data is not compressed with this coding
	}
	outer := m.buffer
	m.buffer = normal{}
	defer func() { m.buffer = outer }()
	var inner edits
	m.reading(&inner, r, 0)
	return len(inner.list) > 0 || len(r.Text) == most
}
