package mask

import (
	"bytes"
	"encoding/base64"

	"relay/record/body"
)

// Limits for reading compressed data in base64. Those of pieces and bytes are for all texts of one event.
const (
	minPacked   = 20        // digits
	maxPacked   = 100       // pieces
	maxUnpacked = 256 << 10 // bytes of their texts
)

// packings are beginnings of compressed data in base64, with the content coding that reads it; "" = none does.
var packings = []struct{ start, coding string }{
	{"H4sI", "gzip"}, {"KLUv", "zstd"}, {"eJ", "deflate"}, {"eN", "deflate"}, {"eAE", "deflate"}, {"eF4", "deflate"}, {"UEsDB", ""},
}

// isPacked reports whether a text may hold compressed data in base64.
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

// packed hides the compressed data in base64 that holds a secret, or that cannot be read.
func (m *Masker) packed(n *normal, hide func(from, to int)) {
	for _, packing := range packings {
		for from := 0; ; {
			at := bytes.Index(n.p[from:], []byte(packing.start))
			if at < 0 {
				break
			}
			at += from
			for from = at; from < len(n.p) && isBase64(n.p[from]) && n.p[from] != '='; from++ {
			}
			begins := at == 0 || n.p[at-1] == '=' || !isBase64(n.p[at-1])
			if begins && from-at >= minPacked && m.hides(n.p[at:from], packing.coding) {
				hide(at, from)
			}
		}
	}
}

// hides reports whether a piece of compressed data in base64 is hidden.
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
	size, _ := base64.RawStdEncoding.Decode(data, plain) // of one that was cut, its beginning
	if coding == "deflate" && (size < 2 || (int(data[0])<<8+int(data[1]))%31 != 0) {
		return false // these three letters begin other texts too
	}
	most := maxUnpacked - m.unpacked
	r := body.Read(body.NewLabel("", coding), data[:size], true, most)
	m.unpacked += len(r.Text)
	if len(r.Codings) == 0 || len(r.Text) == 0 {
		return false // it is something else
	}
	outer := m.buffer
	m.buffer = normal{}
	defer func() { m.buffer = outer }()
	var inner edits
	m.reading(&inner, r, 0)
	return len(inner.list) > 0 || len(r.Text) == most
}
