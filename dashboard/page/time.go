package page

import (
	"strconv"
	"time"

	"relay/record"
)

// ISOTime returns a time for the attribute datetime and for tooltips.
func ISOTime(t time.Time) string { return record.Time{Time: t}.String() }

// RelativeText returns a time relative to now, such as 3 min ago. page.js uses the same words.
func RelativeText(t time.Time) string {
	d := time.Until(t)
	ahead := d > 0
	d = d.Abs()
	var text string
	switch {
	case d < 5*time.Second:
		return "now"
	case d < time.Minute:
		text = strconv.Itoa(int(d/time.Second)) + " s"
	case d < time.Hour:
		text = strconv.Itoa(int(d/time.Minute)) + " min"
	case d < 24*time.Hour:
		text = strconv.Itoa(int(d/time.Hour)) + " h"
	case d < 60*24*time.Hour:
		text = strconv.Itoa(int(d/(24*time.Hour))) + " d"
	default:
		return t.UTC().Format(time.DateOnly)
	}
	if ahead {
		return "in " + text
	}
	return text + " ago"
}
