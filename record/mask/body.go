package mask

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"relay/record/body"
)

// Body returns the text of a body without its secrets. changed reports that something was hidden. whole is false
// if a part was left out that could not be read, or the end of the body is missing. The text of a binary body is
// its bytes, or empty if the bytes may contain a secret.
func (m *Masker) Body(r *body.Reading) (text string, changed, whole bool) {
	switch {
	case m.overflow, r.Form == body.Binary && !m.isHarmless(r.Text):
		return "", true, false
	case r.Form == body.Binary:
		return string(r.Text), false, !r.Cut
	}
	var out edits
	whole = m.reading(&out, r, 0) && !r.Cut
	masked, changed := out.apply(r.Text)
	return strings.ToValidUTF8(string(masked), "\ufffd"), changed, whole
}

// reading hides the secrets of a body, and reports whether all of it could be read. out gets the edits of a text
// in which the text of the body begins at the index base.
func (m *Masker) reading(out *edits, r *body.Reading, base int) (whole bool) {
	form := r.Form
	if form == body.JSON && !body.StartsJSON(r.Text) {
		form = body.Text // only the label says that the text is JSON
	}
	switch form {
	case body.Empty:
		return true
	case body.JSON:
		at := len(r.Text)
		for _, fault := range r.Faults {
			if fault.At >= 0 {
				at = min(at, fault.At)
			}
		}
		m.json(out, r.Text[:at], base)
		if at < len(r.Text) {
			out.add(base+at, base+len(r.Text), "")
		}
		return at == len(r.Text)
	case body.JSONLines:
		return m.lines(out, r, base)
	case body.URLEncoded:
		m.form(out, r.Text, base)
	case body.Multipart:
		return m.multipart(out, r, base)
	case body.Binary:
		out.add(base, base+len(r.Text), fmt.Sprintf("[%d bytes are not shown]", len(r.Text)))
		return false
	default:
		if body.LooksLikeForm(r.Text) {
			m.form(out, r.Text, base)
		} else {
			m.text(out, r.Text, base)
		}
	}
	return true
}

// archives are the first bytes of compressed files: gzip, zip, rar, zstd, xz, bzip2, lz4, 7z, and zlib
// with default settings. Secrets in them are not visible in the bytes.
var archives = []string{"\x1f\x8b", "PK\x03\x04", "Rar!", "\x28\xb5\x2f\xfd", "\xfd7zXZ", "BZh", "\x04\x22\x4d\x18", "7z\xbc\xaf", "\x78\x9c", "\x78\x01", "\x78\xda"}

// isHarmless reports whether bytes can be shown. They must contain no known secret and be no archive. In
// addition, they must be an image, audio or video, or contain no text.
func (m *Masker) isHarmless(p []byte) bool {
	var out edits
	if m.known(&out, p, 0); len(out.list) > 0 || slices.ContainsFunc(archives, func(start string) bool { return bytes.HasPrefix(p, []byte(start)) }) {
		return false
	}
	kind, _, _ := strings.Cut(http.DetectContentType(p), "/")
	if kind == "image" || kind == "audio" || kind == "video" {
		return true
	}
	run := 0
	for _, c := range p {
		if run++; c < 0x20 || c >= 0x7f {
			run = 0
		}
		if run >= minDigits {
			return false
		}
	}
	return true
}

// lines hides the secrets of JSON lines. A line with a fault is treated as text.
func (m *Masker) lines(out *edits, r *body.Reading, base int) (whole bool) {
	done := 0
	for _, d := range r.Documents {
		read := m.json
		if d.Fault {
			read = m.text
		}
		read(out, r.Text[d.Start:d.End], base+d.Start)
		done = d.End
	}
	if len(bytes.TrimSpace(r.Text[done:])) > 0 {
		out.add(base+done, base+len(r.Text), "")
		return false
	}
	return true
}

// multipart hides the content of parts with the name of a secret, and the secrets in the other parts.
func (m *Masker) multipart(out *edits, r *body.Reading, base int) (whole bool) {
	whole = true
	done := 0
	for i := range r.Parts {
		part := &r.Parts[i]
		if len(part.Raw) == 0 {
			continue
		}
		at := part.At
		m.text(out, r.Text[done:at], base+done)
		switch done = at + len(part.Raw); {
		case m.secretField([]byte(part.Name)):
			m.learn(part.Text)
			if value := bytes.TrimRight(part.Raw, "\r\n"); len(value) > 0 {
				out.add(base+at, base+at+len(value), Masked)
			}
		case bytes.Equal(part.Text, part.Raw):
			whole = m.reading(out, part.Reading, base+at) && whole
		default: // the part has its own coding or charset, and is shown decoded
			var inner edits
			whole = m.reading(&inner, part.Reading, 0) && whole
			plain, _ := inner.apply(part.Text)
			out.add(base+at, base+done, string(plain))
		}
	}
	rest := r.Text[done:]
	if len(r.Parts) == 0 || len(rest) > maxRest {
		out.add(base+done, base+len(r.Text), "")
		return false
	}
	m.text(out, rest, base+done)
	return whole
}

// maxRest is the number of bytes that may follow the last part that was read of a multipart body. More bytes
// are taken for unread parts.
const maxRest = 1 << 10

// oauthFields are field names of OAuth. In a form with one of them, the field code is a secret.
var oauthFields = []string{"grant_type", "client_id", "redirect_uri", "code_verifier", "state"}

// form hides the secret values of a query or of a URL-encoded form, also in a field whose value is JSON.
// All other text keeps its spelling. A secret value ends only at &, because it may contain ; and #. Other
// values also end at ; and #.
func (m *Masker) form(out *edits, s []byte, base int) {
	oauth := slices.ContainsFunc(oauthFields, func(name string) bool { return bytes.Contains(s, []byte(name+"=")) })
	for i := 0; i < len(s); {
		end := i + indexOf(s[i:], "&;#")
		name, value, given := bytes.Cut(s[i:end], []byte("="))
		plainName := body.Unescape(name)
		at := i + len(name) + 1
		if given {
			m.known(out, name, base+i)
		}
		switch {
		case !given:
			m.text(out, name, base+i)
		case len(value) == 0:
		case m.secretField(plainName), bytes.EqualFold(plainName, []byte("code")) && (oauth || looksLikeCode(value)):
			end = i + indexOf(s[i:], "&")
			m.learn(body.Unescape(s[at:end]))
			out.add(base+at, base+end, Masked)
		case secretAddress(plainName):
			m.learn(body.Unescape(value))
			out.add(base+at, base+end, Masked)
		default:
			m.formValue(out, value, base+at)
		}
		i = end + 1
	}
}

// formValue hides the secrets in the value of a field: JSON, or any text.
func (m *Masker) formValue(out *edits, value []byte, base int) {
	if body.StartsJSON(body.Unescape(value[:min(len(value), 3*maxName)])) {
		j := m.scan()
		defer m.done(j)
		if j.inner.unescape(value); json.Valid(j.inner.plain) {
			j.inner.mask(m, out, base, url.QueryEscape)
			return
		}
	}
	m.text(out, value, base)
}
