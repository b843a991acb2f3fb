package signature

import (
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
)

// Part is one part of a signature line.
type Part struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// masked is shown in place of a secret that a sender sends in its requests.
const masked = "[masked]"

// reading holds the parts of a signature, as read from a request.
type reading struct {
	header  string   // name of the line that was read, as spelled in the table
	parts   []Part   // parts of the line
	digests []string // possible digests, as written, without prefix or version
	others  []string // versions in the line that this scheme does not use
	id      string
	time    string // time as written, "" = none

	present bool   // the request has a signature, whatever its form
	fault   string // fault in the form of the signature, "" = none
}

// present reports whether a request has the header line, or the part of the body, that holds the
// signature of this scheme.
func (s *Scheme) present(r *Request) bool {
	if s.own != nil && s.own.present != nil {
		return s.own.present(r)
	}
	if value, _ := r.line(s.When.Name); value != s.When.Value {
		return false
	}
	for i := -1; i < len(s.More); i++ {
		if value, ok := r.line(s.line(i)); ok && (s.Prefix == "" || s.Layout != Whole || strings.HasPrefix(value, s.Prefix)) {
			return true
		}
	}
	return false
}

// line returns the name of a header line that may contain a signature: Header for a negative i, else More[i].
func (s *Scheme) line(i int) string {
	if i < 0 {
		return s.Header
	}
	return s.More[i]
}

// read reads the parts of the signature of a request. It parses the body only if the scheme has its signature or
// its time there.
func (s *Scheme) read(r *Request) reading {
	got := reading{header: s.Header}
	if s.own != nil && s.own.read != nil {
		s.own.read(r, &got)
		return got
	}
	got.id, _ = r.line(s.IDHeader)
	if s.TimeHeader != "" {
		got.time, _ = r.line(s.TimeHeader)
	}
	if s.TimeMember != "" {
		got.time, _ = member(r.Body, s.TimeMember)
	}
	for i := -1; i < len(s.More); i++ {
		name := s.line(i)
		value, ok := r.line(name)
		if !ok {
			continue
		}
		if !got.present {
			got.header, got.present = name, true
		}
		s.readLine(&got, strings.TrimSpace(value))
	}
	s.judgeForm(&got)
	return got
}

func (s *Scheme) readLine(got *reading, value string) {
	switch s.Layout {
	case Whole:
		digest, ok := strings.CutPrefix(value, s.Prefix)
		if !ok {
			got.others = append(got.others, beforeDigest(value))
			return
		}
		shown := digest
		if s.SendsSecret() {
			shown = masked
		}
		got.parts = append(got.parts, Part{s.Prefix, shown})
		got.digests = append(got.digests, digest)
	case Pairs:
		s.readPairs(got, value)
	case Versions:
		for item := range strings.FieldsSeq(value) {
			version, digest, ok := strings.Cut(item, ",")
			got.parts = append(got.parts, Part{version, digest})
			switch {
			case ok && version == s.SigKey:
				got.digests = append(got.digests, digest)
			case ok:
				got.others = append(got.others, version)
			}
		}
	}
}

func (s *Scheme) readPairs(got *reading, value string) {
	for item := range strings.SplitSeq(value, s.joint()) {
		name, text, ok := strings.Cut(strings.TrimSpace(item), "=")
		if !ok {
			continue
		}
		got.parts = append(got.parts, Part{name, text})
		switch name {
		case s.SigKey:
			got.digests = append(got.digests, text)
		case s.TimeKey:
			got.time = text
		default:
			got.others = append(got.others, name)
		}
	}
}

func (s *Scheme) joint() string {
	if s.Joint == "" {
		return ","
	}
	return strings.TrimSpace(s.Joint)
}

// beforeDigest returns the name before the = of a value, such as sha1 or v2; "" = there is no =, or the name is
// longer than 16 bytes.
func beforeDigest(value string) string {
	name, _, ok := strings.Cut(value, "=")
	if !ok || len(name) > 16 {
		return ""
	}
	return name
}

// judgeForm checks the form of a signature that is present. got keeps only the well-formed digests; if there are
// none, judgeForm sets got.fault.
func (s *Scheme) judgeForm(got *reading) {
	if !got.present || s.Digest == Equal || s.Digest == Network {
		return
	}
	whole := got.digests[:0:0]
	for _, digest := range got.digests {
		if s.wellFormed(digest) {
			whole = append(whole, digest)
		}
	}
	switch {
	case len(whole) > 0:
		got.digests = whole
	case len(got.digests) > 0:
		got.fault = "the signature is not " + formNames[s.Form] + " of the right length"
	case len(got.others) > 0 && got.others[0] != "":
		got.fault = unknownVersion
	default:
		got.fault = "the line has no signature in it"
	}
}

// unknownVersion is the fault of a line whose signatures all have unknown versions.
const unknownVersion = "version"

// wellFormed reports whether text can be a digest of this scheme.
func (s *Scheme) wellFormed(text string) bool {
	raw, err := s.Form.decode(text)
	if err != nil {
		return false
	}
	switch s.Digest {
	case HMACSHA256, PlainSHA256:
		return len(raw) == 32
	case HMACSHA1:
		return len(raw) == 20
	case HMACSHA512:
		return len(raw) == 64
	case Ed25519:
		return len(raw) == 64
	default:
		return len(raw) > 0
	}
}

func (f Form) encode(raw []byte) string {
	switch f {
	case Base64:
		return base64.StdEncoding.EncodeToString(raw)
	case Base64URL:
		return base64.RawURLEncoding.EncodeToString(raw)
	default:
		return hex.EncodeToString(raw)
	}
}

func (f Form) decode(text string) ([]byte, error) {
	switch f {
	case Base64:
		return base64.StdEncoding.DecodeString(text)
	case Base64URL:
		return base64.RawURLEncoding.DecodeString(text)
	default:
		return hex.DecodeString(text)
	}
}

// HasSignature reports whether a request has a signature of the scheme.
func (s *Scheme) HasSignature(r *Request) bool { return s.present(r) }

// SameSignature reports whether two requests have the same signature of the scheme.
func (s *Scheme) SameSignature(a, b *Request) bool {
	one, other := s.read(a), s.read(b)
	return len(one.digests) > 0 && slices.Equal(one.digests, other.digests)
}

// Suited returns the scheme by which a request is signed with a secret. This is s, unless the sender has two
// schemes: one that signs with a key, and one that sends the secret itself (GitLab).
//
// Of those two, Suited chooses the one with a key if the secret has the form of a key, whatever headers the
// request has, because users who may send events must not read the key. It also chooses that one if the request
// already has a signature made with a key. Otherwise it chooses the one that sends the secret.
func (p *Sender) Suited(s *Scheme, r *Request, secret string) *Scheme {
	byKey, bySending := -1, -1
	for i := range p.Schemes {
		switch c := &p.Schemes[i]; {
		case c.Key == Whsec:
			byKey = i
		case c.SendsSecret():
			bySending = i
		}
	}
	switch {
	case byKey < 0 || bySending < 0:
		return s
	case isWhsecKey(secret), p.Schemes[byKey].present(r):
		return &p.Schemes[byKey]
	}
	return &p.Schemes[bySending]
}

// Fits reports whether a secret has the form that the scheme s needs. If the sender has both a scheme with a
// key and a scheme that sends the secret, a secret in the form of a key fits only the former, and any other
// secret only the latter.
func (p *Sender) Fits(s *Scheme, secret string) bool {
	if _, err := s.Key.read(secret); err != nil {
		return false
	}
	for i := range p.Schemes {
		if other := &p.Schemes[i]; other.SendsSecret() != s.SendsSecret() && (other.Key == Whsec || s.Key == Whsec) {
			return isWhsecKey(secret) == (s.Key == Whsec)
		}
	}
	return true
}
