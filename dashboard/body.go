package dashboard

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"relay"
	"relay/record"
)

// shownHex is how many bytes a hex dump has.
const shownHex = 16 << 10

// wholeJSON is how long a JSON body may be, in bytes, that is shown whole when asked for.
const wholeJSON = 4 << 20

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
	whole           string // address of it as indented JSON
	page            string // address of its page, on which param in the query chooses the view; "" = there is one view
	query           url.Values
	param           string
}

// bodyView is a body as one of its views shows it.
type bodyView struct {
	ID, What     string
	Size, SHA256 string
	Empty        bool
	State        string // what is missing of it, "" = nothing
	Note         string // how it is shown
	Tabs         []choice
	View         string
	Text         string // of pretty, raw and hex
	JSON         bool   // Text is indented JSON
	Mark, Rest   string // the byte at which it is no JSON, and what follows
	Fault        string // what is wrong there
	Form         []pair
	Parts        []partView
	Image        string
	Download     string
	Whole        string // address of all of a longer JSON text, indented; "" = it is shown, or too long
}

// showBody makes the view that the address asks for, or the one that says most.
func showBody(s bodySource) bodyView {
	b := s.body
	v := bodyView{ID: s.id, What: s.what, Size: sizeText(b.Size), SHA256: hex.EncodeToString(b.SHA256[:]), Download: s.download, State: bodyStates[b.State]}
	if b.Size == 0 {
		v.Empty = true
		return v
	}
	c := contentOf(s.head, b)
	tabs := c.views()
	v.View = tabs[0]
	if s.page != "" {
		if chosen := s.query.Get(s.param); slices.Contains(tabs, chosen) {
			v.View = chosen
		}
		for _, name := range tabs {
			q := maps.Clone(s.query)
			q.Set(s.param, name)
			v.Tabs = append(v.Tabs, choice{name, withQuery(s.page, q) + "#" + s.id, name == v.View})
		}
	}
	c.show(&v, s.image)
	if v.JSON && c.cut && b.Size <= wholeJSON {
		v.Whole = s.whole
	}
	return v
}

// bodyStates say what is missing of a body.
var bodyStates = map[string]string{
	relay.BodyReceiving: "It is still coming in.",
	relay.BodyAborted:   "The caller went away before its end.",
	relay.BodyNotSent:   "It was not read: the answer came before it.",
	relay.BodyOverLimit: "It was larger than what is kept; size and SHA-256 cover all of it.",
}

func (c *content) show(v *bodyView, image string) {
	firstOf := func(n int) string {
		note := "Only the first " + sizeText(int64(n)) + " are shown"
		if v.Download == "" {
			return note + "."
		}
		return note + "; the download has all of it."
	}
	if c.cut {
		v.Note = firstOf(len(c.plain))
	}
	switch v.View {
	case viewImage:
		v.Image, v.Note = image, ""
	case viewHex:
		if len(c.raw) > shownHex || int64(len(c.raw)) < c.size {
			v.Note = firstOf(min(len(c.raw), shownHex))
		} else {
			v.Note = ""
		}
		v.Text = hexDump(c.raw[:min(len(c.raw), shownHex)])
	case viewRaw:
		v.Text = visible(c.raw)
	case viewParts:
		parts, more := partsOf(c.plain, c.params["boundary"])
		if v.Parts = parts; len(parts) == 0 {
			v.Fault = "no part of a multipart body was found; see raw"
		} else if more {
			v.Note = strings.TrimSpace(v.Note + fmt.Sprintf(" Only the first %d parts are shown.", shownParts))
		}
	default:
		c.pretty(v)
	}
	if c.problem != "" {
		v.Fault = strings.TrimPrefix(v.Fault+"; "+c.problem, "; ")
	} else if c.coding != "" && (v.View == viewPretty || v.View == viewParts) {
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
			v.Text, v.JSON = visible(out), true
			return
		}
		at := min(fault.Offset, len(c.plain))
		before := c.plain[:at]
		v.Fault = fmt.Sprintf("Not JSON: line %d, column %d (byte %d): %s",
			1+bytes.Count(before, []byte("\n")), at-bytes.LastIndexByte(before, '\n'), fault.Offset, fault.Why)
		end := min(at+1, len(c.plain))
		for end < len(c.plain) && !utf8.RuneStart(c.plain[end]) {
			end++
		}
		v.Text, v.Mark, v.Rest = visible(before), visible(c.plain[at:end]), visible(c.plain[end:])
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
