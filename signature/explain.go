package signature

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Limits of an explanation: bytes of a body that is tried in other forms, bytes of an indented form, and
// the number of computed digests.
const (
	maxBody  = 1 << 20
	maxForm  = 4 * maxBody
	maxTried = 40
)

// Report is a verdict with the reason of a failure: the tries that were made, and the parts of the
// request that a user should check.
type Report struct {
	Verdict
	Signature SignatureLine `json:"signature"`
	Signed    SignedBytes   `json:"signedBytes"`
	Tried     []string      `json:"tried" doc:"what was tried to find the reason"`
	Checks    []Check       `json:"checks"`
}

// SignatureLine is the header line with the signature, split into its parts.
type SignatureLine struct {
	Header string `json:"header"`
	Parts  []Part `json:"parts"`
}

// SignedBytes describes the bytes that the sender signs.
type SignedBytes struct {
	Length   int    `json:"length"`
	SHA256   string `json:"sha256"`
	Template string `json:"template" doc:"{t} is the time as sent, {b} the body, {id} the message id"`
}

// Check is one step of the verification.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// Names of checks whose details may repeat a part of the request.
const (
	CheckForm   = "signature well-formed"
	CheckTime   = "signed time readable"
	CheckDigest = "digest equal"
)

// Explain verifies a request as Verify does. If no secret fits, it tries common mistakes, with at most
// maxTried digests. The mistakes are the secret read in another way, a secret of another sender, a
// rewritten body, another URL, or another scheme. others are the secrets of the alias that are not for this
// request.
func Explain(p *Sender, secrets, others []Secret, r *Request, at time.Time) Report {
	s := p.SchemeOf(r)
	if s == nil {
		return Report{
			Verdict: Verdict{Verdict: Unchecked, Reason: NoSecret, Message: p.Name + " does not sign its requests, as far as is known here"},
			Tried:   []string{}, Checks: []Check{}, Signature: SignatureLine{Parts: []Part{}},
		}
	}
	got := s.read(r)
	out := Report{Verdict: s.judge(&got, secrets, r, at), Tried: []string{}}
	out.Signature = SignatureLine{Header: got.header, Parts: got.parts}
	if out.Signature.Parts == nil {
		out.Signature.Parts = []Part{}
	}
	signed := s.signedText(r, &got)
	sum := sha256.Sum256(signed)
	out.Signed = SignedBytes{Length: len(signed), SHA256: hex.EncodeToString(sum[:]), Template: s.template()}
	if out.Verdict.Verdict == Invalid && (out.Reason == WrongSecret || out.Reason == SecretEncoding) && len(r.Body) <= maxBody {
		t := trial{sender: p, scheme: s, got: &got, r: r, report: &out}
		t.run(secrets, others)
	}
	out.Checks = s.checks(&got, &out.Verdict, at)
	return out
}

// template describes the signed text.
func (s *Scheme) template() string {
	if s.own != nil {
		return s.own.describe
	}
	return s.Signed
}

// checks lists the steps of the verification with their results.
func (s *Scheme) checks(got *reading, v *Verdict, at time.Time) []Check {
	list := []Check{
		{"signature present", got.present, s.place()},
		{CheckForm, got.present && got.fault == "", formDetail(got)},
	}
	if s.timed() {
		check := Check{CheckTime, !v.SignedAt.IsZero(), got.time}
		list = append(list, check)
		if check.OK {
			list = append(list, s.timeCheck(v, at))
		}
	}
	fits := v.Verdict == Valid || v.Verdict == Expired
	detail := "a secret fits"
	if !fits {
		detail = v.Message
	}
	return append(list, Check{CheckDigest, fits, detail})
}

func formDetail(got *reading) string {
	if !got.present {
		return "there is no signature"
	}
	switch got.fault {
	case "":
		if len(got.digests) == 1 {
			return "1 signature of a known version"
		}
		return fmt.Sprintf("%d signatures of a known version", len(got.digests))
	case unknownVersion:
		return "only versions that Relay does not check: " + shortText(strings.Join(got.others, ", "))
	default:
		return got.fault
	}
}

func (s *Scheme) timeCheck(v *Verdict, at time.Time) Check {
	age := at.Sub(v.SignedAt)
	c := Check{Name: "signed time within the tolerance", OK: (s.Old == 0 || age <= s.Old) && (s.Future == 0 || -age <= s.Future)}
	c.Detail = ageText(age) + " old"
	if age < 0 {
		c.Detail = ageText(-age) + " ahead"
	}
	if s.Old > 0 {
		c.Detail += ", refused after " + ageText(s.Old)
	}
	return c
}

// trial searches for the mistake behind a signature that does not match.
type trial struct {
	sender *Sender
	scheme *Scheme
	got    *reading
	r      *Request
	report *Report
	count  int
}

func (t *trial) run(secrets, others []Secret) {
	for _, try := range []func([]Secret) bool{
		t.whitespace, t.encodings,
		func([]Secret) bool { return t.otherSecrets(others) },
		t.bodies, t.urls, t.schemes,
	} {
		if try(secrets) {
			return
		}
	}
}

// fits counts one digest and reports whether a changed request, scheme or secret gives the signature of
// the request.
func (t *trial) fits(s *Scheme, secret Secret, k key, r *Request, got *reading) bool {
	if t.count >= maxTried {
		return false
	}
	t.count++
	if !s.fits(k, r, got) {
		return false
	}
	t.report.SecretID = secret.ID
	return true
}

func (t *trial) found(reason, message string) bool {
	t.report.Reason, t.report.Message = reason, message
	return true
}

func (t *trial) tried(what string) { t.report.Tried = append(t.report.Tried, what) }

func (t *trial) whitespace(secrets []Secret) bool {
	t.tried("the secret without white space around it")
	for _, secret := range secrets {
		trimmed := strings.TrimSpace(strings.Trim(strings.TrimSpace(secret.Value), `"'`))
		if trimmed == secret.Value {
			continue
		}
		if k, err := t.scheme.Key.read(trimmed); err == nil && t.fits(t.scheme, secret, k, t.r, t.got) {
			return t.found(SecretWhitespace, "the secret fits without the white space or quotes around it: store it again without them")
		}
	}
	return false
}

// readings are the ways in which programs turn the text of a secret into a key.
var readings = []struct {
	name string
	read func(string) ([]byte, bool)
}{
	{"as text", func(s string) ([]byte, bool) { return []byte(s), true }},
	{"as base64", func(s string) ([]byte, bool) { b, err := base64.StdEncoding.DecodeString(s); return b, err == nil }},
	{"as hex", func(s string) ([]byte, bool) { b, err := hex.DecodeString(s); return b, err == nil }},
	{"without its prefix", func(s string) ([]byte, bool) { _, rest, ok := strings.Cut(s, "_"); return []byte(rest), ok }},
	{"without its prefix, as base64", func(s string) ([]byte, bool) {
		_, rest, ok := strings.Cut(s, "_")
		b, err := base64.StdEncoding.DecodeString(rest)
		return b, ok && err == nil
	}},
}

func (t *trial) encodings(secrets []Secret) bool {
	if t.scheme.Key == PublicHex || t.scheme.Key == PublicDER || t.scheme.Digest == Equal {
		return false
	}
	t.tried("the secret read as text, base64 and hex, with and without its prefix")
	for _, secret := range secrets {
		for _, reading := range readings {
			raw, ok := reading.read(secret.Value)
			if ok && len(raw) > 0 && t.fits(t.scheme, secret, key{secret: secret.Value, raw: raw}, t.r, t.got) {
				return t.found(SecretEncoding, "the secret fits when it is read "+reading.name+": the sender and the secret's form do not belong together")
			}
		}
	}
	return false
}

func (t *trial) otherSecrets(others []Secret) bool {
	if len(others) == 0 {
		return false
	}
	t.tried("the other secrets of this alias")
	for _, secret := range others {
		if k, err := t.scheme.Key.read(secret.Value); err == nil && t.fits(t.scheme, secret, k, t.r, t.got) {
			return t.found(SecretOfOther, "another secret of this alias fits: the secrets are interchanged")
		}
	}
	return false
}

func (t *trial) bodies(secrets []Secret) bool {
	if !strings.Contains(t.scheme.Signed, "{b}") && t.scheme.own == nil {
		return false
	}
	t.tried("the body parsed and written again, and with other ends of lines")
	var compact bytes.Buffer
	if json.Compact(&compact, t.r.Body) != nil {
		compact.Reset()
	}
	for _, form := range bodyForms { // one at a time, because each may be larger than the body
		changed := *t.r
		if changed.Body = form.of(t.r.Body, compact.Bytes()); len(changed.Body) == 0 || bytes.Equal(changed.Body, t.r.Body) {
			continue
		}
		for _, secret := range secrets {
			if k, err := t.scheme.Key.read(secret.Value); err == nil && t.fits(t.scheme, secret, k, &changed, t.got) {
				return t.found(BodyRewritten, "the signature fits the body "+form.name+": a proxy or program before the relay has rewritten it")
			}
		}
	}
	return false
}

// bodyForms are common forms that a body may have had before a program rewrote it. compact is the body as
// compact JSON, empty if the body is not JSON. The function of returns an empty text if the body has no such
// form.
var bodyForms = []struct {
	name string
	of   func(body, compact []byte) []byte
}{
	{"without the last newline", func(body, _ []byte) []byte { return bytes.TrimRight(body, "\r\n") }},
	{"with a newline at its end", func(body, _ []byte) []byte { return append(bytes.Clone(body), '\n') }},
	{"with LF as the end of lines", func(body, _ []byte) []byte { return unixLines(body) }},
	{"with CRLF as the end of lines", func(body, _ []byte) []byte { return bytes.ReplaceAll(unixLines(body), []byte("\n"), []byte("\r\n")) }},
	{"written as compact JSON", func(_, compact []byte) []byte { return compact }},
	{"written as JSON as JavaScript does", func(_, compact []byte) []byte { return []byte(rewritten(compact, false)) }},
	{"written as JSON with all but ASCII escaped", func(_, compact []byte) []byte { return []byte(rewritten(compact, true)) }},
	{"written as JSON as Python does", func(_, compact []byte) []byte { return []byte(spaced(rewritten(compact, true))) }},
	{"written as JSON with two spaces", func(_, compact []byte) []byte { return indented(compact, "  ") }},
	{"written as JSON with four spaces", func(_, compact []byte) []byte { return indented(compact, "    ") }},
}

func unixLines(body []byte) []byte { return bytes.ReplaceAll(body, []byte("\r\n"), []byte("\n")) }

// indented returns compact JSON on several lines, or nil if the result has more than maxForm bytes: in
// deeply nested arrays each line begins with thousands of spaces.
func indented(compact []byte, unit string) []byte {
	size, depth, quoted := 0, 0, false
	for i := 0; i < len(compact); i++ {
		size++
		switch c := compact[i]; {
		case quoted && c == '\\':
			i, size = i+1, size+1
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			depth++
			size += 1 + depth*len(unit)
		case c == ']' || c == '}':
			depth--
			size += 1 + depth*len(unit)
		case c == ',':
			size += 1 + depth*len(unit)
		case c == ':':
			size++
		}
		if size > maxForm {
			return nil
		}
	}
	var out bytes.Buffer
	if json.Indent(&out, compact, "", unit) != nil {
		return nil
	}
	return out.Bytes()
}

// rewritten returns compact JSON with its strings spelled differently: with as few escapes as possible,
// or with escapes for all characters beyond ASCII.
func rewritten(compact []byte, ascii bool) string {
	var out strings.Builder
	for i := 0; i < len(compact); {
		if compact[i] != '"' {
			out.WriteByte(compact[i])
			i++
			continue
		}
		end := stringEnd(compact, i)
		var text string
		if json.Unmarshal(compact[i:end], &text) != nil {
			out.Write(compact[i:end])
		} else if raw := string(quote(text)); ascii {
			writeASCII(&out, raw)
		} else {
			out.WriteString(raw)
		}
		i = end
	}
	return out.String()
}

// stringEnd returns the index after the JSON string that begins at i.
func stringEnd(p []byte, i int) int {
	for j := i + 1; j < len(p); j++ {
		switch p[j] {
		case '\\':
			j++
		case '"':
			return j + 1
		}
	}
	return len(p)
}

func writeASCII(out *strings.Builder, text string) {
	for _, c := range text {
		switch {
		case c < 0x80:
			out.WriteRune(c)
		case c > 0xffff:
			c -= 0x10000
			fmt.Fprintf(out, `\u%04x\u%04x`, 0xd800+c>>10, 0xdc00+c&0x3ff)
		default:
			fmt.Fprintf(out, `\u%04x`, c)
		}
	}
}

// spaced adds the spaces that Python writes after commas and colons.
func spaced(compact string) string {
	var out strings.Builder
	for i := 0; i < len(compact); {
		if compact[i] == '"' {
			end := stringEnd([]byte(compact[i:]), 0) + i
			out.WriteString(compact[i:end])
			i = end
			continue
		}
		out.WriteByte(compact[i])
		if compact[i] == ',' || compact[i] == ':' {
			out.WriteByte(' ')
		}
		i++
	}
	return out.String()
}

func (t *trial) urls(secrets []Secret) bool {
	if t.scheme.CanSign() != SignURL {
		return false
	}
	t.tried("the URL with http and https, with and without port, query and last slash")
	for _, other := range otherURLs(t.r.URL) {
		changed := *t.r
		changed.URL = other
		for _, secret := range secrets {
			if k, err := t.scheme.Key.read(secret.Value); err == nil && t.fits(t.scheme, secret, k, &changed, t.got) {
				return t.found(URLDiffers, "the sender has signed the URL "+other+" and the relay knows the request by "+t.r.URL+": enter the same URL at the sender, or set --base-url and --alias-domain as the sender sees them")
			}
		}
	}
	return false
}

// otherURLs returns other spellings of a URL, under which a sender may know the same endpoint.
func otherURLs(text string) []string {
	u, err := url.Parse(text)
	if err != nil {
		return nil
	}
	var list []string
	for _, scheme := range []string{"https", "http"} {
		for _, host := range []string{u.Host, u.Hostname(), u.Hostname() + ":443", u.Hostname() + ":80"} {
			base := scheme + "://" + host
			rest := strings.TrimPrefix(text, u.Scheme+"://"+u.Host)
			path, query, _ := strings.Cut(rest, "?")
			for _, tail := range []string{rest, path, strings.TrimSuffix(path, "/"), path + "/", path + "/?" + query} {
				if other := base + tail; other != text && len(list) < maxTried {
					list = append(list, other)
				}
			}
		}
	}
	return list
}

// schemes tries the signed texts, digests and forms of other common schemes, and reports whether one of them
// gives the signature.
func (t *trial) schemes(secrets []Secret) bool {
	if t.scheme.own != nil || t.scheme.Digest != HMACSHA256 && t.scheme.Digest != HMACSHA1 {
		return false
	}
	t.tried("other ways to sign")
	for _, digest := range []Digest{HMACSHA256, HMACSHA1} {
		for _, signed := range []string{t.scheme.Signed, "{b}", "{t}.{b}", "{t}{b}", "{t}:{b}"} {
			for _, form := range []Form{Hex, Base64} {
				other := Scheme{Signed: signed, Digest: digest, Form: form, Key: t.scheme.Key}
				for _, secret := range secrets {
					if k, err := other.Key.read(secret.Value); err == nil && t.fits(&other, secret, k, t.r, t.got) {
						return t.found(OtherScheme, "the signature fits as "+other.Describe()+", which is not how "+t.sender.Name+" signs")
					}
				}
			}
		}
	}
	return false
}
