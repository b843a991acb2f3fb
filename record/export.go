package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"relay"
	"relay/wire"
)

// ExportFormats are the forms that Export knows.
var ExportFormats = []string{"curl", "har", "json", "go", "js", "python"}

// Exported is an event in a form that other programs read.
type Exported struct {
	Type string // media type
	Name string // of the file
	Body []byte
}

// Export returns an event that was read whole, bodies up to MaxBody, in one of
// ExportFormats. creator is the version of the program, now decides about warnings, and bodies have
// at most most bytes as JSON together: what does not fit is marked as truncated. The
// error is validation-failed for another format, and those of program.
func Export(e *relay.Event, format string, site relay.Site, creator string, now time.Time, most int64) (_ *Exported, err error) {
	// A program is plain text to browsers, whatever language it is in.
	out := &Exported{Type: "text/plain; charset=utf-8", Name: e.ID.String()}
	switch format {
	case "curl":
		out.Body = []byte(CURL(e, site, out.Name+"-request.body"))
		out.Name += ".sh"
	case "har", "json":
		var v any
		if format == "har" {
			v = HAROf(e, site, creator, most)
		} else {
			rec := Of(e, site, now)
			rec.Fit(most)
			v = rec
		}
		out.Type, out.Name = "application/json", out.Name+"."+format
		out.Body, err = json.MarshalIndent(v, "", "  ")
		out.Body = append(out.Body, '\n')
	case "go", "js", "python":
		p := programs[format]
		out.Name = p.before + out.Name + p.after
		out.Body, err = p.fill(e)
	default:
		known := "expected one of " + strings.Join(ExportFormats, ", ")
		err = &relay.Error{
			Code: relay.CodeValidationFailed, Detail: "query.format: " + known,
			Fields: []relay.FieldError{{Location: "query.format", Message: known}},
		}
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// inlineCURL is how many bytes of a body a command carries itself; larger ones are
// read from a file, because a shell bounds the length of its lines.
const inlineCURL = 64 << 10

// CURL gives a POSIX shell command that sends the request of an event to its alias
// again: method, target, header lines in their order and every byte of the body.
// What curl would add by itself is switched off; Host and the framing lines stand
// where curl puts them. file is the name that the command reads a body from that is
// too large for a command line, or not all at hand.
func CURL(e *relay.Event, site relay.Site, file string) string {
	c := &curl{}
	body := e.Request.Body
	inline := body.Size <= inlineCURL && int64(len(body.Data)) == body.Size
	if body.Size > 0 && inline && !plainArgument(body.Data) {
		c.b.WriteString("printf '" + octal(body.Data) + "' | ")
	}
	c.b.WriteString("curl -sS -i --globoff --path-as-is")
	c.option(map[bool]string{true: "--http1.0", false: "--http1.1"}[e.HTTPMinor == 0])
	bodied := c.method(e)
	c.target(e, site)
	c.headers(e, bodied)
	switch {
	case !bodied:
	case body.Size == 0:
		c.option("--data-raw ''")
	case !inline:
		c.option("--data-binary " + quoted([]byte("@"+file)))
	case plainArgument(body.Data):
		c.option("--data-raw " + quoted(body.Data))
	default:
		c.option("--data-binary @-")
	}
	return c.b.String() + "\n"
}

type curl struct{ b strings.Builder }

func (c *curl) option(s string) { c.b.WriteString(" \\\n  " + s) }

// method tells whether curl is to send a body, be it an empty one, and frame it. It
// does not for HEAD, but when it takes that for a word like any other: then it waits
// in vain for the body of the answer.
func (c *curl) method(e *relay.Event) (bodied bool) {
	body, framing := e.Request.Body.Size > 0, e.Request.Framing
	switch {
	case e.Method != "HEAD":
		c.option("-X " + quoted([]byte(e.Method)))
		return body || framing != relay.FramingNone
	case body || framing == relay.FramingChunked:
		c.option("-X HEAD --max-time 10")
		return true
	}
	c.option("--head")
	return false
}

// target gives the request-target as it was sent. In a URL curl codes what is not
// ASCII, and leaves out what comes behind a #.
func (c *curl) target(e *relay.Event, site relay.Site) {
	target := e.Target
	if len(e.Request.Head) > 0 {
		_, target, _ = wire.StartLine(e.Request.Head)
	}
	other := func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' }
	if len(target) > 0 && target[0] == '/' && bytes.IndexFunc(target, other) < 0 {
		c.option(quoted([]byte(site.AliasURL(e.Alias) + string(target))))
		return
	}
	c.option("--request-target " + quoted(target))
	c.option(quoted([]byte(site.AliasURL(e.Alias) + "/")))
}

// headers gives the lines, but for those that curl makes of the body.
func (c *curl) headers(e *relay.Event, bodied bool) {
	added := map[string]bool{"user-agent": true, "accept": true, "content-type": true, "expect": true}
	for _, f := range wire.Fields(e.Request.Head) {
		lower := strings.ToLower(string(f.Name))
		delete(added, lower)
		switch {
		case lower == "content-length" && bodied:
		case len(f.Value) == 0: // with a colon curl would take the line out
			c.option("-H " + quoted([]byte(string(f.Name)+";")))
		default:
			c.option("-H " + quoted([]byte(string(f.Name)+": "+string(f.Value))))
		}
	}
	for _, name := range []string{"User-Agent", "Accept", "Content-Type", "Expect"} {
		if added[strings.ToLower(name)] {
			c.option("-H '" + name + ":'")
		}
	}
}

// plainArgument tells whether bytes can stand in a quoted word of a command as they
// are, and be read by people there.
func plainArgument(p []byte) bool {
	if !utf8.Valid(p) {
		return false
	}
	for _, line := range strings.FieldsFunc(string(p), func(r rune) bool { return r == '\n' || r == '\t' }) {
		if !IsSafeText(line) {
			return false
		}
	}
	return true
}

// quoted is one word of a POSIX shell.
func quoted(p []byte) string {
	if plainArgument(p) {
		return "'" + strings.ReplaceAll(string(p), "'", `'\''`) + "'"
	}
	return `"$(printf '` + octal(p) + `')"`
}

// octal is a format of printf that gives exactly p. A minus at its start would be an
// option, and within double quotes a shell with a history reads a !.
func octal(p []byte) string {
	var b strings.Builder
	for i, c := range p {
		switch {
		case c == '%':
			b.WriteString("%%")
		case c == '\\' || c == '\'' || c == '!' || c < 0x20 || c >= 0x7f || c == '-' && i == 0:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
