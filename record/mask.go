package record

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Masked stands for a value that the holder of a share may not see.
const Masked = "[masked]"

// Parts of names, in lower case without separators, whose values are secrets or prove
// a signature.
var secretParts = []string{
	"authorization", "cookie", "signature", "secret", "token", "hmac", "apikey", "password", "passwd", "passphrase",
	"transmissionsig", "xauth", "accesskey", "privatekey", "credential", "jwt",
}

// Whole names of fields, too short or too common to be searched for as parts.
var secretFields = []string{"auth", "pwd", "pass", "pin", "otp", "key", "sig", "sid", "session", "cvc", "cvv", "ssn"}

// secretHeaders are names of header lines that name the owner's host, and of
// signatures whose names do not say so.
var secretHeaders = []string{
	"host", "xforwardedhost", "xoriginalhost", "forwarded", "origin", "referer", "xtrellowebhook", "plaidverification",
}

// plainName gives a name in lower case without the separators that people choose
// freely: api_key, Api-Key and apiKey are one name.
func plainName(name string) string {
	return separators.Replace(strings.ToLower(name))
}

var separators = strings.NewReplacer("-", "", "_", "", ".", "", " ", "")

func secretName(name string) bool {
	name = plainName(name)
	return slices.ContainsFunc(secretParts, func(part string) bool { return strings.Contains(name, part) })
}

// secretField tells whether the value of a query, form or JSON field looks secret. Of a name
// such as card[cvc] or user.pass the last part counts too.
func secretField(name string) bool {
	parts := strings.FieldsFunc(name, func(r rune) bool { return r == '[' || r == ']' || r == '.' })
	return secretName(name) || slices.Contains(secretFields, plainName(name)) ||
		len(parts) > 1 && slices.Contains(secretFields, plainName(parts[len(parts)-1]))
}

// maskHeaders hides values that are secrets, and those that contain the owner's host,
// as in a redirect.
func maskHeaders(headers []Header, host string) {
	for i, h := range headers {
		switch {
		case secretName(h.Name()), slices.Contains(secretHeaders, plainName(h.Name())), host != "" && strings.Contains(strings.ToLower(h.Value()), host):
			headers[i] = Header{h.Name(), Masked}
		case strings.ContainsAny(h.Value(), "?#"):
			if masked := maskTarget(h.Value()); masked != h.Value() {
				headers[i] = Header{h.Name(), masked}
			}
		}
	}
}

// maskTarget hides the secret values in the query and fragment of a request-target or an
// address.
func maskTarget(target string) string {
	at := strings.IndexAny(target, "?#") + 1
	masked, _, _ := maskForm(target[at:])
	if at == 0 {
		return target
	}
	return target[:at] + masked
}

// maskForm hides the secret values of a query or of a URL-encoded form, also inside
// JSON that is the value of a field. Everything else keeps its spelling. A secret value may
// contain ; and # and ends with &, but elsewhere these separate fields too. whole is as of
// maskJSON.
func maskForm(form string) (masked string, changed, whole bool) {
	var out strings.Builder
	whole = true
	for i := 0; i < len(form); {
		end := endOf(form, i, "&;#")
		name, value, given := strings.Cut(form[i:end], "=")
		switch plain, json := unescapeForm(value), ""; {
		case given && value != "" && secretField(unescapeForm(name)):
			out.WriteString(name + "=" + Masked)
			changed, end = true, endOf(form, i, "&")
		case startsJSON(plain):
			var inner, all bool
			if json, inner, all = maskJSON(plain); inner {
				out.WriteString(name + "=" + url.QueryEscape(json))
				changed, whole = true, whole && all
				break
			}
			out.WriteString(form[i:end])
		default:
			out.WriteString(form[i:end])
		}
		if end < len(form) {
			out.WriteByte(form[end])
		}
		i = end + 1
	}
	return out.String(), changed, whole
}

// endOf returns where the first of some characters stands in a text from index i on, or the end
// of the text.
func endOf(text string, i int, chars string) int {
	if n := strings.IndexAny(text[i:], chars); n >= 0 {
		return i + n
	}
	return len(text)
}

// unescapeForm reads an escaped name or value; one that is malformed stays as it is.
func unescapeForm(s string) string {
	if plain, err := url.QueryUnescape(s); err == nil {
		return plain
	}
	return s
}

func startsJSON(text string) bool {
	text = strings.TrimLeft(text, " \t\r\n\ufeff")
	return strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[")
}

// maskJSON hides the values of secret fields, objects and arrays included, also inside JSON
// that is the value of a string, and keeps the bytes of everything else. Text after the first
// fault is left out, because its fields are not known; whole is false then.
func maskJSON(text string) (masked string, changed, whole bool) {
	text = strings.TrimPrefix(text, "\ufeff")
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber() // a number too large for a float64 is still JSON
	var out strings.Builder
	kept := 0                 // what is before it is in out
	var objects []bool        // of the open objects and arrays: an object
	names := false            // the next string of an object is a name
	secret, depth := false, 0 // inside the value of a secret field, that began at this depth
	for {
		before := int(d.InputOffset())
		token, err := d.Token()
		at := int(d.InputOffset())
		if errors.Is(err, io.EOF) && len(objects) == 0 {
			out.WriteString(text[kept:])
			return out.String(), changed, true
		}
		if err != nil {
			if !secret {
				out.WriteString(text[kept:at])
			}
			return out.String(), true, false
		}
		inObject := len(objects) > 0 && objects[len(objects)-1]
		switch s, isString := token.(string); {
		case isString && inObject && names:
			names = false
			if !secret && secretField(s) {
				out.WriteString(text[kept:at] + ": ")
				secret, depth, kept = true, len(objects), at
			}
			continue
		case isString && !secret && startsJSON(s) && json.Valid([]byte(s)):
			if inner, hidden, _ := maskJSON(s); hidden { // it is valid
				quoted, _ := MarshalSafe(inner)
				out.WriteString(text[kept:before+strings.IndexByte(text[before:], '"')] + quoted)
				changed, kept = true, at
			}
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			objects = append(objects, token == json.Delim('{'))
		case json.Delim('}'), json.Delim(']'):
			objects = objects[:len(objects)-1]
		}
		names = len(objects) > 0 && objects[len(objects)-1]
		if secret && len(objects) == depth {
			out.WriteString(`"` + Masked + `"`)
			secret, changed, kept = false, true, at
		}
	}
}

var partName = regexp.MustCompile(`(?i)\bname="?([^";\r\n]*)`)

var blankLine = regexp.MustCompile(`\r?\n\r?\n`)

// maskMultipart hides the contents of parts whose field names look secret, and secret fields
// of parts that are JSON. whole is false where the boundary does not divide the text, and else
// as of maskJSON.
func maskMultipart(text, boundary string) (masked string, changed, whole bool) {
	if boundary == "" || !strings.Contains(text, "--"+boundary) {
		return "", true, false
	}
	whole = true
	parts := strings.Split(text, "--"+boundary)
	for i, part := range parts {
		blank := blankLine.FindStringIndex(part)
		if blank == nil {
			continue
		}
		head, content := part[:blank[1]], part[blank[1]:]
		value := strings.TrimRight(content, "\r\n")
		switch name := partName.FindStringSubmatch(head); {
		case value == "":
		case name != nil && secretField(name[1]):
			parts[i], changed = head+Masked+content[len(value):], true
		case startsJSON(value):
			if json, inner, all := maskJSON(value); inner {
				parts[i], changed, whole = head+json+content[len(value):], true, whole && all
			}
		}
	}
	return strings.Join(parts, "--"+boundary), changed, whole
}

// isForm matches what looks like a URL-encoded form, whatever its label says.
var isForm = regexp.MustCompile(`^[\w.%+\[\]-]+=[^\s"<>]*\s*$`)

// maskBody hides the secret fields of a body that is JSON, a form or multipart. Of a body
// that is compressed, or multipart with no boundary that divides it, nothing is shown, because
// its fields are not read here. The SHA-256 of a body that was changed is left out: short secrets
// can be guessed from it.
func maskBody(b *Body, headers []Header) {
	if b == nil || b.Data == "" {
		return
	}
	coding := headerValue(headers, "content-encoding")
	raw, err := b.Bytes()
	if err != nil || coding != "" && !strings.EqualFold(coding, "identity") {
		b.Data, b.Truncated, b.SHA256 = "", true, ""
		return
	}
	label := headerValue(headers, "content-type")
	_, options, _ := mime.ParseMediaType(label)
	kind, _, _ := strings.Cut(label, ";") // also of a label with parameters that cannot be read
	kind = strings.ToLower(strings.TrimSpace(kind))
	text, changed, whole := string(raw), false, true
	switch {
	case startsJSON(text): // whatever the label says: curl says that its data is a form
		text, changed, whole = maskJSON(text)
	case kind == "application/x-www-form-urlencoded", isForm.MatchString(text):
		text, changed, whole = maskForm(text)
	case strings.HasPrefix(kind, "multipart/"):
		text, changed, whole = maskMultipart(text, options["boundary"])
	}
	b.Truncated = b.Truncated || !whole
	if !changed {
		return
	}
	b.SHA256 = ""
	if b.Encoding == EncodingBase64 {
		b.Data = base64.StdEncoding.EncodeToString([]byte(text))
		return
	}
	b.Data = text
}

func headerValue(headers []Header, name string) string {
	for _, h := range headers {
		if strings.EqualFold(h.Name(), name) {
			return h.Value()
		}
	}
	return ""
}
