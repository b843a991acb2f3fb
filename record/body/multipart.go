package body

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"mime"
	"mime/quotedprintable"
	"strings"
)

const (
	maxParts   = 1000 // parts of a multipart body that are read, including nested parts
	maxNesting = 3    // depth of nested multipart bodies
)

// Part is one part of a multipart body.
type Part struct {
	Name, File string // names of the field and of the file, from Content-Disposition
	Raw        []byte // content of the part as sent
	At         int    // start of Raw in the text of the multipart body
	*Reading          // reading of the content; its faults include those of the header of the part
}

// delimiter is the place of a boundary line in a body.
type delimiter struct {
	before, after int  // end of the content before the boundary, start of the content after it
	closes        bool // the boundary line is the last one: -- follows the boundary
}

// nextDelimiter finds the first boundary line that begins at p[from] or later. A boundary line consists of dash
// (two hyphens and the boundary), two more hyphens if it is the last one, and spaces.
func nextDelimiter(p []byte, from int, dash []byte) (d delimiter, ok bool) {
	for at := from; ; {
		n := bytes.Index(p[at:], dash)
		if n < 0 {
			return d, false
		}
		d.before = at + n
		at = d.before + len(dash)
		if d.before > 0 && p[d.before-1] != '\n' {
			continue
		}
		rest := p[at:]
		d.closes = bytes.HasPrefix(rest, []byte("--"))
		if d.closes {
			rest = rest[2:]
		}
		blank := rest[:min(len(rest), 256)]
		rest = rest[len(blank)-len(bytes.TrimLeft(blank, " \t")):]
		if len(rest) == 0 {
			d.after = len(p)
		} else if rest[0] == '\n' {
			d.after = len(p) - len(rest) + 1
		} else if bytes.HasPrefix(rest, []byte("\r\n")) {
			d.after = len(p) - len(rest) + 2
		} else {
			continue
		}
		if d.before > from && p[d.before-1] == '\n' {
			if d.before--; d.before > from && p[d.before-1] == '\r' {
				d.before--
			}
		}
		return d, true
	}
}

// multipart reads the parts of a body. A malformed part does not hide the others. It returns false if
// there is no part.
func (r *reader) multipart(out *Reading, p []byte, depth int) bool {
	dash := []byte("--" + out.Label.Boundary)
	d, ok := nextDelimiter(p, 0, dash)
	if out.Label.Boundary == "" || !ok {
		line, _, _ := bytes.Cut(p[:min(len(p), 256)], []byte("\n"))
		dash = bytes.TrimRight(line, "\r \t")
		if ok = len(dash) > 2 && bytes.HasPrefix(dash, []byte("--")); ok {
			d, ok = nextDelimiter(p, 0, dash)
		}
		if !ok {
			out.fault(-1, "no part of a multipart body was found")
			return false
		}
		out.fault(-1, "the boundary of the label is not in it; its first line was taken for one")
	}
	if preamble := bytes.TrimSpace(p[:d.before]); len(preamble) > 0 {
		out.fault(0, fmt.Sprintf("%d bytes before the first part are not shown", len(preamble)))
	}
	add := func(from, to int, cut bool) {
		part := r.part(p[from:to], cut, depth)
		part.At = to - len(part.Raw) // the end of the part minus its content, because its header comes first
		out.Parts = append(out.Parts, part)
	}
	for !d.closes {
		if r.parts++; r.parts > maxParts {
			out.fault(-1, fmt.Sprintf("only the first %d parts were read", maxParts))
			return true
		}
		from := d.after
		if d, ok = nextDelimiter(p, from, dash); !ok {
			add(from, len(p), true)
			if !r.cut {
				out.fault(len(p), "the last part has no end")
			}
			return true
		}
		add(from, max(from, d.before), false)
	}
	if epilogue := bytes.TrimSpace(p[d.after:]); len(epilogue) > 0 {
		out.fault(d.after, fmt.Sprintf("%d bytes behind the last part are not shown", len(epilogue)))
	}
	return true
}

// part reads one part: its header and its content.
func (r *reader) part(p []byte, cut bool, depth int) Part {
	var part Part
	var kind, transfer string
	faults := &Reading{}
	head, content := partHead(p, faults)
	for len(head) > 0 {
		var line []byte
		line, head, _ = bytes.Cut(head, []byte("\n"))
		line = bytes.TrimSuffix(line, []byte("\r"))
		for len(head) > 0 && (head[0] == ' ' || head[0] == '\t') { // a continuation line
			var next []byte
			next, head, _ = bytes.Cut(head, []byte("\n"))
			line = append(line[:len(line):len(line)], bytes.TrimSuffix(next, []byte("\r"))...)
			if len(line) > maxPartLine {
				break
			}
		}
		name, value, ok := strings.Cut(string(line), ":")
		switch name = strings.ToLower(strings.TrimSpace(name)); {
		case !ok:
			faults.fault(-1, "a line of its header has no colon: "+quote(string(line)))
		case name == "content-disposition":
			part.disposition(value)
		case name == "content-type":
			kind = value
		case name == "content-transfer-encoding":
			transfer = strings.ToLower(strings.TrimSpace(value))
		}
		if len(faults.Faults) > 3 { // with so many faulty lines this is probably no header, so the rest of it is not read
			break
		}
	}
	part.Raw = content
	content, fault := transferred(transfer, content, cut)
	if fault != "" {
		faults.fault(-1, fault)
	}
	part.Reading = r.read(NewLabel(kind), content, cut, depth+1)
	part.Faults = append(faults.Faults, part.Faults...)
	return part
}

// maxPartLine bounds a header line of a part, including its continuation lines, in bytes.
const maxPartLine = 8 << 10

// partHead splits a part at its first blank line. A part without a blank line is all content, unless
// it begins like a header.
func partHead(p []byte, faults *Reading) (head, content []byte) {
	if bytes.HasPrefix(p, []byte("\n")) || bytes.HasPrefix(p, []byte("\r\n")) {
		return nil, p[1+bytes.IndexByte(p, '\n'):]
	}
	for at := 0; ; {
		n := bytes.IndexByte(p[at:], '\n')
		if n < 0 {
			break
		}
		at += n + 1
		if rest := bytes.TrimPrefix(p[at:], []byte("\r")); len(rest) > 0 && rest[0] == '\n' {
			return p[:at], rest[1:]
		}
	}
	line, _, _ := bytes.Cut(p, []byte("\n"))
	if name, _, ok := bytes.Cut(line, []byte(":")); ok && len(p) < maxPartLine && bytes.HasPrefix(bytes.ToLower(name), []byte("content-")) {
		faults.fault(-1, "its header does not end")
		return p, nil
	}
	return nil, p
}

// disposition reads the names of the field and of the file.
func (part *Part) disposition(value string) {
	_, rest, _ := strings.Cut(value, ";")
	parameters(rest, func(name, text string) {
		switch name {
		case "name":
			part.Name = text
		case "filename":
			if part.File == "" {
				part.File = text
			}
		case "filename*": // encoded as in RFC 8187
			charset, coded, _ := strings.Cut(text, "'")
			_, coded, _ = strings.Cut(coded, "'")
			plain, _ := unescapeForm([]byte(strings.ReplaceAll(coded, "+", "%2B")))
			plain, _, _ = inUTF8(strings.ToLower(charset), plain, len(plain)*4)
			part.File = string(plain)
		}
	})
	var words mime.WordDecoder // some senders encode the name as in mails (RFC 2047)
	if name, err := words.DecodeHeader(part.File); err == nil {
		part.File = name
	}
}

// transferred decodes the transfer encoding of a part.
func transferred(encoding string, p []byte, cut bool) (content []byte, fault string) {
	switch encoding {
	case "base64":
		raw := bytes.Map(func(c rune) rune {
			if c <= ' ' {
				return -1
			}
			return c
		}, p)
		out := make([]byte, base64.StdEncoding.DecodedLen(len(raw)))
		n, err := base64.StdEncoding.Decode(out, raw)
		if err != nil && n == 0 {
			return p, "it says base64, but is not"
		} else if err != nil && !cut {
			fault = "its base64 is damaged"
		}
		return out[:n], fault
	case "quoted-printable":
		out, err := io.ReadAll(quotedprintable.NewReader(bytes.NewReader(p)))
		if err != nil {
			return p, "its quoted-printable text is damaged, and stands as it is"
		}
		return out, ""
	}
	return p, ""
}
