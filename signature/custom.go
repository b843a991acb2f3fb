package signature

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// CustomName is the sender name of schemes that users define.
const CustomName = "custom"

// Custom is a scheme that a user defines for a sender that is not in the table.
type Custom struct {
	Header    string  `json:"header" doc:"line that holds the signature"`
	Template  string  `json:"template" doc:"what is signed: text with {body}, {method}, {url}, {form}, {t} or {t:LINE} for the time and {id:LINE} for the id in it"`
	Hash      string  `json:"hash,omitempty" doc:"sha256, sha1 or sha512, each as an HMAC; sha256 if absent"`
	Form      string  `json:"form,omitempty" doc:"hex, base64 or base64url; hex if absent"`
	Key       string  `json:"key,omitempty" doc:"how the secret is read: text, base64, hex or whsec; text if absent"`
	Prefix    string  `json:"prefix,omitempty" doc:"what stands before the digest, such as sha256="`
	Tolerance float64 `json:"toleranceSeconds,omitempty" doc:"age at which a signature is refused; 0 = never"`
}

// Limits of a definition.
const (
	maxCustom      = 4 << 10 // bytes of its JSON
	maxTemplate    = 500
	maxLineName    = 100
	maxToleranceS  = 86400
	maxPrefixBytes = 50
)

// CustomError describes the mistake in the definition of a scheme. Member is the wrong member, "" = the whole
// definition.
type CustomError struct{ Member, Message string }

// Error implements error.
func (e *CustomError) Error() string { return e.Message }

var (
	customHash = map[string]Digest{"": HMACSHA256, "sha256": HMACSHA256, "sha1": HMACSHA1, "sha512": HMACSHA512}
	customForm = map[string]Form{"": Hex, "hex": Hex, "base64": Base64, "base64url": Base64URL}
	customKey  = map[string]Key{"": Text, "text": Text, "base64": KeyBase64, "hex": KeyHex, "whsec": Whsec}
)

// ReadCustom reads a definition. The error is a *CustomError.
func ReadCustom(definition []byte) (*Sender, error) {
	var c Custom
	if len(definition) > maxCustom {
		return nil, &CustomError{"", fmt.Sprintf("the definition is longer than %d bytes", maxCustom)}
	}
	dec := json.NewDecoder(bytes.NewReader(definition))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil || dec.More() {
		return nil, &CustomError{"", "expected an object with header and template, and perhaps hash, form, key, prefix and toleranceSeconds"}
	}
	return c.Sender()
}

// Sender returns the sender whose scheme the definition describes. The error is a *CustomError.
func (c *Custom) Sender() (*Sender, error) {
	hash, okHash := customHash[c.Hash]
	form, okForm := customForm[c.Form]
	key, okKey := customKey[c.Key]
	switch {
	case !isLineName(c.Header):
		return nil, &CustomError{"header", "expected the name of a header line, such as X-Signature"}
	case !okHash:
		return nil, &CustomError{"hash", "expected sha256, sha1 or sha512"}
	case !okForm:
		return nil, &CustomError{"form", "expected hex, base64 or base64url"}
	case !okKey:
		return nil, &CustomError{"key", "expected text, base64, hex or whsec"}
	case len(c.Prefix) > maxPrefixBytes || strings.ContainsFunc(c.Prefix, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ',' }):
		return nil, &CustomError{"prefix", "expected at most 50 characters of ASCII without spaces and commas, such as sha256="}
	case c.Tolerance < 0 || c.Tolerance > maxToleranceS || c.Tolerance != c.Tolerance:
		return nil, &CustomError{"toleranceSeconds", "expected a number of seconds, at most 86400"}
	}
	s := Scheme{Header: c.Header, Digest: hash, Form: form, Key: key, Prefix: c.Prefix, Old: time.Duration(c.Tolerance * float64(time.Second))}
	if err := s.readTemplate(c); err != nil {
		return nil, &CustomError{"template", err.Error()}
	}
	if s.Old > 0 && !s.timed() {
		return nil, &CustomError{"toleranceSeconds", "a tolerance needs a time: put {t} or {t:LINE} into the template"}
	}
	s.Future = s.Old
	return &Sender{Name: CustomName, Mark: strings.ToLower(c.Header), Schemes: []Scheme{s}}, nil
}

// readTemplate reads the parts of the signed text from the template, and determines where time and id are in
// a request.
func (s *Scheme) readTemplate(c *Custom) error {
	if len(c.Template) > maxTemplate {
		return fmt.Errorf("it is longer than %d bytes", maxTemplate)
	}
	var signed strings.Builder
	seen := map[string]bool{}
	for text := c.Template; text != ""; {
		literal, rest, found := strings.Cut(text, "{")
		signed.WriteString(literal)
		if !found {
			break
		}
		holder, after, closed := strings.Cut(rest, "}")
		if !closed {
			return errors.New("a { in it has no }")
		}
		text = after
		name, line, named := strings.Cut(holder, ":")
		if named && !isLineName(line) {
			return errors.New("expected the name of a header line in {" + name + ":LINE}")
		}
		if err := s.placeholder(c, name, line); err != nil {
			return err
		}
		if seen[name] { // a placeholder may stand for a whole body, so repeating it would multiply the signed bytes
			return errors.New("it has {" + name + "} twice")
		}
		seen[name] = true
		if name == "body" {
			name = "b"
		}
		signed.WriteString("{" + name + "}")
	}
	s.Signed = signed.String()
	if !strings.Contains(s.Signed, "{b}") && !strings.Contains(s.Signed, "{form}") {
		return errors.New("it has neither {body} nor {form}: a signature that does not cover the body says nothing about it")
	}
	return nil
}

// placeholder reads one placeholder of the template.
func (s *Scheme) placeholder(c *Custom, name, line string) error {
	switch {
	case name == "t" && line == "" && !strings.HasSuffix(c.Prefix, "="):
		return errors.New("{t} is the time among pairs such as t=1,v1=digest: set prefix to v1=, or name its line as {t:X-Timestamp}")
	case name == "t" && line == "":
		s.Layout, s.TimeKey, s.SigKey, s.Prefix = Pairs, "t", strings.TrimSuffix(c.Prefix, "="), ""
		if s.SigKey == "t" || s.SigKey == "" {
			return errors.New("the time and the digest among the pairs have the same name")
		}
	case name == "t":
		s.TimeHeader = line
	case name == "id" && line == "":
		return errors.New("name the line of the id, such as {id:X-Request-Id}")
	case name == "id":
		s.IDHeader = line
	case line != "" || name != "body" && name != "method" && name != "url" && name != "form":
		return fmt.Errorf("{%s} is not known; there are {body}, {t}, {t:LINE}, {id:LINE}, {method}, {url} and {form}", shortText(name))
	}
	return nil
}

// isLineName reports whether a definition may read and write a header line. It refuses the lines for the framing
// and the host of a request.
func isLineName(name string) bool {
	return name != "" && !slices.Contains([]string{"content-length", "transfer-encoding", "trailer", "connection", "host"}, strings.ToLower(name)) && len(name) <= maxLineName && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"(),/:;<=>?@[\\]{}", r)
	})
}
