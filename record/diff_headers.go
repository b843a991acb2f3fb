package record

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	udiff "github.com/aymanbagabas/go-udiff"
)

// maxComparedHeaders bounds the header lines of each side that are compared.
const maxComparedHeaders = 4000

// What became of a HeaderLine.
const (
	HeaderSame    = "same"
	HeaderRemoved = "removed"
	HeaderAdded   = "added"
)

// HeaderLine is one header line of a comparison.
type HeaderLine struct {
	Op    string
	Name  string
	Value string
	// Noise marks a line that differs between any two responses of most servers, so
	// that its change says nothing about the two that are compared.
	Noise bool
}

// noisyHeaders are fields whose value a server makes anew for each response: its
// time, how long it took, and identifiers for tracing.
var noisyHeaders = map[string]bool{
	"age":              true,
	"cf-ray":           true,
	"content-length":   true, // it follows the body
	"date":             true,
	"server-timing":    true,
	"traceparent":      true,
	"x-amz-request-id": true,
	"x-amzn-requestid": true,
	"x-amzn-trace-id":  true,
	"x-correlation-id": true,
	"x-request-id":     true,
	"x-response-time":  true,
	"x-runtime":        true,
	"x-trace-id":       true,
}

// CompareHeaders lists the header lines of two messages in their order, each as
// the same on both sides, removed or added. Two lines are the same when name, with
// its case, and value agree; white space around the value is no part of it
// (RFC 9110, 5.5). CompareHeaders reports false, and no lines, when a side has too
// many lines.
func CompareHeaders(was, is []Header) ([]HeaderLine, bool) {
	if max(len(was), len(is)) > maxComparedHeaders {
		return nil, false
	}
	left := headerText(was)
	u, err := udiff.ToUnifiedDiff("", "", left, udiff.Lines(left, headerText(is)), max(len(was), len(is)))
	if err != nil {
		return nil, false
	}
	if len(u.Hunks) == 0 {
		return headerLines(nil, HeaderSame, was), true
	}
	list := make([]HeaderLine, 0, max(len(was), len(is)))
	for _, h := range u.Hunks {
		for _, line := range h.Lines {
			switch line.Kind {
			case udiff.Delete:
				list, was = headerLines(list, HeaderRemoved, was[:1]), was[1:]
			case udiff.Insert:
				list, is = headerLines(list, HeaderAdded, is[:1]), is[1:]
			default:
				list, was, is = headerLines(list, HeaderSame, was[:1]), was[1:], is[1:]
			}
		}
	}
	return list, true
}

func headerLines(list []HeaderLine, op string, headers []Header) []HeaderLine {
	for _, h := range headers {
		noise := op != HeaderSame && noisyHeaders[strings.ToLower(h.Name())]
		list = append(list, HeaderLine{Op: op, Name: h.Name(), Value: h.Value(), Noise: noise})
	}
	return list
}

// headerText writes each header as exactly one line, whatever bytes it holds.
func headerText(headers []Header) string {
	var b strings.Builder
	for _, h := range headers {
		for _, item := range h {
			b.WriteString(strconv.Quote(item))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// deliveryHeaders are the fields that senders make anew for each request: signatures, the
// time that these cover, and ids of deliveries.
var deliveryHeaders = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	for i := range senders {
		s := &senders[i]
		for _, name := range []string{s.delivery, s.signed} {
			names[name] = true
		}
		if strings.Contains(s.mark, "-sig") {
			names[s.mark] = true
		}
	}
	delete(names, "")
	return names
})

// headerChanges lists the lines that differ; a removed line and the added one that takes
// its place are one change.
func headerChanges(was, is []Header, request bool) []HeaderChange {
	lines, _ := CompareHeaders(was, is)
	list := []HeaderChange{}
	open := 0 // index of the first removed line of this group
	for i := range lines {
		l := &lines[i]
		c := HeaderChange{Op: "remove", Name: l.Name, Noise: l.Noise || request && deliveryHeaders()[strings.ToLower(l.Name)]}
		switch l.Op {
		case HeaderSame:
			open = len(list)
			continue
		case HeaderRemoved:
			c.Left = &l.Value
			list = append(list, c)
			continue
		}
		at := slices.IndexFunc(list[open:], func(was HeaderChange) bool {
			return was.Op == "remove" && strings.EqualFold(was.Name, l.Name)
		})
		if at < 0 {
			c.Op, c.Right = "add", &l.Value
			list = append(list, c)
		} else {
			list[open+at].Op, list[open+at].Right = "replace", &l.Value
		}
	}
	return list
}
