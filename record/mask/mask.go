// Package mask hides the secrets of an event from readers without full access. Secrets are the values of
// header lines, query parameters and body fields with names of secrets. Every other occurrence of these
// values is hidden too, in any coding. The time is proportional to the size of the event, even for hostile
// input.
package mask

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"
)

// Masked is shown in place of a secret.
const Masked = "[masked]"

// Masker hides the secrets of one event in two passes. In the first pass it learns the secrets: pass every
// part of the event to it, and discard the results. Then call Learned. In the second pass it hides the
// secrets wherever they occur: pass every part of the event to it again.
type Masker struct {
	learning bool
	secrets  map[string]bool // secrets in normal form
	size     int             // total size of the secrets in bytes
	coded    int             // bytes of the secrets that are searched for in base64
	overflow bool            // there were more than maxSecrets bytes
	patterns *finder
	finder   *finder         // finds the secrets; nil before Learned, and if there are no secrets
	buffer   normal          // normal form of the text that is being masked
	fields   map[string]bool // results of secretField by name
	headers  map[string]bool // results of secretHeader by name
	scans    []*jsonScan     // unused scans
	pieces   int             // pieces of compressed data in base64 so far, since Learned
	unpacked int             // bytes of the decompressed texts so far
}

// maxFields is the largest number of names in each of the maps fields and headers.
const maxFields = 1024

// secretField is the function secretField with a cache, because most names occur many times in a body.
func (m *Masker) secretField(name []byte) bool { return kept(m.fields, name, secretField) }

// secretHeader is the function secretHeader with a cache.
func (m *Masker) secretHeader(name string) bool {
	return kept(m.headers, []byte(name), func(name []byte) bool { return secretHeader(string(name)) })
}

// kept returns the result of the function secret for a name, and keeps it in the map known. Names of at most
// two bytes are never names of secrets.
func kept(known map[string]bool, name []byte, secret func(name []byte) bool) bool {
	if len(name) < 3 {
		return false
	}
	is, ok := known[string(name)]
	if !ok {
		if is = secret(name); len(known) < maxFields && len(name) <= maxName {
			known[string(name)] = is
		}
	}
	return is
}

// New returns a Masker in its learning phase. host is the host of the request, which is hidden because
// it could identify the owner; "" = unknown.
func New(host string) *Masker {
	m := &Masker{learning: true, secrets: map[string]bool{}, patterns: newFinder(), fields: map[string]bool{}, headers: map[string]bool{}}
	if strings.Contains(host, ".") {
		m.learn([]byte(host))
	}
	return m
}

// Learned ends the phase in which the Masker learns secrets. From then on, it hides them.
func (m *Masker) Learned() {
	m.pieces, m.unpacked = 0, 0
	if m.learning = false; len(m.secrets) > 0 {
		m.patterns.build()
		m.finder = m.patterns
	}
}

// Secret adds a value to the known secrets, whatever its name is: the calling function knows that the sender puts
// its secret in this place.
func (m *Masker) Secret(value string) { m.learn([]byte(value)) }

// learn adds a value to the known secrets.
func (m *Masker) learn(value []byte) {
	if m.learning && len(value) >= minSecret {
		m.learnNormal(normalise(value, &m.buffer).p, value)
	}
}

// learnNormal adds a value, whose normal form is p, to the known secrets.
func (m *Masker) learnNormal(p, value []byte) {
	p = bytes.TrimSpace(p)
	if !m.learning || len(p) < minSecret || m.secrets[string(p)] || isCommon(p) {
		return
	}
	kind := matchWithin
	switch {
	case len(p) < minWithin:
		kind = matchAlone
	case len(p) > maxPattern:
		p, kind = p[:maxPattern], matchStart
	}
	if m.size += len(p); m.size > maxSecrets {
		m.overflow = true
		return
	}
	m.secrets[string(p)] = true
	m.patterns.add(p, kind)
	if len(value) < minWithin || len(value) > maxPattern || m.coded+len(value) > maxCoded {
		return
	}
	m.coded += len(value)
	for _, form := range codedForms(string(value)) {
		m.patterns.add([]byte(form), matchCoded)
	}
}

// isCommon reports whether a value is so common that most of its occurrences are not secret.
func isCommon(p []byte) bool {
	digits, letters := 0, 0
	for _, c := range p {
		switch {
		case c >= '0' && c <= '9':
			digits++
		case isWord(c):
			letters++
		}
	}
	return bytes.Contains(p, []byte(Masked)) || digits == 0 && len(p) < 20 && strongName(p) || digits+letters < minSecret || digits == len(p) && digits < minDigits || slices.Contains(commonValues, strings.ToLower(string(p[:min(len(p), maxName)])))
}

var commonValues = []string{
	"true", "false", "null", "none", "undefined", "bearer", "basic", "digest", "anonymous", "required", "optional", "string", "number", "default",
	"test", "http", "https", "application/json", "localhost", "example.com", "user", "admin",
}

// isKnown reports whether a number in JSON is a known secret. It returns false in the learning phase.
func (m *Masker) isKnown(number []byte) bool { return m.finder != nil && m.secrets[string(number)] }

// known hides only the known secrets in a text.
func (m *Masker) known(out *edits, s []byte, base int) {
	if m.finder == nil || len(s) < minSecret {
		return
	}
	n := normalise(s, &m.buffer)
	m.finder.find(n, func(from, to int) {
		start, end := n.piece(from, to)
		out.add(base+start, base+end, Masked)
	})
}

// masked returns a text without the secrets that the function read finds in it.
func (m *Masker) masked(s []byte, read func(m *Masker, out *edits, s []byte, base int)) (masked []byte, changed bool) {
	var out edits
	read(m, &out, s, 0)
	return out.apply(s)
}

// Text hides secrets in a text of unknown form, such as the value of a header line.
func (m *Masker) Text(s string) string {
	if len(s) < minSecret {
		return s
	}
	if masked, changed := m.masked([]byte(s), (*Masker).text); changed {
		return string(masked)
	}
	return s
}

// Target hides the secret values in the query and fragment of a request-target, and the known secrets in its
// path.
func (m *Masker) Target(target string) string {
	masked, _ := m.masked([]byte(target), func(m *Masker, out *edits, s []byte, base int) {
		at := bytes.IndexAny(s, "?#") + 1
		if at == 0 {
			at = len(s)
		}
		m.known(out, s[:at], base)
		m.form(out, s[at:], base+at)
	})
	return string(masked)
}

// Header returns the value of a header line without its secrets; changed is false if it has none. If the
// value contains host, which could identify the owner, the whole value is hidden.
func (m *Masker) Header(name, value, host string) (masked string, changed bool) {
	switch {
	case m.secretHeader(name):
		if !OwnerHeader(name) {
			m.learnHeader(value)
		}
		return Masked, true
	case host != "" && strings.Contains(strings.ToLower(value), host):
		return Masked, true
	}
	masked = m.Text(value)
	return masked, masked != value
}

// learnHeader adds the credentials in a header line to the known secrets. In Bearer S, in a=S; b=S and in
// t=1,v1=S each S is a credential; in Basic S the decoded password is one too.
func (m *Masker) learnHeader(value string) {
	if !m.learning {
		return
	}
	m.learn([]byte(value))
	for piece := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == ' ' || r == ',' || r == ';' }) {
		if _, credentials, ok := strings.Cut(piece, "="); ok && strings.Trim(credentials, "=") != "" {
			piece = strings.Trim(credentials, `"`)
		}
		if len(piece) < 2*minWithin && !strings.HasPrefix(value, "B") {
			continue // too short, such as the time of a signature
		}
		m.learn([]byte(piece))
		if plain, err := base64.StdEncoding.DecodeString(piece); err == nil && strings.HasPrefix(value, "Basic ") {
			_, password, _ := bytes.Cut(plain, []byte(":"))
			m.learn(password)
		}
	}
}
