package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"relay"
	"relay/record/body"
	"relay/wire"
)

// ExportFormats are the formats of Export.
var ExportFormats = []string{"curl", "har", "json", "go", "js", "python"}

// Exported is an event in a format that other programs read.
type Exported struct {
	Type string // media type
	Name string // name of the file
	Body []byte
}

// Export returns an event in one of ExportFormats. The event must be read with its bodies, up to MaxBody. The
// argument creator is the version of the program, and now is the present time, on which a warning depends. All
// bodies together, as JSON, have at most the number most of bytes; bodies beyond this limit are left out and
// marked as truncated. Errors: validation-failed for another format, and the errors of ExportRefusal.
func Export(e *relay.Event, format string, site relay.Site, creator string, now time.Time, most int64) (_ *Exported, err error) {
	// Browsers show every program as plain text, whatever its language.
	out := &Exported{Type: "text/plain; charset=utf-8", Name: e.ID.String()}
	if refused := ExportRefusal(e, format); refused != nil {
		return nil, refused
	}
	switch format {
	case "curl":
		out.Body = []byte(CURL(e, site))
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
	default:
		p := programs[format]
		out.Name = p.before + out.Name + p.after
		out.Body, err = p.fill(e)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Number of copies of an event that Export holds at most. har and json need the event, its record, and the
// file before and after it is indented. A program or a command has up to four bytes for each byte, and is
// held twice.
const recordCopies, programCopies = 4, 10

// ExportWeight returns roughly the number of bytes of memory that Export needs with the same arguments.
func ExportWeight(e *relay.Event, format string, most int64) int64 {
	n := e.HeldBytes()
	isCoded := func(a relay.Attempt) bool { return len(body.LabelOf(a.Response.Head).Codings) > 0 }
	switch {
	case format == "har" && slices.ContainsFunc(e.Attempts, isCoded):
		return recordCopies * (n + min(most, maxHARUnpacked))
	case format == "har" || format == "json":
		return recordCopies * n
	}
	return programCopies * n
}

// ExportRefusal returns the reason why an event cannot be exported in a format, nil if it can. All formats
// except json send the request again. If a format cannot send exactly the received bytes, it is refused,
// and the error names the formats that can. Of a body that is not completely in memory, only the beginning
// is checked. Errors: event-not-replayable if the request was not stored completely, conflict if another
// format can send it, validation-failed for an unknown format.
func ExportRefusal(e *relay.Event, format string) *relay.Error {
	if !slices.Contains(ExportFormats, format) {
		known := "expected one of " + strings.Join(ExportFormats, ", ")
		return &relay.Error{
			Code: relay.CodeValidationFailed, Detail: "query.format: " + known,
			Fields: []relay.FieldError{{Location: "query.format", Message: known}},
		}
	}
	if format == "json" {
		return nil
	}
	if e.Blocker != "" && e.Blocker != relay.BlockedUpgraded || e.Request.Body.State != relay.BodyComplete {
		refused := relay.Errorf(relay.CodeEventNotReplayable, "this request was not stored completely, so it cannot be exported exactly; use the format json, or request.raw")
		if refused.Reason = e.Blocker; refused.Reason == "" {
			refused.Reason = relay.BlockedIncomplete
		}
		return refused
	}
	why := exportFault(e, format)
	if why == "" {
		return nil
	}
	var can []string
	for _, other := range ExportFormats {
		if other != "json" && exportFault(e, other) == "" {
			can = append(can, other)
		}
	}
	if len(can) == 0 {
		return relay.Errorf(relay.CodeConflict, "%s; request.raw has the exact bytes", why)
	}
	return relay.Errorf(relay.CodeConflict, "%s; export it as %s, or take request.raw, which has the exact bytes", why, strings.Join(can, ", "))
}

// exportFault returns the property of a completely stored request that a format cannot express, "" =
// none.
func exportFault(e *relay.Event, format string) string {
	m := &e.Request
	trailers := len(wire.Trailers(m.Lines)) > 0
	switch format {
	case "curl":
		if trailers {
			return "curl sends no trailer lines, and this request has some"
		}
	case "har":
		switch {
		case trailers:
			return "HAR has no place for trailer lines, and this request has some"
		case m.Body.Size > MaxBody:
			return fmt.Sprintf("the body of this request has %d bytes, and a HAR file carries at most 1 MiB", m.Body.Size)
		case !addressTarget.Match(sentTarget(e)):
			return "the target of this request is no valid part of an address (RFC 3986), so that programs that read HAR refuse or change it"
		case slices.ContainsFunc(wire.Fields(m.Head), func(f wire.Field) bool { return !isASCII(f.Value) }):
			return "a header line of this request is not plain ASCII, and programs that read HAR would send other bytes"
		case !body.IsText(m.Body.Data, int64(len(m.Body.Data)) < m.Body.Size):
			return "the body of this request is binary, and HAR carries only text"
		}
	default:
		if m.Body.Size > MaxBody || int64(len(m.Head)+len(m.Lines))+m.Body.Size > maxProgram {
			return "this request is too large to stand in a test, which carries at most 1 MiB"
		}
	}
	return ""
}

// sentTarget returns the request-target as it was sent.
func sentTarget(e *relay.Event) []byte {
	if len(e.Request.Head) == 0 {
		return e.Target
	}
	_, target, _ := wire.StartLine(e.Request.Head)
	return target
}

// plainTarget reports whether a request-target can be used in a URL unchanged.
func plainTarget(target []byte) bool {
	other := func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' }
	return len(target) > 0 && target[0] == '/' && bytes.IndexFunc(target, other) < 0
}

// addressTarget matches path and query of a URI (RFC 3986, 3.3 and 3.4).
var addressTarget = regexp.MustCompile(`^/(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*(?:\?(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?$`)

func isASCII(p []byte) bool {
	return bytes.IndexFunc(p, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}
