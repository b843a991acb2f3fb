package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"relay"
)

// Size is a number of bytes that limits something.
type Size int64

var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40},
	{"GiB", 1 << 30},
	{"MiB", 1 << 20},
	{"KiB", 1 << 10},
	{"TB", 1e12},
	{"GB", 1e9},
	{"MB", 1e6},
	{"KB", 1e3},
	{"B", 1},
	{"", 1},
}

// Limit is the number of bytes, 0 when it is off.
func (s Size) Limit() int64 { return int64(max(s, 0)) }

// UnmarshalText reads a whole number with a unit (KiB = 1024, KB = 1000, letter
// case ignored), bytes without one, or off.
func (s *Size) UnmarshalText(b []byte) error {
	text := strings.TrimSpace(string(b))
	if text == off {
		*s = unlimited
		return nil
	}
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	unit := strings.TrimSpace(text[len(digits):])
	n, err := strconv.ParseInt(digits, 10, 64)
	for _, u := range sizeUnits {
		if err == nil && n >= 0 && strings.EqualFold(unit, u.name) && n <= math.MaxInt64/u.bytes {
			*s = Size(n * u.bytes)
			return nil
		}
	}
	return fmt.Errorf("%q is not a size such as 128KiB, 32MiB, 5GiB or off", text)
}

// String takes the largest unit that divides the size, binary ones first.
func (s *Size) String() string {
	if *s == unlimited {
		return off
	}
	for _, u := range sizeUnits {
		if int64(*s) >= u.bytes && int64(*s)%u.bytes == 0 && u.bytes > 1 {
			return strconv.FormatInt(int64(*s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(*s), 10)
}

// Rate allows N things in each Per; N = 0 is off.
type Rate struct {
	N   int
	Per time.Duration
}

var rateUnits = []struct {
	name string
	per  time.Duration
}{
	{"s", time.Second},
	{"sec", time.Second},
	{"second", time.Second},
	{"min", time.Minute},
	{"m", time.Minute},
	{"minute", time.Minute},
	{"h", time.Hour},
	{"hour", time.Hour},
	{"d", 24 * time.Hour},
	{"day", 24 * time.Hour},
}

// UnmarshalText reads a number, a slash and a unit or duration, or off.
func (r *Rate) UnmarshalText(b []byte) error {
	text := strings.TrimSpace(string(b))
	if text == off {
		*r = Rate{}
		return nil
	}
	count, unit, ok := strings.Cut(text, "/")
	n, err := strconv.ParseUint(strings.TrimSpace(count), 10, 31)
	if per := ratePer(strings.TrimSpace(unit)); ok && err == nil && n > 0 && per > 0 {
		*r = Rate{N: int(n), Per: per}
		return nil
	}
	return fmt.Errorf("%q is not a rate such as 60/min, 5/s or off", text)
}

func ratePer(unit string) time.Duration {
	for _, u := range rateUnits {
		if strings.EqualFold(unit, u.name) {
			return u.per
		}
	}
	d, err := relay.ParseDuration(unit)
	if err != nil {
		return 0
	}
	return d
}

func (r *Rate) String() string {
	if r.N == 0 {
		return off
	}
	for _, u := range rateUnits {
		if r.Per == u.per {
			return strconv.Itoa(r.N) + "/" + u.name
		}
	}
	return strconv.Itoa(r.N) + "/" + relay.FormatDuration(r.Per)
}
