package signature

import (
	"cmp"
	"strings"
	"time"
)

// Sender describes the requests of one provider: the marks by which they are recognised, the places of their
// event type and id, and their signatures. Header names are in lower case.
type Sender struct {
	Name string
	Mark string   // header line that only this sender's requests have
	Also string   // a second line that is required too, "" = none
	Kind string   // beginning of the media type, for a sender without Mark
	Body []string // keys near the beginning of the JSON body, with quotes, for a sender without Mark and Kind

	Event    string // header line with the event type
	Delivery string // header line with the delivery id

	BodyEvent    string // key of the JSON body with the event type, if no header line has it
	BodyDelivery string // key of the JSON body with the delivery id, if no header line has it
	Nested       string // key of an object, or of an array of objects, that may also have BodyEvent and BodyDelivery; a.b = b in a. An event type there has priority
	Batch        bool   // the body may be an array of events, of which the first one counts

	FormJSON  string   // if the body is a form: the field whose value is the JSON with BodyEvent and BodyDelivery
	FormEvent []string // if the body is a form: fields that may have the event type; the first existing one counts

	Schemes []Scheme // the first scheme whose line a request has verifies the request; none = the sender does not sign, or its scheme is unknown
}

// Scheme is one way in which a sender signs.
type Scheme struct {
	When    Field    // a line that must have this value for the scheme to apply
	Header  string   // line with the signature, in the sender's spelling; "" = the signature is in the body
	More    []string // further lines that may contain a signature
	Signed  string   // template of the signed text with the placeholders {id} {t} {b} {method} {url} {secret}
	Digest  Digest
	Form    Form // how the digest is written
	Key     Key  // how the secret is read
	Layout  Layout
	Prefix  string // text before the digest, such as "sha256="
	TimeKey string // key of the time among the pairs of the line
	SigKey  string // key of the digest among the pairs; with the layout Versions, the version of the digest
	Joint   string // separator of the pairs; "" = ","

	IDHeader   string        // header line with the value of {id}
	TimeHeader string        // header line with the value of {t}
	TimeMember string        // key of the JSON body with the signed time
	Unit       Unit          // how the time is written
	Old        time.Duration // age from which the sender's own libraries refuse a signature; 0 = never
	Future     time.Duration // largest time in the future that the sender's own libraries accept; 0 = unlimited

	Oracle string // how the tests check this row: with a "library" of the sender, or "" = with a vector, a signed request of another implementation

	own *special // rules that the data of a scheme cannot express; nil for most senders
}

// Digest is the function that computes a signature from the key and the signed bytes.
type Digest int

// The digests. Equal means that the sender sends the secret itself.
const (
	HMACSHA256 Digest = iota
	HMACSHA1
	PlainSHA256
	Ed25519
	ECDSA // P-256 with SHA-256, ASN.1
	Equal
	Network // verified with a key from the sender's network, which Relay does not fetch
	HMACSHA512
)

var digestNames = [...]string{"HMAC-SHA256", "HMAC-SHA1", "SHA-256", "Ed25519", "ECDSA P-256 with SHA-256", HMACSHA512: "HMAC-SHA512"}

// Form is the text encoding of a digest.
type Form int

// The forms.
const (
	Hex Form = iota
	Base64
	Base64URL // without padding
)

var formNames = [...]string{"hex", "base64", "base64url"}

// Key is the way in which the text of a secret becomes the key.
type Key int

// The ways to read a secret. Whsec is base64 after an optional prefix that ends with an underscore.
// PublicHex and PublicDER are public keys.
const (
	Text Key = iota
	KeyBase64
	KeyHex
	Whsec
	PublicHex
	PublicDER
)

// Layout describes the form of a header line with digests.
type Layout int

// The layouts: Whole is a prefix and the digest, Pairs are key=value pairs, and Versions are items of the form
// version,digest with spaces between them.
const (
	Whole Layout = iota
	Pairs
	Versions
)

// Unit is the format of a signed time.
type Unit int

// The units.
const (
	Seconds Unit = iota
	Millis
	Instant // RFC 3339
)

// CanSign tells whether Relay can make a new signature of a scheme, and which part of the request changes.
type CanSign string

// Values of CanSign: new header values are enough; the body changes; the public URL is signed; a key pair of
// Relay is needed; impossible.
const (
	SignYes     CanSign = "yes"
	SignBody    CanSign = "body"
	SignURL     CanSign = "url"
	SignKeyPair CanSign = "key-pair"
	SignNo      CanSign = "no"
)

// CanSign returns the requirements for making a signature of this scheme.
func (s *Scheme) CanSign() CanSign {
	switch {
	case s.Digest == Ed25519 || s.Digest == ECDSA:
		return SignKeyPair
	case s.Digest == Network:
		return SignNo
	case s.own != nil:
		return s.own.canSign
	case s.TimeMember != "":
		return SignBody
	case strings.Contains(s.Signed, "{url}"):
		return SignURL
	default:
		return SignYes
	}
}

// CheckedWith returns how the tests check this row: with a "library" of the sender, or with a
// "vector".
func (s *Scheme) CheckedWith() string { return cmp.Or(s.Oracle, "vector") }

// SendsSecret reports whether the signature is the secret itself.
func (s *Scheme) SendsSecret() bool { return s.Digest == Equal }

// Describe returns a line that describes the signed bytes and the digest.
func (s *Scheme) Describe() string {
	if s.own != nil {
		return s.own.describe
	}
	switch s.Digest {
	case Equal:
		return "the secret itself is sent"
	case Network:
		return "a signature that is verified with a key from the sender's network"
	}
	return digestNames[s.Digest] + " in " + formNames[s.Form] + " over " + s.Signed
}

// Headers lists the header lines that the scheme reads, in the sender's spelling.
func (s *Scheme) Headers() []string {
	out := []string{}
	for _, name := range append([]string{s.Header, s.IDHeader, s.TimeHeader}, s.More...) {
		if name != "" {
			out = append(out, name)
		}
	}
	return out
}

// Find returns the sender with a name, or nil. If the table has several rows with that name, Find returns the first
// row whose signature the request has, and the first of all if r is nil or has no such signature.
func Find(name string, r *Request) *Sender {
	var first *Sender
	for i := range Senders {
		p := &Senders[i]
		if p.Name != name {
			continue
		}
		if first == nil {
			first = p
		}
		if r != nil && p.SchemeOf(r) != nil && p.SchemeOf(r).present(r) {
			return p
		}
	}
	return first
}

// SchemeOf returns the scheme that verifies a request: the first scheme whose signature the request has, or
// else the first one; nil if the sender has no scheme.
func (p *Sender) SchemeOf(r *Request) *Scheme {
	for i := range p.Schemes {
		if p.Schemes[i].present(r) {
			return &p.Schemes[i]
		}
	}
	if len(p.Schemes) == 0 {
		return nil
	}
	return &p.Schemes[0]
}

// SignedAt returns the time of signing as stated by the sender, and the age from which its own libraries
// reject the signature. Without a plausible time, the time is zero.
func (p *Sender) SignedAt(r *Request) (time.Time, time.Duration) {
	s := p.SchemeOf(r)
	if s == nil || !s.timed() {
		return time.Time{}, 0
	}
	at, err := s.Unit.read(s.timeText(r))
	if err != nil {
		return time.Time{}, 0
	}
	return at, s.Old
}

// timeText returns the signed time as written, without reading the rest of the signature.
func (s *Scheme) timeText(r *Request) string {
	if s.own != nil && s.own.read != nil {
		return s.read(r).time
	}
	if s.TimeMember != "" {
		text, _ := member(r.Body, s.TimeMember)
		return text
	}
	if s.TimeHeader != "" {
		text, _ := r.line(s.TimeHeader)
		return text
	}
	value, _ := r.line(s.Header)
	for value != "" {
		var pair string
		pair, value, _ = strings.Cut(value, s.joint())
		if name, text, ok := strings.Cut(strings.TrimSpace(pair), "="); ok && name == s.TimeKey {
			return text
		}
	}
	return ""
}

func (s *Scheme) timed() bool {
	return cmp.Or(s.TimeKey, s.TimeHeader, s.TimeMember) != ""
}
