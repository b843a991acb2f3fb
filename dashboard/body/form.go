package body

import (
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net/url"
	"strings"

	"relay/record"
)

// Bounds of forms and multipart bodies.
const (
	shownParts    = 50      // parts of a multipart body
	shownPartText = 4 << 10 // bytes of one part
	shownPartHex  = 512     // of one that is no text
)

// partView is one part of a multipart body.
type partView struct {
	Name, File, Type, Size, Text string
}

// formPairs are the fields of a form or query in their order; what cannot be read
// stays as it is.
func formPairs(s string) []Pair {
	var list []Pair
	for part := range strings.SplitSeq(s, "&") {
		if part == "" {
			continue
		}
		if len(list) == ShownLines {
			return append(list, Pair{"…", fmt.Sprintf("%d more fields; the download has them", strings.Count(s, "&")+1-ShownLines)})
		}
		name, value, _ := strings.Cut(part, "=")
		list = append(list, Pair{unescaped(name), unescaped(value)})
	}
	return list
}

func unescaped(s string) string {
	if plain, err := url.QueryUnescape(s); err == nil {
		s = plain
	}
	return record.SafeTextMax(s, ShownValue)
}

func QueryPairs(target []byte) []Pair {
	_, query, ok := bytes.Cut(target, []byte("?"))
	if !ok {
		return nil
	}
	return formPairs(string(query))
}

// partsOf reads a multipart body as far as it is at hand; more tells that it has parts
// beyond those that are shown.
func partsOf(p []byte, boundary string) (list []partView, more bool) {
	r := multipart.NewReader(bytes.NewReader(p), boundary)
	for {
		part, err := r.NextRawPart()
		if err != nil || len(list) == shownParts {
			return list, err == nil
		}
		data, err := io.ReadAll(part)
		v := partView{
			Name: record.SafeTextMax(part.FormName(), 200), File: record.SafeTextMax(part.FileName(), 200),
			Type: record.SafeTextMax(part.Header.Get("Content-Type"), 200), Size: SizeText(int64(len(data))),
		}
		if err != nil {
			v.Size = "at least " + v.Size
		}
		most, text := shownPartHex, hexDump
		if record.IsReadable(data, err != nil) {
			most, text = shownPartText, Visible
		}
		if v.Text = text(data[:min(len(data), most)]); len(data) > most {
			v.Size += ", of which the first " + SizeText(int64(most)) + " are shown"
		}
		list = append(list, v)
	}
}
