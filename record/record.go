// Package record defines the public form of the domain types: the JSON of events, attempts, aliases and
// problems, provider recognition, warnings, settings by name, exports, and text that is safe to print.
//
// The types are written by the API, the SSH commands and the live feed, and read back by the client. Absent
// values are null and never missing, unless a field says otherwise; lists are never null. Functions do not keep
// their arguments, change one only if their comment says so, and are safe for concurrent use.
package record

import (
	"time"
	"unicode/utf8"
)

// List is the form of every list except the list of events, which is a Page.
type List[T any] struct {
	Data []T `json:"data" nullable:"false"`
	// NextCursor continues a list that has pages.
	NextCursor *string `json:"nextCursor,omitempty" doc:"value of ?cursor= for the next page; absent at the end, and where lists have no pages"`
}

// ListOf makes a List whose data is never null.
func ListOf[T any](data []T) List[T] {
	if data == nil {
		data = []T{}
	}
	return List[T]{Data: data}
}

// Time is a moment as the API writes it: UTC, RFC 3339, always three digits of
// milliseconds, which are cut and not rounded.
type Time struct{ time.Time }

// TimeFormat is the layout of Time.
const TimeFormat = "2006-01-02T15:04:05.000Z"

// String returns the JSON form.
func (t Time) String() string { return t.UTC().Format(TimeFormat) }

// MarshalText writes the JSON form.
func (t Time) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// MarshalJSON writes the JSON form as a string.
func (t Time) MarshalJSON() ([]byte, error) { return []byte(`"` + t.String() + `"`), nil }

// timeOf returns the JSON form of a time; nil for the zero time.
func timeOf(t time.Time) *Time {
	if t.IsZero() {
		return nil
	}
	return &Time{t}
}

// textOf returns a pointer to a text; nil for the empty text.
func textOf(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// valueOf returns the value of a pointer; the zero value for nil.
func valueOf[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// millis returns a duration in milliseconds, to the microsecond.
func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// lossy returns bytes as text, in which U+FFFD replaces every byte that is not valid UTF-8. exact
// means that no byte was replaced.
func lossy(b []byte) (s string, exact bool) {
	if utf8.Valid(b) {
		return string(b), true
	}
	return string([]rune(string(b))), false
}
