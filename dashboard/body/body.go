// Package body shows the body of a message, and what differs between two messages: views,
// bounds and the escaping of what came from outside. It does not depend on the pages.
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
)

// Bounds of what is shown.
const (
	Shown      = 256 << 10 // bytes of one body
	ShownLines = 300       // header lines, query and form fields of one table
	ShownValue = 4 << 10   // runes of a value in a table
)

// Pair is a name and a value, both safe to show.
type Pair struct{ Name, Value string }

// shownHex is how many bytes a hex dump has.
const shownHex = 16 << 10

// WholeJSON is how long a JSON body may be, in bytes, that is shown whole when asked for.
const WholeJSON = 4 << 20

// Names of body views, in the order of their tabs.
const (
	viewPretty = "pretty"
	viewRaw    = "raw"
	viewHex    = "hex"
	viewParts  = "parts"
	viewImage  = "image"
)

// Source is a body and where its page is.
type Source struct {
	ID, What        string // for addresses within the page, for screen readers
	Body            *relay.Body
	Head            []byte // of its message
	Download, Image string // addresses of all of it, and of it as a picture; "" = there is none
	Whole           string // address of it as indented JSON
	Page            string // address of its page, on which Param in the query chooses the view; "" = there is one view
	Query           url.Values
	Param           string
}

// tab is a view that can be chosen.
type tab struct {
	Text, Link string
	On         bool
}

// View is a body as one of its views shows it.
type View struct {
	ID, What     string
	Size, SHA256 string
	Empty        bool
	State        string // what is missing of it, "" = nothing
	Note         string // how it is shown
	Tabs         []tab
	View         string
	Text         string // of pretty, raw and hex
	JSON         bool   // Text is indented JSON
	Mark, Rest   string // the byte at which it is no JSON, and what follows
	Fault        string // what is wrong there
	Form         []Pair
	Parts        []partView
	Image        string
	Download     string
	Whole        string // address of all of a longer JSON text, indented; "" = it is shown, or too long
}

// Show makes the view that the address asks for, or the one that says most.
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
	if v.JSON && c.cut && b.Size <= WholeJSON {
		v.Whole = s.Whole
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

func (c *content) show(v *View, image string) {
	firstOf := func(n int) string {
		note := "Only the first " + SizeText(int64(n)) + " are shown"
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
		v.Text = Visible(c.raw)
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

func (c *content) pretty(v *View) {
	switch {
	case c.isForm():
		v.Form = formPairs(string(c.plain))
	case c.isJSON():
		out, fault := Indented(c.plain, c.cut)
		if fault == nil {
			v.Text, v.JSON = Visible(out), true
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
		v.Text, v.Mark, v.Rest = Visible(before), Visible(c.plain[at:end]), Visible(c.plain[end:])
	default:
		v.Text = Visible(c.plain)
	}
}

// Visible is text with its lines and tabs as they are and everything that hides or
// moves made visible.
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

// hexDump is offset, bytes and letters, 16 bytes a line.
func hexDump(p []byte) string { return strings.TrimSuffix(hex.Dump(p), "\n") }

// SizeText is a size for people, in units of 1024.
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
