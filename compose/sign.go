package compose

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"math/big"
	"strings"
	"time"

	"relay"
	"relay/record"
	"relay/signature"
	"relay/wire"
)

// Sender returns the sender, such as Stripe, whose request this is by its header lines and body; nil if it is not
// recognised.
func (r *Request) Sender() *signature.Sender {
	p := record.Recognise(r.Head, r.Body)
	if p.Name == "" {
		return nil
	}
	return signature.Find(p.Name, r.signed(""))
}

// SenderNamed returns the sender with the given name, or nil. If package signature has several senders with
// that name, it returns the one whose signature the request has.
func (r *Request) SenderNamed(name string) *signature.Sender {
	return signature.Find(name, r.signed(""))
}

// HasSignature reports whether the request has a signature of a known sender.
func (r *Request) HasSignature() bool {
	p := r.Sender()
	if p == nil {
		return false
	}
	return r.hasSignatureOf(p)
}

// signed returns the request in the form that package signature needs. The argument url is its public URL.
func (r *Request) signed(url string) *signature.Request {
	fields := wire.Fields(r.Head)
	list := make([]signature.Field, 0, len(fields))
	for _, f := range fields {
		list = append(list, signature.Field{Name: string(f.Name), Value: string(f.Value)})
	}
	return &signature.Request{Method: r.Method(), URL: url, Body: r.Body, Line: signature.Lines(list)}
}

// Scheme returns the scheme that a sender uses to sign this request. The error has the code cannot-sign.
func (r *Request) Scheme(p *signature.Sender) (*signature.Scheme, error) {
	s := p.SchemeOf(r.signed(""))
	if s == nil || s.CanSign() == signature.SignNo || s.CanSign() == signature.SignKeyPair {
		return nil, relay.Errorf(relay.CodeCannotSign, "requests of %s can be verified at most: only the sender can sign them", p.Name)
	}
	return s, nil
}

// SignedAs returns the sender and the scheme by which r, which was made from base, is to be signed. If name is
// "", the sender is the result of base.Sender or, if that is nil, of r.Sender; else it is the sender with that
// name. If there is no such sender, both results are nil.
//
// A sender may have several schemes. The signature of base decides between them, because r may have lost it; if
// base has no signature of the sender, r decides. If the schemes differ in the form of their secrets, the
// argument secret decides, unless it is "" because the secret is not known yet. The error has the code
// cannot-sign.
func (r *Request) SignedAs(base *Request, name, secret string) (*signature.Sender, *signature.Scheme, error) {
	from, p := base, base.senderOr(name)
	switch {
	case p == nil:
		from, p = r, r.senderOr(name)
	case !base.hasSignatureOf(p):
		from, p = r, r.SenderNamed(p.Name)
	}
	if p == nil {
		return nil, nil, nil
	}
	s, err := from.Scheme(p)
	if err == nil && secret != "" {
		s = p.Suited(s, from.signed(""), secret)
	}
	return p, s, err
}

// Fits reports whether a secret has the form that the signature of base requires; r was made from base, and name
// is as in SignedAs. Any secret fits if base has no signature, or the sender is not known.
func (r *Request) Fits(base *Request, name, secret string) bool {
	p, s, err := r.SignedAs(base, name, "")
	if err != nil || p == nil || !base.hasSignatureOf(p) {
		return true
	}
	return p.Fits(s, secret)
}

// senderOr returns the sender with the given name or, for "", the result of Sender.
func (r *Request) senderOr(name string) *signature.Sender {
	if name == "" {
		return r.Sender()
	}
	return r.SenderNamed(name)
}

// SameSignature reports whether two requests have the same signature of a known sender.
func (r *Request) SameSignature(other *Request) bool {
	p := r.Sender()
	if p == nil {
		return false
	}
	request := r.signed("")
	s := p.SchemeOf(request)
	return s != nil && s.SameSignature(request, other.signed(""))
}

func (r *Request) hasSignatureOf(p *signature.Sender) bool {
	request := r.signed("")
	s := p.SchemeOf(request)
	return s != nil && s.HasSignature(request)
}

// CustomName is the sender name of schemes that users define.
const CustomName = signature.CustomName

// CustomScheme reads a custom scheme from the definition that is stored with a secret.
func CustomScheme(definition string) (*signature.Scheme, error) {
	p, err := signature.ReadCustom([]byte(definition))
	if err != nil {
		return nil, relay.Errorf(relay.CodeCannotSign, "the definition of this secret cannot be read: %v", err)
	}
	return &p.Schemes[0], nil
}

// Sign adds the signature that the sender would make now. url is the public URL of the request. If the sender
// signs a delivery id and the request has none, Sign adds one.
func (r *Request) Sign(s *signature.Scheme, secret, url string, now time.Time) error {
	if s.IDHeader != "" {
		if _, there := r.Line(s.IDHeader); !there {
			r.setHeader(s.IDHeader, []string{"msg_" + strings.ToLower(rand.Text())})
		}
	}
	made, err := signature.Sign(s, secret, r.signed(url), now)
	if errors.Is(err, signature.ErrCannotSign) {
		return relay.Errorf(relay.CodeCannotSign, "%v", err)
	}
	if err != nil {
		return relay.Errorf(relay.CodeCannotSign, "this request cannot be signed: %v", err)
	}
	if made.Body != nil {
		for i, m := range made.Members {
			if i == 0 {
				r.setBody(made.Body, "body:"+m)
			}
			r.changed("body:" + m)
		}
	}
	for _, l := range made.Lines {
		r.setHeader(l.Name, []string{l.Value})
	}
	if s.SendsSecret() {
		r.Hidden = s.Header
	}
	return nil
}

// Renew gives the request a new delivery id, in the form of the old one.
func (r *Request) Renew(p *signature.Sender) error {
	if p == nil {
		return invalid("body.newId", "the sender of this request is not recognised, so that its delivery id is not known")
	}
	for _, name := range []string{p.Delivery, r.idHeader(p)} {
		if old, ok := r.Line(name); ok && name != "" {
			r.setHeader(name, []string{idLike(old)})
			return nil
		}
	}
	if path, old := deliveryIn(r.Body, p); old != nil {
		return r.set(map[string]json.RawMessage{path: json.RawMessage(idLike(string(old)))})
	}
	return invalid("body.newId", "this request has no delivery id")
}

// deliveryIn finds the delivery id of a sender in a JSON body. path is a JSON pointer; old is nil if there is
// no id.
func deliveryIn(body []byte, p *signature.Sender) (path string, old []byte) {
	if p.BodyDelivery == "" {
		return "", nil
	}
	steps := []string{""}
	if p.Nested != "" {
		steps = append(steps, strings.Split(p.Nested, ".")...)
	}
	for _, step := range steps {
		if step != "" {
			body, path = findMember(body, step), path+"/"+step
		}
		if body = bytes.TrimLeft(body, " \t\r\n"); bytes.HasPrefix(body, []byte("[")) {
			var list []json.RawMessage
			if json.Unmarshal(body, &list) != nil || len(list) == 0 {
				return "", nil
			}
			body, path = list[0], path+"/0"
		}
		if old = findMember(body, p.BodyDelivery); len(old) > 0 && old[0] == '"' {
			return path + "/" + p.BodyDelivery, old
		}
	}
	return "", nil
}

func (r *Request) idHeader(p *signature.Sender) string {
	if s := p.SchemeOf(r.signed("")); s != nil {
		return s.IDHeader
	}
	return ""
}

// idLike makes a random id in the form of another id. A prefix such as evt_ stays, digits become digits, and
// letters become letters of the same case. If the old id is hexadecimal, so is the new one.
func idLike(old string) string {
	kept := strings.LastIndexByte(old, '_') + 1
	letters := "abcdefghijklmnopqrstuvwxyz"
	if strings.Trim(strings.ToLower(old[kept:]), "0123456789abcdef-{}\"") == "" {
		letters = letters[:6]
	}
	out := []byte(old)
	first := true
	for i := kept; i < len(out); i++ {
		switch c := out[i]; {
		case '0' <= c && c <= '9':
			if out[i] = pick("0123456789"); first { // a number must not begin with 0
				out[i] = pick("123456789")
			}
		case 'a' <= c && c <= 'z':
			out[i] = pick(letters)
		case 'A' <= c && c <= 'Z':
			out[i] = pick(strings.ToUpper(letters))
		default:
			continue
		}
		first = false
	}
	return string(out)
}

func pick(from string) byte {
	n, _ := rand.Int(rand.Reader, big.NewInt(int64(len(from))))
	return from[n.Int64()]
}
