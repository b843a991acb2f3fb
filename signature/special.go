package signature

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"
)

// special holds functions for the parts of a scheme that data cannot express. If a function is nil, that part
// works as in all other schemes.
type special struct {
	describe string
	canSign  CanSign
	present  func(*Request) bool
	read     func(*Request, *reading)
	write    func(io.Writer, *Request, *reading)
	fits     func(*Scheme, key, *Request, *reading) bool
	sign     func(*Scheme, key, *Request, time.Time) (Changes, error)
}

// twilio signs the URL. If the body is a form, it also signs each name with its values, both sorted; equal
// values of a name count once. For any other body, the URL contains a hash of the body in its query.
var twilio = &special{
	describe: "HMAC-SHA1 in base64 over {url} and the form's names and values in order",
	canSign:  SignURL,
	write: func(w io.Writer, r *Request, _ *reading) {
		_, _ = io.WriteString(w, r.URL)
		if _, ok := bodyHash(r); !ok {
			writeForm(w, r.Body, true)
		}
	},
	fits: func(s *Scheme, k key, r *Request, got *reading) bool {
		if want, ok := bodyHash(r); ok {
			sum := sha256.Sum256(r.Body)
			if !strings.EqualFold(want, hex.EncodeToString(sum[:])) {
				return false
			}
		}
		plain := *s
		own := *s.own
		own.fits, plain.own = nil, &own
		return plain.fits(k, r, got)
	},
}

// mandrill signs the URL, and each name of a form with its values: names are sorted, and values stay in the
// order in which they were sent.
var mandrill = &special{
	describe: "HMAC-SHA1 in base64 over {url} and the form's names and values in order",
	canSign:  SignURL,
	write: func(w io.Writer, r *Request, _ *reading) {
		_, _ = io.WriteString(w, r.URL)
		writeForm(w, r.Body, false)
	},
}

// bodyHash returns the hash of the body that the query of the URL contains; false = it contains none.
func bodyHash(r *Request) (string, bool) {
	_, query, _ := strings.Cut(r.URL, "?")
	for pair := range strings.SplitSeq(query, "&") {
		if value, ok := strings.CutPrefix(pair, "bodySHA256="); ok {
			return value, true
		}
	}
	return "", false
}

// writeForm writes the fields of a form, sorted by name, each value after its name. With once, it writes
// equal values of a name only once. If the body is not a form, it writes nothing and returns false.
func writeForm(w io.Writer, body []byte, once bool) bool {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return false
	}
	names := make([]string, 0, len(form))
	for name := range form {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		values := form[name]
		if once {
			slices.Sort(values)
			values = slices.Compact(values)
		}
		for _, value := range values {
			_, _ = io.WriteString(w, name+value)
		}
	}
	return true
}

// mailgun puts time, token and signature into the body.
var mailgun = &special{
	describe: "HMAC-SHA256 in hex over {t}{token}, all of them in the body",
	canSign:  SignBody,
	present:  func(r *Request) bool { _, ok := mailgunOf(r); return ok },
	read: func(r *Request, got *reading) {
		m, ok := mailgunOf(r)
		got.header, got.present = "signature", ok
		got.time, got.id, got.digests = m.Timestamp.text(), m.Token, []string{m.Signature}
		got.parts = []Part{{"timestamp", got.time}, {"token", m.Token}, {"signature", m.Signature}}
		if ok && len(m.Signature) != 2*sha256.Size {
			got.fault = "the signature is not hex of the right length"
		}
	},
	sign: func(s *Scheme, k key, r *Request, now time.Time) (Changes, error) {
		m, ok := mailgunOf(r)
		if !ok {
			return Changes{}, errNoMember
		}
		got := reading{time: Seconds.write(now), id: m.Token}
		body, err := replaceMember(r.Body, []string{"signature", "timestamp"}, quote(got.time))
		if err == nil {
			body, err = replaceMember(body, []string{"signature", "signature"}, quote(s.digest(k, r, &got)))
		}
		return Changes{Body: body, Members: []string{"/signature/timestamp", "/signature/signature"}}, err
	},
}

type mailgunSignature struct {
	Timestamp jsonText `json:"timestamp"`
	Token     string   `json:"token"`
	Signature string   `json:"signature"`
}

// jsonText is a JSON string or number as written.
type jsonText json.RawMessage

func (t *jsonText) UnmarshalJSON(raw []byte) error { *t = bytes.Clone(raw); return nil }

func (t jsonText) text() string { return strings.Trim(string(t), `"`) }

func mailgunOf(r *Request) (mailgunSignature, bool) {
	var m struct {
		Signature *mailgunSignature `json:"signature"`
	}
	if len(r.Body) > maxBody || json.Unmarshal(r.Body, &m) != nil || m.Signature == nil || m.Signature.Token == "" {
		return mailgunSignature{}, false
	}
	return *m.Signature, true
}

// adyenItems signs each payment in a notification of Adyen by eight of its fields.
var adyenItems = &special{
	describe: "HMAC-SHA256 in base64 over eight fields of each item, in the body",
	canSign:  SignBody,
	present:  func(r *Request) bool { return len(adyenItemsOf(r)) > 0 },
	read: func(r *Request, got *reading) {
		items := adyenItemsOf(r)
		got.header, got.present = "hmacSignature", len(items) > 0
		for _, item := range items {
			digest := item.AdditionalData["hmacSignature"]
			got.digests = append(got.digests, digest)
			got.parts = append(got.parts, Part{item.PSPReference, digest})
		}
	},
	write: func(w io.Writer, r *Request, _ *reading) {
		for _, item := range adyenItemsOf(r) {
			_, _ = io.WriteString(w, item.signed())
		}
	},
	fits: func(s *Scheme, k key, r *Request, _ *reading) bool {
		items, ok := adyenItemsOf(r), true
		for _, item := range items {
			ok = hmac.Equal([]byte(item.digest(s, k)), []byte(item.AdditionalData["hmacSignature"])) && ok
		}
		return ok && len(items) > 0
	},
	sign: func(s *Scheme, k key, r *Request, _ time.Time) (Changes, error) {
		items := adyenItemsOf(r)
		if len(items) != 1 {
			return Changes{}, errNoMember
		}
		path := []string{"notificationItems", "0", "NotificationRequestItem", "additionalData", "hmacSignature"}
		body, err := replaceMember(r.Body, path, quote(items[0].digest(s, k)))
		return Changes{Body: body, Members: []string{"/" + strings.Join(path, "/")}}, err
	},
}

type adyenItem struct {
	PSPReference, OriginalReference, MerchantAccountCode, MerchantReference, EventCode string

	Amount struct {
		Value    json.Number
		Currency string
	}
	Success        jsonText
	AdditionalData map[string]string
}

func (a *adyenItem) signed() string {
	fields := []string{
		a.PSPReference, a.OriginalReference, a.MerchantAccountCode, a.MerchantReference,
		a.Amount.Value.String(), a.Amount.Currency, a.EventCode, a.Success.text(),
	}
	return strings.Join(fields, ":")
}

func (a *adyenItem) digest(s *Scheme, k key) string {
	mac := hmac.New(sha256.New, k.raw)
	_, _ = io.WriteString(mac, a.signed())
	return s.Form.encode(mac.Sum(nil))
}

func adyenItemsOf(r *Request) []adyenItem {
	var body struct {
		NotificationItems []struct{ NotificationRequestItem adyenItem }
	}
	if len(r.Body) > maxBody || json.Unmarshal(r.Body, &body) != nil {
		return nil
	}
	var items []adyenItem
	for _, item := range body.NotificationItems {
		if item.NotificationRequestItem.AdditionalData["hmacSignature"] != "" {
			items = append(items, item.NotificationRequestItem)
		}
	}
	return items
}

// maxSignedLines is the largest number of header lines that a signature of Hook0 may name.
const maxSignedLines = 64

// hook0 signs the header lines that the signature names.
var hook0 = &special{
	describe: "HMAC-SHA256 in hex over {t}.{names}.{values}.{b}",
	canSign:  SignYes,
	write: func(w io.Writer, r *Request, got *reading) {
		names := ""
		for _, part := range got.parts {
			if part.Name == "h" {
				names = part.Value
			}
		}
		var values []string
		for name := range strings.FieldsSeq(names) {
			if len(values) == maxSignedLines {
				break // a long line that is named thousands of times must not become gigabytes
			}
			value, _ := r.line(name)
			values = append(values, value)
		}
		_, _ = io.WriteString(w, got.time+"."+names+"."+strings.Join(values, ".")+".")
		_, _ = w.Write(r.Body)
	},
	sign: func(s *Scheme, k key, r *Request, now time.Time) (Changes, error) {
		got := s.read(r)
		names := ""
		for _, part := range got.parts {
			if part.Name == "h" {
				names = part.Value
			}
		}
		got = reading{time: Seconds.write(now), parts: []Part{{"h", names}}}
		value := "t=" + got.time + ",h=" + names + ",v1=" + s.digest(k, r, &got)
		return Changes{Lines: []Field{{s.Header, value}}}, nil
	},
}

// jwt returns the functions for senders whose signature is a JSON Web Token (RFC 7519) with HS256. header names the
// header line with the token. claim is the claim with the hash of the body, and form the encoding of that hash; for
// the claim "", the token has only the time at which it was issued. extra is the JSON of further claims that Sign
// adds.
func jwt(header, claim string, form Form, extra string) *special {
	hashOf := func(body []byte) string {
		sum := sha256.Sum256(body)
		return form.encode(sum[:])
	}
	describe := "a JWT with HS256 whose claim " + claim + " is the SHA-256 of {b} in " + formNames[form]
	if claim == "" {
		describe = "a JWT with HS256, which says nothing about the body"
	}
	return &special{
		describe: describe,
		canSign:  SignYes,
		fits: func(_ *Scheme, k key, r *Request, got *reading) bool {
			for _, token := range got.digests {
				signed, mac, _ := cutLast(token, ".")
				if !hmac.Equal([]byte(jwtMAC(k, signed)), []byte(mac)) {
					continue
				}
				_, payload, _ := strings.Cut(signed, ".")
				claims, err := base64.RawURLEncoding.DecodeString(payload)
				if err == nil && claim == "" {
					return true
				}
				if value, ok := member(claims, claim); err == nil && ok && hmac.Equal([]byte(value), []byte(hashOf(r.Body))) {
					return true
				}
			}
			return false
		},
		read: func(r *Request, got *reading) {
			if token, ok := r.line(header); ok {
				got.present, got.header, got.digests = true, header, []string{token}
				if strings.Count(token, ".") != 2 {
					got.fault = "the line has no JSON Web Token in it"
				} else if claim == "" {
					_, rest, _ := strings.Cut(token, ".")
					payload, _, _ := strings.Cut(rest, ".")
					if claims, err := base64.RawURLEncoding.DecodeString(payload); err == nil {
						got.time, _ = member(claims, "iat")
					}
				}
			}
		},
		write: func(w io.Writer, r *Request, _ *reading) {
			if claim != "" {
				_, _ = io.WriteString(w, hashOf(r.Body))
			}
		},
		sign: func(s *Scheme, k key, r *Request, now time.Time) (Changes, error) {
			claims := `"iat":` + Seconds.write(now) + `,"exp":` + Seconds.write(now.Add(fiveMins))
			if claim != "" {
				claims = extra + `"` + claim + `":"` + hashOf(r.Body) + `"`
			}
			head := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","typ":"JWT"}`))
			signed := head + "." + base64.RawURLEncoding.EncodeToString([]byte(`{`+claims+`}`))
			return Changes{Lines: []Field{{s.Header, signed + "." + jwtMAC(k, signed)}}}, nil
		},
	}
}

// clientState is for Microsoft Graph, which repeats the client state of the subscription in each
// notification. A new event that is made from a notification already contains the client state, so nothing is
// signed.
var clientState = &special{
	describe: "the secret itself is sent, as clientState of each notification in the body",
	canSign:  SignNo,
	present:  func(r *Request) bool { return len(clientStatesOf(r)) > 0 },
	read: func(r *Request, got *reading) {
		states := clientStatesOf(r)
		got.header, got.present, got.digests = "clientState", len(states) > 0, states
		for range states {
			got.parts = append(got.parts, Part{"clientState", masked})
		}
	},
	fits: func(_ *Scheme, k key, _ *Request, got *reading) bool {
		ok := len(got.digests) > 0
		for _, state := range got.digests { // the client state of each notification must equal the secret
			ok = hmac.Equal([]byte(state), []byte(k.secret)) && ok
		}
		return ok
	},
}

func clientStatesOf(r *Request) (states []string) {
	var body struct {
		Value []struct {
			ClientState string `json:"clientState"`
		} `json:"value"`
	}
	if len(r.Body) > maxBody || json.Unmarshal(r.Body, &body) != nil {
		return nil
	}
	for _, notification := range body.Value {
		if notification.ClientState != "" {
			states = append(states, notification.ClientState)
		}
	}
	if len(states) < len(body.Value) {
		return nil // a notification without a client state could come from any client
	}
	return states
}

// querySecret is for Event Grid. Its only proof is a text that the owner of the endpoint has put into the
// query of the URL, under any name. That text is a part of the URL, so there is no signature to make.
var querySecret = &special{
	describe: "the secret itself is sent, as a value of the query of the URL",
	canSign:  SignNo,
	present:  func(r *Request) bool { return strings.Contains(r.URL, "?") },
	read: func(r *Request, got *reading) {
		got.header, got.present = "query", strings.Contains(r.URL, "?")
		got.parts = []Part{{"query", masked}}
		_, query, _ := strings.Cut(r.URL, "?")
		for pair := range strings.SplitSeq(query, "&") {
			_, text, _ := strings.Cut(pair, "=")
			if text, err := url.QueryUnescape(text); err == nil && text != "" {
				got.digests = append(got.digests, text)
			}
		}
	},
}

func jwtMAC(k key, signed string) string {
	mac := hmac.New(sha256.New, k.raw)
	_, _ = io.WriteString(mac, signed)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func cutLast(s, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(s, separator); i >= 0 {
		return s[:i], s[i+len(separator):], true
	}
	return s, "", false
}

// hygraph signs a JSON document that contains the body as text, the name of the environment and the
// time.
var hygraph = &special{
	describe: "HMAC-SHA256 in base64 over a JSON document of body, environment and time",
	canSign:  SignYes,
	write: func(w io.Writer, r *Request, got *reading) {
		environment := ""
		for _, part := range got.parts {
			if part.Name == "env" {
				environment = part.Value
			}
		}
		_, _ = io.WriteString(w, `{"Body":`+string(quote(string(r.Body)))+`,"EnvironmentName":`+string(quote(environment))+`,"TimeStamp":`+got.time+`}`)
	},
	sign: func(s *Scheme, k key, r *Request, now time.Time) (Changes, error) {
		environment := "master"
		for _, part := range s.read(r).parts {
			if part.Name == "env" {
				environment = part.Value
			}
		}
		got := reading{time: Millis.write(now), parts: []Part{{"env", environment}}}
		value := "sign=" + s.digest(k, r, &got) + ", env=" + environment + ", t=" + got.time
		return Changes{Lines: []Field{{s.Header, value}}}, nil
	},
}

// quote returns a JSON string as JavaScript writes it, without escapes for HTML characters.
func quote(s string) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s)
	text := bytes.TrimSuffix(out.Bytes(), []byte("\n"))
	text = bytes.ReplaceAll(text, []byte(`\u2028`), []byte("\u2028"))
	return bytes.ReplaceAll(text, []byte(`\u2029`), []byte("\u2029"))
}
