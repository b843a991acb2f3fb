package relay

import (
	"database/sql/driver"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// IDPrefix starts the text form of every event id.
const IDPrefix = "evt_"

// ID identifies an event. It is a UUIDv7 (RFC 9562, section 5.7) that is greater than every earlier
// ID of the same store, so that ids sort in the order of arrival.
type ID [16]byte

const idAlphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// String returns the text form: "evt_" and 26 characters of lower-case
// Crockford base32, most significant bits first.
func (id ID) String() string {
	var out [26]byte
	hi, lo := id.words()
	for i := 25; i >= 0; i-- {
		out[i] = idAlphabet[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return IDPrefix + string(out[:])
}

// ParseID parses the text form. For any text that String does not produce, the error is ErrNotFound,
// so that clients cannot distinguish a malformed id from an unknown one.
func ParseID(s string) (ID, error) {
	text, ok := strings.CutPrefix(s, IDPrefix)
	if !ok || len(text) != 26 || text[0] > '7' {
		return ID{}, ErrNotFound
	}
	var hi, lo uint64
	for i := range len(text) {
		v := strings.IndexByte(idAlphabet, text[i])
		if v < 0 {
			return ID{}, ErrNotFound
		}
		hi = hi<<5 | lo>>59
		lo = lo<<5 | uint64(v)
	}
	var id ID
	binary.BigEndian.PutUint64(id[:8], hi)
	binary.BigEndian.PutUint64(id[8:], lo)
	return id, nil
}

func (id ID) words() (hi, lo uint64) {
	return binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
}

// Time returns the time of arrival that the id contains, in milliseconds.
func (id ID) Time() time.Time {
	hi, _ := id.words()
	return time.UnixMilli(int64(hi >> 16)).UTC()
}

// Next returns the next higher id. As a cursor, that next id selects the event of id and all older events.
func (id ID) Next() ID {
	for i := len(id) - 1; i >= 0; i-- {
		if id[i]++; id[i] != 0 {
			break
		}
	}
	return id
}

// IsZero reports whether the id is the zero value, which identifies no event.
func (id ID) IsZero() bool { return id == ID{} }

// MarshalText returns the text form.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText parses the text form.
func (id *ID) UnmarshalText(b []byte) (err error) {
	*id, err = ParseID(string(b))
	return err
}

// Value returns the 16 bytes of the id for the database.
func (id ID) Value() (driver.Value, error) { return id[:], nil }

// Scan accepts 16 bytes, or the text of 36 characters that Postgres returns for a uuid
// column.
func (id *ID) Scan(src any) error {
	var b []byte
	switch v := src.(type) {
	case []byte:
		b = v
	case string:
		b = []byte(v)
	default:
		return fmt.Errorf("scan event id from %T", src)
	}
	if len(b) == 36 {
		raw, err := hex.DecodeString(strings.ReplaceAll(string(b), "-", ""))
		if err != nil {
			return fmt.Errorf("scan event id: %w", err)
		}
		b = raw
	}
	if len(b) != len(id) {
		return fmt.Errorf("scan event id: %d bytes", len(b))
	}
	copy(id[:], b)
	return nil
}
