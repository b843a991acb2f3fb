package record

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"relay"
	"relay/handshake"
)

// Limits of the alias setting answers.
const (
	MaxAnswers        = 20
	MaxAnswerBody     = 16 << 10
	maxAnswerLines    = 20
	maxAnswerLineText = 1024
	maxAnswerPrefix   = 1024
)

// CheckHandshakes returns an error if a list is not a valid value of the setting handshakes.
func CheckHandshakes(names []string) error {
	known := append(handshake.Names(), handshake.All)
	for i, name := range names {
		if !slices.Contains(known, name) {
			message := "expected names of " + strings.Join(known, ", ")
			if near := Nearest(name, known); near != "" {
				message += "; did you mean " + near + "?"
			}
			return errors.New(message)
		}
		if slices.Contains(names[:i], name) {
			return fmt.Errorf("%s is named twice", name)
		}
	}
	return nil
}

// setHandshakes sets the setting handshakes to value. This is a decoded JSON list, or a text from the command
// line with names separated by commas or spaces.
func setHandshakes(to *[]string, value any) error {
	names := []string{}
	switch v := value.(type) {
	case string:
		if names = strings.FieldsFunc(v, func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) }); len(names) == 1 && (noValue(names[0]) || names[0] == "off" || names[0] == "none" || names[0] == "[]") {
			names = nil
		}
	case []any:
		for _, name := range v {
			text, ok := name.(string)
			if !ok {
				return errors.New("expected a list of names")
			}
			names = append(names, text)
		}
	case []string:
		names = v
	case nil:
	default:
		return errors.New("expected a list of names")
	}
	if err := CheckHandshakes(names); err != nil {
		return err
	}
	*to = append([]string{}, names...)
	return nil
}

// CheckAnswers returns an error if a list is not a valid value of the setting answers.
func CheckAnswers(list []relay.OfflineAnswer) error {
	if len(list) > MaxAnswers {
		return fmt.Errorf("expected at most %d answers", MaxAnswers)
	}
	for i := range list {
		if err := checkAnswer(&list[i]); err != nil {
			return fmt.Errorf("answer %d: %w", i+1, err)
		}
	}
	return nil
}

func checkAnswer(a *relay.OfflineAnswer) error {
	switch {
	case a.Method != nil && !isToken(*a.Method):
		return errors.New("method: expected a method such as POST, or null for any")
	case !strings.HasPrefix(a.PathPrefix, "/") || len(a.PathPrefix) > maxAnswerPrefix || !isLineText(a.PathPrefix) || strings.Contains(a.PathPrefix, " "):
		return fmt.Errorf("pathPrefix: expected the beginning of a path such as /hooks, of at most %d bytes", maxAnswerPrefix)
	case a.Status < http.StatusOK || a.Status > 599:
		return errors.New("status: expected a status from 200 to 599")
	case len(a.Headers) > maxAnswerLines:
		return fmt.Errorf("headers: expected at most %d lines", maxAnswerLines)
	}
	for _, l := range a.Headers {
		if err := checkAnswerLine(l[0], l[1]); err != nil {
			return fmt.Errorf("headers: %w", err)
		}
	}
	return checkAnswerBody(a)
}

// refusedLines are header lines that an answer must not set: those that describe the framing or the connection,
// all lines of cookies, and those that browsers remember for the host of the alias, such as Alt-Svc.
var refusedLines = []string{
	"content-length", "transfer-encoding", "trailer", "te", "connection", "keep-alive", "proxy-connection", "upgrade", "set-cookie", "set-cookie2", "cookie", "cookie2",
	"clear-site-data", "alt-svc", "strict-transport-security",
}

func checkAnswerLine(name, value string) error {
	lower := strings.ToLower(name)
	switch {
	case !isToken(name):
		return fmt.Errorf("%q is not a header name", SafeTextMax(name, 60))
	case slices.Contains(refusedLines, lower), strings.HasPrefix(lower, "relay-"):
		return fmt.Errorf("%s cannot be set: the relay sets lines of framing, of the connection and Relay-* itself, and sets no cookies", SafeTextMax(name, 60))
	case len(name)+len(value) > maxAnswerLineText || !isLineText(value) || strings.TrimSpace(value) != value:
		return fmt.Errorf("%s: expected a value of printable characters, of at most %d bytes", SafeTextMax(name, 60), maxAnswerLineText)
	}
	return nil
}

func checkAnswerBody(a *relay.OfflineAnswer) error {
	size := len(a.Body.Data)
	switch a.Body.Encoding {
	case "utf8":
		if !utf8.ValidString(a.Body.Data) || strings.ContainsRune(a.Body.Data, 0) {
			return errors.New("body: the text is not UTF-8, or holds a NUL; give it as base64")
		}
	case "base64":
		p, err := base64.StdEncoding.DecodeString(a.Body.Data)
		if err != nil {
			return errors.New("body: the data is not base64")
		}
		size = len(p)
	default:
		return errors.New("body: expected the encoding utf8 or base64")
	}
	if size > MaxAnswerBody {
		return fmt.Errorf("body: expected at most %d bytes", MaxAnswerBody)
	}
	if size > 0 && (a.Status == http.StatusNoContent || a.Status == http.StatusResetContent || a.Status == http.StatusNotModified) {
		return fmt.Errorf("body: an answer of status %d has none", a.Status)
	}
	return nil
}

// AnswerBytes returns the body of an answer as it is sent. It returns no error, because an answer that cannot
// be decoded is never stored.
func AnswerBytes(b relay.AnswerBody) []byte {
	if b.Encoding == "base64" {
		p, _ := base64.StdEncoding.DecodeString(b.Data)
		return p
	}
	return []byte(b.Data)
}

// isToken reports whether a text is a token (RFC 9110, section 5.6.2) of at most 100 bytes.
func isToken(s string) bool {
	return s != "" && len(s) <= 100 && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// isLineText reports whether a text consists of printable ASCII characters.
func isLineText(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// setAnswers sets the setting answers to value. This is a decoded JSON list, or a text from the command line
// that contains the list as JSON.
func setAnswers(to *[]relay.OfflineAnswer, value any) error {
	text, ok := value.(string)
	if !ok {
		given, err := json.Marshal(value)
		if err != nil {
			return errors.New("expected a list of answers")
		}
		text = string(given)
	}
	list := []relay.OfflineAnswer{}
	if text = strings.TrimSpace(text); !noValue(text) && text != "off" && text != "none" {
		dec := json.NewDecoder(strings.NewReader(text))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&list); err != nil || dec.More() {
			return fmt.Errorf("expected a JSON list such as %s", ExampleAnswers)
		}
	}
	for i := range list {
		completeAnswer(&list[i])
	}
	if err := CheckAnswers(list); err != nil {
		return err
	}
	*to = list
	return nil
}

// ExampleAnswers is an example of the setting answers.
const ExampleAnswers = `[{"method":"POST","pathPrefix":"/","status":200,"headers":[["Content-Type","text/plain"]],"body":{"encoding":"utf8","data":"ok"}}]`

// completeAnswer sets the defaults of optional keys: any method, every path, 200, no lines, no body.
func completeAnswer(a *relay.OfflineAnswer) {
	if a.PathPrefix == "" {
		a.PathPrefix = "/"
	}
	if a.Status == 0 {
		a.Status = http.StatusOK
	}
	if a.Headers == nil {
		a.Headers = [][2]string{}
	}
	if a.Body.Encoding == "" {
		a.Body.Encoding = "utf8"
	}
}

// AnswersText returns answers as JSON for editing, one on each line; "" for none.
func AnswersText(list []relay.OfflineAnswer) string {
	if len(list) == 0 {
		return ""
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for i := range list {
		b.WriteString(map[bool]string{true: "[", false: " "}[i == 0])
		_ = enc.Encode(&list[i]) // never fails, because answers consist of texts and numbers
		b.Truncate(b.Len() - 1)
		b.WriteString(map[bool]string{true: "]", false: ",\n"}[i == len(list)-1])
	}
	return b.String()
}

// SafeLines returns up to limit lines of a text in a form that is safe to print.
func SafeLines(text []byte, limit int) string {
	var b strings.Builder
	for line := range bytes.Lines(text) {
		if limit--; limit < 0 {
			return b.String() + "…\n"
		}
		b.WriteString(SafeTextMax(strings.TrimRight(string(line), "\r\n"), 500) + "\n")
	}
	return b.String()
}

// challengeOf returns the request of an event in the form of package handshake; nil if its body is not completely
// in memory.
func challengeOf(e *relay.Event) *handshake.Request {
	b := &e.Request.Body
	if b.State != relay.BodyComplete || b.Parts > 0 || b.Size != int64(len(b.Data)) {
		return nil
	}
	return &handshake.Request{Head: e.Request.Head, Body: b.Data}
}

// SentSecret returns the secret that a challenge contains, with the name of its sender, who will sign later
// requests with it. Both are empty if the event is no challenge with a secret.
func SentSecret(e *relay.Event) (sender string, secret relay.SecretText) {
	sender, value := handshake.SentSecret(challengeOf(e))
	return sender, relay.NewSecretText(value)
}

// ConfirmationLink returns the link in a challenge of Amazon SNS that confirms the URL of the alias when it
// is opened; "" for other requests. Relay never opens it.
func ConfirmationLink(e *relay.Event) string { return handshake.ConfirmationLink(challengeOf(e)) }
