// Package handshake answers the registration challenges of webhook senders. A sender sends a challenge
// when a user enters a URL there; some senders repeat the challenge later. If the answer is wrong, the
// sender does not accept the URL. The package does no I/O: it turns a request into an answer. The table
// in table.go has one row for each challenge.
package handshake

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"relay/signature"
	"relay/wire"
)

// All stands for every challenge in a list of names. Meta is the challenge whose answer needs a verify
// token. This token is different from the secret for signatures.
const (
	All  = "all"
	Meta = "meta"
)

// Limits of a challenge.
const (
	maxEcho = 512      // largest number of bytes that an answer repeats
	maxBody = 16 << 10 // largest number of bytes of the body of a challenge
)

// Request is a completely received request that may be a challenge.
type Request struct {
	Head []byte // head as it was received
	Body []byte // body without its transfer coding
	// URL is the URL of the request as its sender knows it.
	URL string
}

// Reply is the answer to a challenge. Its header lines are only those that the challenge requires, and
// Content-Type.
type Reply struct {
	Status int
	Lines  [][2]string
	Body   []byte
}

// Secrets returns the secrets that an alias has for the sender of the challenge with the given name. For Meta
// these are the verify tokens.
type Secrets func(name string) []string

// Names lists the names of the challenges.
func Names() []string {
	names := make([]string, len(table))
	for i := range table {
		names[i] = table[i].name
	}
	return names
}

// Need names the setting that an alias must have to answer a challenge.
type Need uint8

// The needs of challenges.
const (
	NeedsNothing Need = iota
	NeedsSecret       // the answer needs the secret of the sender
	NeedsToken        // the answer needs the verify token
)

// NeedOf returns the setting that the challenge with a name needs.
func NeedOf(name string) Need {
	i := slices.IndexFunc(table, func(c challenge) bool { return c.name == name })
	switch {
	case i < 0 || table[i].proof < needed:
		return NeedsNothing
	case table[i].proof == token:
		return NeedsToken
	}
	return NeedsSecret
}

// SentSecret returns the secret for later signatures that a challenge contains, and its sender. The
// challenges of Asana and Notion contain such a secret. For other requests it returns "".
func SentSecret(r *Request) (sender, secret string) {
	q, ok := read(r)
	if !ok {
		return "", ""
	}
	for i := range table {
		if c := &table[i]; c.givesSecret {
			if value, is := c.form(q); is {
				return c.name, value
			}
		}
	}
	return "", ""
}

// confirmation matches the hosts of the links that Amazon SNS sends to confirm a URL.
var confirmation = regexp.MustCompile(`^sns\.[a-z0-9-]+\.amazonaws\.com(\.cn)?$`)

// ConfirmationLink returns the link that a user has to open to confirm a URL to Amazon SNS. It returns
// "" for other requests, and for links to other hosts. Relay never opens the link.
func ConfirmationLink(r *Request) string {
	q, ok := read(r)
	if !ok {
		return ""
	}
	q.object = objectOf(r.Body) // the media type of SNS is text, but the body is JSON
	kind, _ := q.line("x-amz-sns-message-type")
	link, ok := q.member("SubscribeURL")
	u, err := url.Parse(link)
	if !ok || err != nil || q.method != "POST" || kind != "SubscriptionConfirmation" || u.Scheme != "https" || u.User != nil || !confirmation.MatchString(u.Host) {
		return ""
	}
	return u.String()
}

// Recognise returns the name of the challenge in a request; "" if r is nil or no challenge. It does not
// recognise a plain HEAD request, because any client may send one.
func Recognise(r *Request) string {
	q, ok := read(r)
	if !ok {
		return ""
	}
	for i := range table {
		if _, is := table[i].form(q); is && table[i].name != nameHead {
			return table[i].name
		}
	}
	return ""
}

// Answer answers a request that is one of the challenges in names, and returns the name of that challenge.
// reply is nil if the request is none of them, or if the answer needs a secret that the alias does not have or
// that does not match.
func Answer(r *Request, names []string, secrets Secrets, now time.Time) (name string, reply *Reply) {
	q, ok := read(r)
	if !ok || len(names) == 0 {
		return "", nil
	}
	for i := range table {
		c := &table[i]
		if !slices.Contains(names, c.name) && !slices.Contains(names, All) {
			continue
		}
		if echo, is := c.form(q); is {
			return c.name, c.answer(q, echo, secrets(c.name), now)
		}
	}
	return "", nil
}

// answer answers a request that has the form of the challenge; nil = the request lacks the proof that the
// challenge needs.
func (c *challenge) answer(q *request, echo string, secrets []string, now time.Time) *Reply {
	switch c.proof {
	case none:
		return c.reply(q, echo, "")
	case checked:
		if echo != "" && len(secrets) > 0 && !q.signed(c.name, secrets, now) { // Slack does not sign its check of TLS, which has no text to repeat
			return nil
		}
		return c.reply(q, echo, "")
	}
	if len(secrets) == 0 {
		return nil
	}
	secret := secrets[0]
	switch c.proof {
	case needed:
		i := slices.IndexFunc(secrets, func(one string) bool { return q.signed(c.name, []string{one}, now) })
		if i < 0 {
			return nil
		}
		secret = secrets[i]
	case tested:
		if !q.signed(c.name, secrets, now) {
			return &Reply{Status: 401}
		}
	case token:
		if !q.holdsToken(secrets) {
			return nil
		}
	}
	return c.reply(q, echo, secret)
}

// request is a Request with its parsed parts.
type request struct {
	raw    *Request
	method string
	query  url.Values
	fields []wire.Field
	object map[string]json.RawMessage // if the body is a JSON object; else nil
}

// read parses a request. ok is false if it cannot be a challenge.
func read(r *Request) (q *request, ok bool) {
	if r == nil || len(r.Body) > maxBody {
		return nil, false
	}
	method, target, _ := wire.StartLine(r.Head)
	_, query, _ := strings.Cut(string(target), "?")
	q = &request{raw: r, method: string(method), fields: wire.Fields(r.Head)}
	var err error
	if q.query, err = url.ParseQuery(query); err != nil {
		return nil, false
	}
	if q.media() == "application/json" {
		q.object = objectOf(r.Body)
	}
	return q, true
}

// objectOf returns the members of a JSON object; nil for anything else, and if a name occurs twice.
func objectOf(body []byte) map[string]json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(body))
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return nil
	}
	object := map[string]json.RawMessage{}
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return nil
		}
		key, _ := name.(string)
		if _, twice := object[key]; twice {
			return nil
		}
		object[key] = value
	}
	if _, err := d.Token(); err != nil { // reads the end of the object
		return nil
	}
	if _, err := d.Token(); err != io.EOF {
		return nil
	}
	return object
}

// has reports whether the request has a header line.
func (q *request) has(name string) bool {
	return slices.ContainsFunc(q.fields, func(f wire.Field) bool { return strings.EqualFold(string(f.Name), name) })
}

// line returns the value of a header line that occurs exactly once.
func (q *request) line(name string) (value string, ok bool) {
	for _, f := range q.fields {
		if strings.EqualFold(string(f.Name), name) {
			if ok {
				return "", false
			}
			value, ok = string(f.Value), true
		}
	}
	return value, ok
}

// param returns the value of a query parameter that occurs exactly once.
func (q *request) param(name string) (value string, ok bool) {
	if values := q.query[name]; len(values) == 1 {
		return values[0], true
	}
	return "", false
}

// member returns a string member of the JSON object.
func (q *request) member(name string) (value string, ok bool) {
	raw, there := q.object[name]
	return value, there && json.Unmarshal(raw, &value) == nil
}

// members reports whether the JSON object has no members other than the given ones.
func (q *request) members(names ...string) bool {
	for name := range q.object {
		if !slices.Contains(names, name) {
			return false
		}
	}
	return q.object != nil
}

// media returns the media type of the body.
func (q *request) media() string {
	value, _ := q.line("Content-Type")
	media, _, _ := mime.ParseMediaType(value)
	return media
}

// isEmptyGET reports whether the request is a GET without a body.
func (q *request) isEmptyGET() bool { return q.method == "GET" && len(q.raw.Body) == 0 }

// signed reports whether the signature of the request matches one of the secrets.
func (q *request) signed(sender string, secrets []string, now time.Time) bool {
	r := &signature.Request{Method: q.method, URL: q.raw.URL, Body: q.raw.Body, Line: q.line}
	s := signature.Find(sender, r)
	if s == nil {
		return false
	}
	list := make([]signature.Secret, len(secrets))
	for i, secret := range secrets {
		list[i].Value = secret
	}
	return signature.Verify(s.SchemeOf(r), list, r, now).Verdict == signature.Valid
}
