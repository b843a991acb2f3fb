package signature

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"time"
)

// Changes turn a request into a freshly signed one: new values of header lines, in the sender's spelling, and
// a new body if it contains the time or the signature.
type Changes struct {
	Lines   []Field
	Body    []byte   // nil = unchanged
	Members []string // JSON pointers of the changes in the body
}

// ErrCannotSign is the error for schemes that can only be verified, because only the sender has the
// private key.
var ErrCannotSign = errors.New("requests of this sender can be verified, but not signed")

var errNoMember = errors.New("the body has no place for the signature of this sender")

// Sign makes the signature that the sender would make for a request now. If the scheme signs an id, Sign uses
// the id of the request; for a request without an id it returns an error.
func Sign(s *Scheme, secret string, r *Request, now time.Time) (Changes, error) {
	if s.CanSign() == SignKeyPair || s.CanSign() == SignNo {
		return Changes{}, ErrCannotSign
	}
	k, err := s.Key.read(secret)
	if err != nil {
		return Changes{}, err
	}
	if s.own != nil && s.own.sign != nil {
		return s.own.sign(s, k, r, now)
	}
	var out Changes
	got := reading{}
	if s.timed() {
		got.time = s.Unit.write(now)
	}
	if s.TimeMember != "" {
		if out.Body, err = replaceMember(r.Body, []string{s.TimeMember}, []byte(got.time)); err != nil {
			return Changes{}, err
		}
		changed := *r
		changed.Body, r = out.Body, &changed
		out.Members = []string{"/" + s.TimeMember}
	}
	if s.IDHeader != "" {
		if got.id, _ = r.line(s.IDHeader); got.id == "" {
			return Changes{}, errors.New("the request has no line " + s.IDHeader + ", which is signed")
		}
	}
	if s.TimeHeader != "" {
		out.Lines = append(out.Lines, Field{s.TimeHeader, got.time})
	}
	digest := s.digest(k, r, &got)
	switch s.Layout {
	case Pairs:
		value := s.SigKey + "=" + digest
		if s.TimeKey != "" {
			joint := s.Joint
			if joint == "" {
				joint = ","
			}
			value = s.TimeKey + "=" + got.time + joint + value
		}
		out.Lines = append(out.Lines, Field{s.Header, value})
	case Versions:
		out.Lines = append(out.Lines, Field{s.Header, s.SigKey + "," + digest})
	default:
		out.Lines = append(out.Lines, Field{s.Header, s.Prefix + digest})
	}
	return out, nil
}

// replaceMember replaces one value in a JSON document. All other bytes stay unchanged.
func replaceMember(doc []byte, path []string, value []byte) ([]byte, error) {
	from, to, ok := findMember(doc, path)
	if !ok {
		return nil, errNoMember
	}
	return bytes.Join([][]byte{doc[:from], value, doc[to:]}, nil), nil
}

// findMember returns the range of the value at a path. Steps are keys or indexes.
func findMember(doc []byte, path []string) (from, to int, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(doc))
	for _, step := range path {
		open, err := dec.Token()
		if err != nil || !enter(dec, open, step) {
			return 0, 0, false
		}
	}
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return 0, 0, false
	}
	to = int(dec.InputOffset())
	return to - len(raw), to, true
}

// enter reads tokens until the next one is the value at a step, and returns false if there is no such value.
func enter(dec *json.Decoder, open json.Token, step string) bool {
	var skipped json.RawMessage
	for i := 0; dec.More(); i++ {
		name := strconv.Itoa(i)
		if open == json.Delim('{') {
			key, err := dec.Token()
			if err != nil {
				return false
			}
			name, _ = key.(string)
		} else if open != json.Delim('[') {
			return false
		}
		if name == step {
			return true
		}
		if err := dec.Decode(&skipped); err != nil {
			return false
		}
	}
	return false
}

// signedText returns the signed bytes for a report, which must not contain the secret.
func (s *Scheme) signedText(r *Request, got *reading) []byte {
	var out bytes.Buffer
	s.write(&out, r, got, "")
	return out.Bytes()
}
