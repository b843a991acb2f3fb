package signature

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"
)

// Request is a request whose signature is verified or made.
type Request struct {
	Method string
	URL    string // URL as the sender knows it: scheme, host and the path as sent
	Body   []byte // body without its transfer coding, but with its content coding

	// Line returns the value of the first header line with a name, in any letter case.
	Line func(name string) (value string, ok bool)
}

// Field is a header line.
type Field struct{ Name, Value string }

// Lines returns the Line function of a Request for a list of header lines.
func Lines(list []Field) func(name string) (string, bool) {
	return func(name string) (string, bool) {
		for i := range list {
			if f := &list[i]; len(f.Name) == len(name) && strings.EqualFold(f.Name, name) {
				return f.Value, true
			}
		}
		return "", false
	}
}

func (r *Request) line(name string) (string, bool) {
	if name == "" || r.Line == nil {
		return "", false
	}
	return r.Line(name)
}

// member returns a number or a string at the top level of a JSON object as text.
func member(body []byte, key string) (string, bool) {
	var object map[string]json.RawMessage
	if len(body) > maxBody || json.Unmarshal(bytes.TrimPrefix(body, []byte("\ufeff")), &object) != nil {
		return "", false
	}
	raw, ok := object[key]
	if !ok {
		return "", false
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, true
	}
	return string(raw), true
}

var errTime = errors.New("not a time")

// Limits of plausible times: seconds up to the year 5138, milliseconds up to the year 9999.
const (
	maxSeconds = 100_000_000_000
	maxMillis  = 253_402_300_799_999
)

// read reads a time in the format u. For Seconds and Millis, the size of the number decides whether it is read as
// seconds or as milliseconds.
func (u Unit) read(text string) (time.Time, error) {
	if u == Instant {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil || len(text) > 40 || at.UnixMilli() <= 0 || at.UnixMilli() > maxMillis {
			return time.Time{}, errTime
		}
		return at.UTC().Truncate(time.Millisecond), nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil || n <= 0 || n > maxMillis:
		return time.Time{}, errTime
	case n < maxSeconds:
		return time.Unix(n, 0).UTC(), nil
	default:
		return time.UnixMilli(n).UTC(), nil
	}
}

func (u Unit) write(at time.Time) string {
	switch u {
	case Millis:
		return strconv.FormatInt(at.UnixMilli(), 10)
	case Instant:
		return at.UTC().Format("2006-01-02T15:04:05.000Z")
	default:
		return strconv.FormatInt(at.Unix(), 10)
	}
}
