package dashboard

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"relay"
	"relay/record"
	"relay/wire"
)

// Bounds of body views.
const (
	shownHex      = 16 << 10 // bytes of a hex dump
	shownParts    = 50       // parts of a multipart body
	shownPartText = 4 << 10  // bytes of one part
)

// Names of body views, in the order of their tabs.
const (
	viewPretty = "pretty"
	viewRaw    = "raw"
	viewHex    = "hex"
	viewParts  = "parts"
	viewImage  = "image"
)

// bodySource is a body and where its page is.
type bodySource struct {
	id, what        string // for addresses within the page, for screen readers
	body            *relay.Body
	head            []byte // of its message
	download, image string // addresses of all of it, and of it as a picture
	param           string // query parameter that chooses the view
	query           url.Values
	path            string
}

// bodyView is a body as one of its views shows it.
type bodyView struct {
	ID, What     string
	Size, SHA256 string
	Empty        bool
	State        string // what is missing of it, "" = nothing
	Note         string // how it is shown
	Tabs         []tabView
	View         string
	Text         string // of pretty, raw and hex
	Mark, Rest   string // the byte at which it is no JSON, and what follows
	Fault        string // what is wrong there
	Form         []pair
	Parts        []partView
	Image        string
	Download     string
}

type tabView struct {
	Name, Link string
	Current    bool
}

// partView is one part of a multipart body.
type partView struct {
	Name, File, Type, Size, Text string
}

// showBody makes the view that the address asks for, or the one that says most.
func showBody(s bodySource) bodyView {
	b := s.body
	v := bodyView{ID: s.id, What: s.what, Size: sizeText(b.Size), SHA256: hex.EncodeToString(b.SHA256[:]), Download: s.download, State: bodyState(b)}
	if b.Size == 0 {
		v.Empty = true
		return v
	}
	c := contentOf(s.head, b)
	tabs := c.views()
	v.View = tabs[0]
	for _, name := range tabs {
		if s.query.Get(s.param) == name {
			v.View = name
		}
	}
	for _, name := range tabs {
		q := url.Values{}
		for k, values := range s.query {
			q[k] = values
		}
		q.Set(s.param, name)
		v.Tabs = append(v.Tabs, tabView{Name: name, Link: withQuery(s.path, q) + "#" + s.id, Current: name == v.View})
	}
	c.show(&v, s.image)
	return v
}

func bodyState(b *relay.Body) string {
	switch b.State {
	case relay.BodyReceiving:
		return "It is still coming in."
	case relay.BodyAborted:
		return "The caller went away before its end."
	case relay.BodyNotSent:
		return "The caller never sent it."
	case relay.BodyOverLimit:
		return "It was larger than what is kept; size and SHA-256 cover all of it."
	}
	return ""
}

// content is what is at hand of a body and what it claims to be.
type content struct {
	raw     []byte // as stored, perhaps only its start
	plain   []byte // without content coding
	cut     bool   // plain is not all of it
	size    int64
	kind    string // media type in lower case, "" = unknown
	params  map[string]string
	coding  string // content coding that was taken off
	problem string // why it was not
}

func contentOf(head []byte, b *relay.Body) *content {
	c := &content{raw: b.Data[:min(len(b.Data), shownBody)], size: b.Size}
	c.plain, c.cut = c.raw, int64(len(c.raw)) < b.Size
	coding := ""
	if len(head) > 0 {
		for _, f := range wire.Fields(head) {
			switch strings.ToLower(string(f.Name)) {
			case "content-type":
				c.kind, c.params, _ = mime.ParseMediaType(string(f.Value))
			case "content-encoding":
				coding = strings.ToLower(string(f.Value))
			}
		}
	}
	c.decode(coding)
	return c
}

// decode takes gzip and deflate off for the view, never more than the view holds.
func (c *content) decode(coding string) {
	var open func(io.Reader) (io.ReadCloser, error)
	switch coding {
	case "", "identity":
		return
	case "gzip", "x-gzip":
		open = func(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) }
	case "deflate":
		open = zlib.NewReader
	default:
		c.problem = "coded as " + record.SafeTextMax(coding, 40) + ", which this view cannot read"
		return
	}
	r, err := open(bytes.NewReader(c.raw))
	if err != nil {
		c.problem = "it says " + coding + ", but is not"
		return
	}
	out, err := io.ReadAll(io.LimitReader(r, shownBody+1))
	if err != nil && (!errors.Is(err, io.ErrUnexpectedEOF) || !c.cut) {
		c.problem = coding + " data that breaks off or is damaged"
	}
	c.coding = coding
	if len(out) > shownBody {
		out, c.cut = out[:shownBody], true
	}
	c.plain = out
}

// views are those that make sense, the best one first.
func (c *content) views() []string {
	switch {
	case imageKind(c.raw) != "" && strings.HasPrefix(c.kind, "image/"):
		return []string{viewImage, viewHex}
	case strings.HasPrefix(c.kind, "multipart/") && c.params["boundary"] != "":
		return []string{viewParts, viewRaw, viewHex}
	case !isText(c.plain, c.cut):
		return []string{viewHex, viewRaw}
	case c.isJSON() || c.isForm() || c.coding != "":
		return []string{viewPretty, viewRaw, viewHex}
	default:
		return []string{viewRaw, viewHex}
	}
}

func (c *content) isJSON() bool {
	if c.kind == "application/json" || strings.HasSuffix(c.kind, "+json") {
		return true
	}
	start := bytes.TrimLeft(c.plain[:min(len(c.plain), 1024)], " \t\r\n")
	return len(start) > 0 && (start[0] == '{' || start[0] == '[') && c.kind != "text/html" && !c.isForm()
}

func (c *content) isForm() bool { return c.kind == "application/x-www-form-urlencoded" }

// isText tells whether bytes are to be read by people: UTF-8 without NUL.
func isText(p []byte, cut bool) bool {
	if cut { // a rune may be cut in the middle
		for i := 0; i < utf8.UTFMax && len(p) > 0 && !utf8.Valid(p[max(0, len(p)-utf8.UTFMax):]); i++ {
			p = p[:len(p)-1]
		}
	}
	return utf8.Valid(p) && bytes.IndexByte(p, 0) < 0
}

func (c *content) show(v *bodyView, image string) {
	if c.cut {
		v.Note = fmt.Sprintf("Only the first %s are shown; the download has all of it.", sizeText(int64(len(c.plain))))
	}
	switch v.View {
	case viewImage:
		v.Image, v.Note = image, ""
	case viewHex:
		if len(c.raw) > shownHex || int64(len(c.raw)) < c.size {
			v.Note = fmt.Sprintf("Only the first %s are shown; the download has all of it.", sizeText(int64(min(len(c.raw), shownHex))))
		} else {
			v.Note = ""
		}
		v.Text = hexDump(c.raw[:min(len(c.raw), shownHex)])
	case viewRaw:
		v.Text = visible(c.raw)
	case viewParts:
		v.Parts = partsOf(c.raw, c.params["boundary"])
		if len(v.Parts) == 0 {
			v.Fault = "no part of a multipart body was found; see raw"
		}
	default:
		c.pretty(v)
	}
	if c.problem != "" {
		v.Fault = strings.TrimPrefix(v.Fault+"; "+c.problem, "; ")
	} else if c.coding != "" && v.View == viewPretty {
		v.Note = strings.TrimSpace("Unpacked from " + c.coding + " for this view. " + v.Note)
	}
}

func (c *content) pretty(v *bodyView) {
	switch {
	case c.isForm():
		v.Form = formPairs(string(c.plain))
	case c.isJSON():
		out, fault := prettyJSON(c.plain, c.cut)
		if fault == nil {
			v.Text = visible(out)
			return
		}
		line, column := fault.in(c.plain)
		v.Fault = fmt.Sprintf("Not JSON: line %d, column %d (byte %d): %s", line, column, fault.Offset, fault.Why)
		at := min(fault.Offset, len(c.plain))
		end := min(at+1, len(c.plain))
		for end < len(c.plain) && !utf8.RuneStart(c.plain[end]) {
			end++
		}
		v.Text, v.Mark, v.Rest = visible(c.plain[:at]), visible(c.plain[at:end]), visible(c.plain[end:])
	default:
		v.Text = visible(c.plain)
	}
}

// visible is text with its lines and tabs as they are and everything that hides or
// moves made visible.
func visible(p []byte) string {
	var b strings.Builder
	b.Grow(len(p))
	for len(p) > 0 {
		i := bytes.IndexAny(p, "\n\t")
		if i < 0 {
			b.WriteString(record.SafeText(string(p)))
			break
		}
		line := p[:i]
		if p[i] == '\n' {
			line = bytes.TrimSuffix(line, []byte("\r"))
		}
		b.WriteString(record.SafeText(string(line)))
		b.WriteByte(p[i])
		p = p[i+1:]
	}
	return b.String()
}

// hexDump is offset, bytes and letters, 16 bytes a line.
func hexDump(p []byte) string { return strings.TrimSuffix(hex.Dump(p), "\n") }

// formPairs are the fields of a form or query in their order; what cannot be read
// stays as it is.
func formPairs(s string) []pair {
	var list []pair
	for part := range strings.SplitSeq(s, "&") {
		if part == "" {
			continue
		}
		if len(list) == shownLines {
			return append(list, pair{"…", fmt.Sprintf("%d more fields; the download has them", strings.Count(s, "&")+1-shownLines)})
		}
		name, value, _ := strings.Cut(part, "=")
		list = append(list, pair{unescaped(name), unescaped(value)})
	}
	return list
}

func unescaped(s string) string {
	if plain, err := url.QueryUnescape(s); err == nil {
		s = plain
	}
	return record.SafeTextMax(s, shownValue)
}

func queryPairs(target []byte) []pair {
	_, query, ok := bytes.Cut(target, []byte("?"))
	if !ok {
		return nil
	}
	return formPairs(string(query))
}

// partsOf reads a multipart body as far as it is at hand.
func partsOf(p []byte, boundary string) []partView {
	var list []partView
	r := multipart.NewReader(bytes.NewReader(p), boundary)
	for len(list) < shownParts {
		part, err := r.NextRawPart()
		if err != nil {
			break
		}
		data, _ := io.ReadAll(part)
		v := partView{
			Name: record.SafeTextMax(part.FormName(), 200), File: record.SafeTextMax(part.FileName(), 200),
			Type: record.SafeTextMax(part.Header.Get("Content-Type"), 200), Size: sizeText(int64(len(data))),
		}
		if isText(data, false) {
			v.Text = visible(data[:min(len(data), shownPartText)])
		} else {
			v.Text = hexDump(data[:min(len(data), 512)])
		}
		list = append(list, v)
	}
	return list
}

// imageKind is the type of a picture that may be shown: known by its first bytes and
// without script; "" for everything else.
func imageKind(p []byte) string {
	switch kind := http.DetectContentType(p[:min(len(p), 512)]); kind {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return kind
	}
	return ""
}
