package db

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
	"unicode/utf8"
)

// StorableText replaces the parts of a text that a text column of either engine refuses: invalid UTF-8 and NUL.
func StorableText(s string) string {
	if utf8.ValidString(s) && !strings.Contains(s, "\x00") {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd")
}

// Micros returns the stored form of a time; 0 = none.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// FromMicros returns the time that Micros stored.
func FromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// StoredTime returns a time with the precision that it has when it is read back.
func StoredTime(t time.Time) time.Time { return FromMicros(Micros(t)) }

// Time is a time that is stored in the form that Micros returns.
type Time time.Time

// Scan implements sql.Scanner.
func (t *Time) Scan(stored any) error {
	us, ok := stored.(int64)
	if !ok {
		return fmt.Errorf("a time is stored as %T", stored)
	}
	*t = Time(FromMicros(us))
	return nil
}

// AddrPort is an address that a row stores as text. Invalid text becomes the zero value.
type AddrPort netip.AddrPort

// Scan implements sql.Scanner.
func (a *AddrPort) Scan(stored any) error {
	text, _ := stored.(string)
	addr, _ := netip.ParseAddrPort(text)
	*a = AddrPort(addr)
	return nil
}

// Column is the destination of a column whose value is converted.
type Column func(stored any)

// Scan implements sql.Scanner.
func (c Column) Scan(stored any) error {
	c(stored)
	return nil
}

// Code returns the destination of a column with a code, which is an index of names. The destination sets *to
// to the name at that index. For an unknown code it sets nothing.
func Code(to *string, names []string) Column {
	return func(stored any) {
		n, _ := stored.(int64)
		if n >= 0 && n < int64(len(names)) { // a larger code was written by a later version
			*to = names[n]
		}
	}
}

// Period returns the destination of a column with a duration in microseconds; NULL becomes 0.
func Period(to *time.Duration) Column {
	return func(stored any) {
		us, _ := stored.(int64)
		*to = time.Duration(us) * time.Microsecond
	}
}

// Digest returns the destination of a column with a SHA-256 sum.
func Digest(to *[32]byte) Column {
	return func(stored any) {
		sum, _ := stored.([]byte)
		copy(to[:], sum)
	}
}

// BoolToInt returns the stored form of a bool.
func BoolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// NonNil returns p, or an empty slice for nil: for NOT NULL columns.
func NonNil(p []byte) []byte {
	if p == nil {
		return []byte{}
	}
	return p
}
