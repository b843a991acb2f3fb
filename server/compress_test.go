package server

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestCompress checks which responses are compressed, their head, and that each body is complete.
func TestCompress(t *testing.T) {
	t.Parallel()
	// The case "large" sends this text 60 times, which is more than two pieces of pieceMax bytes.
	long := strings.Repeat("<p>an event, and another one</p>\n", 400)
	page := http.Header{"Content-Type": {"text/html; charset=utf-8"}}
	with := func(name, value string) http.Header {
		h := page.Clone()
		h.Set(name, value)
		return h
	}
	for name, c := range map[string]struct {
		method, accept, ranges string
		head                   http.Header
		status                 int
		pieces                 []string
		flush                  bool // flush after the first element of pieces
		packed                 bool
	}{
		"page":             {head: page, pieces: []string{long}, packed: true},
		"large":            {head: page, pieces: []string{strings.Repeat(long, 60)}, packed: true},
		"in pieces":        {head: page, pieces: []string{"a", long, "b", long}, packed: true},
		"not found":        {head: page, status: 404, pieces: []string{long}, packed: true},
		"problem":          {head: with("Content-Type", "application/problem+json"), status: 422, pieces: []string{long}, packed: true},
		"length":           {head: with("Content-Length", "9"), pieces: []string{long}, packed: true},
		"other codings":    {accept: "br, GZIP;q=0.5", head: page, pieces: []string{long}, packed: true},
		"short":            {head: page, pieces: []string{strings.Repeat("x", compressFrom-1)}},
		"empty":            {head: page},
		"redirect":         {head: page, status: 303},
		"not asked":        {accept: "-", head: page, pieces: []string{long}},
		"refused":          {accept: "gzip;q=0, br", head: page, pieces: []string{long}},
		"refused too":      {accept: "gzip; q=0.00", head: page, pieces: []string{long}},
		"form":             {method: "POST", head: page, pieces: []string{long}},
		"range":            {ranges: "bytes=0-5", head: page, pieces: []string{long}},
		"part":             {head: page, status: 206, pieces: []string{long}},
		"export":           {head: with("Content-Disposition", "attachment"), pieces: []string{long}},
		"packed already":   {head: with("Content-Encoding", "br"), pieces: []string{long}},
		"raw bytes":        {head: with("Content-Type", "application/octet-stream"), pieces: []string{long}},
		"live":             {head: with("Content-Type", "text/event-stream"), pieces: []string{"data: 1\n\n", long}, flush: true},
		"page that begins": {head: page, pieces: []string{"<p>", long}, flush: true},
	} {
		r := httptest.NewRequest(map[bool]string{true: "GET", false: c.method}[c.method == ""], "/", nil)
		switch c.accept {
		case "":
			r.Header.Set("Accept-Encoding", "gzip, deflate, br")
		case "-":
		default:
			r.Header.Set("Accept-Encoding", c.accept)
		}
		if c.ranges != "" {
			r.Header.Set("Range", c.ranges)
		}
		w := httptest.NewRecorder()
		Compress(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"1"`)
			for name, values := range c.head {
				w.Header()[name] = values
			}
			if c.status != 0 {
				w.WriteHeader(c.status)
			}
			for i, piece := range c.pieces {
				if n, err := io.WriteString(w, piece); n != len(piece) || err != nil {
					t.Errorf("%s: %d of %d bytes, %v", name, n, len(piece), err)
				}
				if c.flush && i == 0 {
					_ = http.NewResponseController(w).Flush()
				}
			}
		})).ServeHTTP(w, r)
		body, whole := w.Body.Bytes(), strings.Join(c.pieces, "")
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != c.packed {
			t.Errorf("%s: compressed is %v", name, got)
			continue
		}
		if want := max(c.status, 200); w.Code != want {
			t.Errorf("%s: status %d", name, w.Code)
		}
		if c.packed {
			if len(body) > len(whole)/3 || w.Header().Get("Content-Length") != "" || w.Header().Get("ETag") != `W/"1"` || w.Header().Get("Vary") != "Accept-Encoding" {
				t.Errorf("%s: %d of %d bytes, %v", name, len(body), len(whole), w.Header())
			}
			z, err := gzip.NewReader(bytes.NewReader(body))
			if err == nil {
				body, err = io.ReadAll(z)
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if string(body) != whole {
			t.Errorf("%s: %d bytes, want %d", name, len(body), len(whole))
		}
		if c.flush && !w.Flushed {
			t.Errorf("%s: not flushed", name)
		}
	}
}
