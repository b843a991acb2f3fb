// Package body shows the body of a message, and the differences between two messages: views, bounds and
// the escaping of received bytes. It does not depend on the pages.
package body

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"relay"
	"relay/record"
	reading "relay/record/body"
)

// Bounds of the shown bytes and lines.
const (
	Shown      = 256 << 10 // bytes of one body
	ShownLines = 300       // header lines, query and form fields of one table
)

// Pair is a name and a value, both safe to show.
type Pair struct {
	Name, Value string
	JSON        bool // Value is indented JSON
}

// shownHex is the largest number of bytes in a hex dump.
const shownHex = 16 << 10

// WholeJSON is the largest JSON body, in bytes, that is shown completely on request.
const WholeJSON = 4 << 20

// Names of body views, in the order of their tabs.
const (
	viewPretty = "pretty"
	viewRaw    = "raw"
	viewHex    = "hex"
	viewParts  = "parts"
	viewImage  = "image"
)

// Source is a body with the address of its page.
type Source struct {
	ID, What        string // ID makes addresses within the page unique; What names the body for screen readers
	Body            *relay.Body
	Head            []byte // head of the message of the body
	Download, Image string // addresses of the whole body, and of the body as an image; "" = none
	Whole           string // address of the whole body as indented JSON
	Page            string // address of the page, whose query parameter Param chooses the view; "" = there is only one view
	Query           url.Values
	Param           string
}

// tab is a view that the user can choose.
type tab struct {
	Text, Link string
	On         bool
}

// View is a body in one of its views.
type View struct {
	ID, What     string
	Size, SHA256 string
	Empty        bool
	State        string // text about the missing part, "" = none is missing
	Note         string // text about the form in which the body is shown
	Tabs         []tab
	View         string
	Text         string // text of the views pretty, raw and hex
	JSON         bool   // Text is indented JSON
	Core         string // name of the JSON member with the payload of a sender; everything around that member is folded
	Folded       string // names of the JSON members that are folded, separated by spaces
	Mark, Rest   string // the byte at which the JSON is invalid, and the text after it
	Fault        string // description of the error at the byte Mark
	Form         []Pair
	Parts        []partView
	Image        string
	Download     string
	Whole        string // address of the whole indented JSON, if Text is only its beginning; "" = Text is complete, or the whole is too long
	NotCopied    string // reason why Text cannot be copied as the whole body, "" = it can
}

// Show makes the view that the address asks for, or the most useful one.
func Show(s Source) View {
	b := s.Body
	v := View{ID: s.ID, What: s.What, Size: SizeText(b.Size), SHA256: hex.EncodeToString(b.SHA256[:]), Download: s.Download, State: bodyStates[b.State]}
	if b.Size == 0 {
		v.Empty = true
		return v
	}
	c := contentOf(s.Head, b)
	tabs := c.views()
	if s.Image == "" && tabs[0] == viewImage {
		tabs = tabs[1:]
	}
	v.View = tabs[0]
	if s.Page != "" {
		if chosen := s.Query.Get(s.Param); slices.Contains(tabs, chosen) {
			v.View = chosen
		}
		for _, name := range tabs {
			q := maps.Clone(s.Query)
			q.Set(s.Param, name)
			v.Tabs = append(v.Tabs, tab{name, s.Page + "?" + q.Encode() + "#" + s.ID, name == v.View})
		}
	}
	c.show(&v, s.Image)
	v.NotCopied = c.notCopied(&v)
	if v.JSON && c.Cut && b.Size <= WholeJSON {
		v.Whole = s.Whole
	}
	return v
}

// bodyStates has the texts for incomplete bodies, by the state of a body.
var bodyStates = map[string]string{
	relay.BodyReceiving: "It is still being received.",
	relay.BodyAborted:   "The caller went away before its end.",
	relay.BodyNotSent:   "It was not read: the answer came before it.",
	relay.BodyOverLimit: "It was larger than what is stored; size and SHA-256 cover all of it.",
}

func (c *content) show(v *View, image string) {
	firstOf := func(n int) string {
		note := "Only the first " + SizeText(int64(n)) + " are shown"
		if v.Download == "" {
			return note + "."
		}
		return note + "; the download has all of it."
	}
	if c.Cut {
		v.Note = firstOf(len(c.Text))
	}
	v.Fault = record.SafeText(c.FaultText())
	switch v.View {
	case viewImage:
		v.Image, v.Note, v.Fault = image, "", ""
	case viewHex:
		if v.Note = ""; len(c.raw) > shownHex || int64(len(c.raw)) < c.size {
			v.Note = firstOf(min(len(c.raw), shownHex))
		}
		v.Text = hexDump(c.raw[:min(len(c.raw), shownHex)])
	case viewRaw:
		if v.Note = ""; int64(len(c.raw)) < c.size {
			v.Note = firstOf(len(c.raw))
		}
		v.Text = Visible(c.raw)
	case viewParts:
		if v.Parts = c.partsOf(); len(c.Parts) > shownParts {
			v.Note = strings.TrimSpace(v.Note + fmt.Sprintf(" Only the first %d parts are shown.", shownParts))
		}
	default:
		c.pretty(v)
	}
	if how := c.How(); how != "" && (v.View == viewPretty || v.View == viewParts) {
		v.Note = strings.TrimSpace(strings.ToUpper(how[:1]) + how[1:] + " for this view. " + v.Note)
	}
}

// notCopied returns the reason why the text of a view is not the complete body and cannot be copied, ""
// = it can.
func (c *content) notCopied(v *View) string {
	switch {
	case c.Form == reading.Binary:
		return "Not copied: this body is binary. Save has its bytes."
	case v.View == viewHex && len(c.raw) > shownHex, v.View != viewHex && (c.Cut || int64(len(c.raw)) < c.size):
		return "Not copied: only the start of the body is shown here. Save has all of it."
	case v.View == viewPretty && len(c.Fields) > ShownLines:
		return "Not copied: not all fields are shown here. Save has all of them."
	case v.View == viewParts:
		for i := range c.Parts {
			if _, ok := c.Parts[i].Plain(); !ok || i >= shownParts {
				return "Not copied: a part of it is binary or not shown here. Save has all of it."
			}
		}
	}
	return ""
}

func (c *content) pretty(v *View) {
	if c.Form == reading.URLEncoded {
		v.Form = pairsOf(c.Fields)
		return
	}
	if c.Form == reading.JSON {
		for _, f := range c.Faults {
			if f.At >= 0 && f.At <= len(c.Text) {
				c.marked(v, f.At)
				return
			}
		}
	}
	text, _ := c.Plain()
	if c.Form == reading.JSON || c.Form == reading.JSONLines {
		text = reading.Readable(text)
	}
	v.Text, v.JSON = Visible(text), c.Form == reading.JSON
}

// marked sets the text of a view, and marks one character in it. The parameter at is the position of the
// character's first byte.
func (c *content) marked(v *View, at int) {
	end := min(at+1, len(c.Text))
	for end < len(c.Text) && !utf8.RuneStart(c.Text[end]) {
		end++
	}
	v.Text, v.Mark, v.Rest = Visible(c.Text[:at]), Visible(c.Text[at:end]), Visible(c.Text[end:])
}

// Visible returns text in which all hidden characters, and those that change the direction or position
// of text, are made visible. Line ends and tabs stay.
func Visible(p []byte) string {
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

// hexDump returns a dump with offset, bytes and letters, 16 bytes a line.
func hexDump(p []byte) string { return strings.TrimSuffix(hex.Dump(p), "\n") }

// SizeText formats a size in units of 1024.
func SizeText(n int64) string {
	switch {
	case n < 1<<10:
		return strconv.FormatInt(n, 10) + " B"
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	default:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
}
