package record

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"relay"
	reading "relay/record/body"
	"relay/wire"
)

const (
	// inlineCURL is the largest body, in bytes, that is an argument of the command, because systems
	// limit the length of an argument. Larger bodies come on standard input.
	inlineCURL = 64 << 10
	// pipedPiece is the number of bytes of a larger body that one printf writes.
	pipedPiece = 16 << 10
)

// CURL returns a POSIX shell command that sends the request of an event to its alias again: method, target,
// header lines in their order and every byte of the body. The command switches off the header lines that curl
// adds by default; Host and the framing lines come at the places that curl chooses. A body larger than
// MaxBody is read from a file. Without that file the command fails, and names the file to save.
func CURL(e *relay.Event, site relay.Site) string {
	c := &curl{}
	body := e.Request.Body
	inFile := int64(len(body.Data)) < body.Size || body.Size > MaxBody
	asArgument := body.Size <= inlineCURL && plainArgument(body.Data)
	file := e.ID.String() + "-request.body"
	switch {
	case inFile:
		fmt.Fprintf(&c.b, "if [ -f %s ] && [ \"$(wc -c <%s | tr -d ' ')\" = %d ]; then\n", file, file, body.Size)
	case !asArgument:
		c.pipe(body.Data)
	}
	c.b.WriteString("curl -sS -i --globoff --path-as-is")
	c.option(map[bool]string{true: "--http1.0", false: "--http1.1"}[e.HTTPMinor == 0])
	bodied := c.method(e)
	c.target(e, site)
	c.headers(e, bodied)
	switch {
	case !bodied:
	case inFile:
		c.option("--data-binary @" + file)
	case asArgument:
		c.option("--data-raw " + quoted(body.Data))
	default:
		c.option("--data-binary @-")
	}
	if inFile {
		say := fmt.Sprintf("nothing was sent: save the body of the request, all %d bytes, as %s in this folder; it is at ", body.Size, file)
		c.b.WriteString("\nelse\n  echo " + quoted([]byte(say+site.URL("/api/v1/events/"+e.ID.String()+"/request.body"))) + " >&2\n  false\nfi")
	}
	return c.b.String() + "\n"
}

type curl struct{ b strings.Builder }

func (c *curl) option(s string) { c.b.WriteString(" \\\n  " + s) }

// pipe writes bytes to the standard input of the command that follows. Each printf gets only a part of
// the bytes, because in some shells printf is a program, whose arguments are limited in size.
func (c *curl) pipe(p []byte) {
	c.b.WriteString("{ ")
	for first := true; len(p) > 0; first = false {
		piece := p
		if len(p) > pipedPiece {
			piece = reading.WholeRunes(p[:pipedPiece])
		}
		p = p[len(piece):]
		if !first {
			c.b.WriteString(" &&\n")
		}
		if plainArgument(piece) {
			c.b.WriteString("printf %s " + quoted(piece))
		} else {
			c.b.WriteString("printf '" + octal(piece) + "'")
		}
	}
	c.b.WriteString("; } | ")
}

// method adds the method and reports whether curl sends a body, even an empty one, with its framing. With
// --head curl sends no body, so a HEAD request with a body gets -X HEAD. curl then waits for a response body
// that never comes, so its time is limited to 10 s.
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

// target adds the request target exactly as it was sent. In a URL, curl would encode bytes that are not
// ASCII, and drop everything after a #.
func (c *curl) target(e *relay.Event, site relay.Site) {
	target := sentTarget(e)
	if plainTarget(target) {
		c.option(quoted([]byte(site.AliasURL(e.Alias) + string(target))))
		return
	}
	c.option("--request-target " + quoted(target))
	c.option(quoted([]byte(site.AliasURL(e.Alias) + "/")))
}

// headers adds the header lines of the request, except Content-Length if curl sends a body: curl adds that line
// itself. It switches off the other lines that curl would add and the request does not have.
func (c *curl) headers(e *relay.Event, bodied bool) {
	added := map[string]bool{"user-agent": true, "accept": true, "content-type": true, "expect": true}
	for _, f := range wire.Fields(e.Request.Head) {
		lower := strings.ToLower(string(f.Name))
		delete(added, lower)
		switch {
		case lower == "content-length" && bodied:
		case len(f.Value) == 0: // for "Name:" curl would send no line; "Name;" makes it send a line without a value
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

// plainArgument reports whether bytes are readable and can be used unchanged in a quoted word of a
// command.
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

// quoted returns bytes as one word of a POSIX shell.
func quoted(p []byte) string {
	if plainArgument(p) {
		return "'" + strings.ReplaceAll(string(p), "'", `'\''`) + "'"
	}
	return `"$(printf '` + octal(p) + `')"`
}

// octal returns a printf format that prints exactly p. It escapes a minus at the start, which would be
// an option, and !, which a shell with history expands within double quotes.
func octal(p []byte) string {
	var b strings.Builder
	b.Grow(len(p))
	for i, c := range p {
		switch {
		case c == '%':
			b.WriteString("%%")
		case c == '\\' || c == '\'' || c == '!' || c < 0x20 || c >= 0x7f || c == '-' && i == 0:
			b.WriteByte('\\')
			b.WriteByte('0' + c>>6)
			b.WriteByte('0' + c>>3&7)
			b.WriteByte('0' + c&7)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
