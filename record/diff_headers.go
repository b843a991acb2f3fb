package record

import (
	"slices"
	"strings"

	"relay/signature"
)

// noisyHeaders are fields that a server sets anew in each response: times, durations, and identifiers
// for tracing.
var noisyHeaders = map[string]bool{
	"age":              true,
	"cf-ray":           true,
	"content-length":   true, // changes with the body
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

// deliveryHeaders are the fields that senders set anew in each request: signatures, the times that
// they cover, and delivery ids.
var deliveryHeaders = func() map[string]bool {
	names := map[string]bool{}
	for i := range signature.Senders {
		p := &signature.Senders[i]
		names[p.Delivery] = true
		for n := range p.Schemes {
			s := &p.Schemes[n]
			names[strings.ToLower(s.TimeHeader)] = true
			if s.Digest == signature.Equal || s.Digest == signature.Network && !strings.Contains(p.Mark, "-sig") {
				continue // the sender sends the same value in each request
			}
			for _, name := range s.Headers() {
				names[strings.ToLower(name)] = true
			}
		}
	}
	delete(names, "")
	return names
}()

// headerChanges lists the header lines that differ, field by field. The order of lines with different
// names is ignored; the order of lines with the same name counts (RFC 9110, section 5.3). Two lines
// are equal if their names, in the same letter case, and their values are equal, without the white
// space around a value (section 5.5).
func headerChanges(was, is []Header, request bool) []HeaderChange {
	fields := map[string]*[2][]Header{}
	var names []string
	for side, headers := range [2][]Header{was, is} {
		for _, h := range headers {
			name := strings.ToLower(h.Name())
			field := fields[name]
			if field == nil {
				field = new([2][]Header)
				fields[name] = field
				names = append(names, name)
			}
			field[side] = append(field[side], h)
		}
	}
	list := []HeaderChange{}
	for _, name := range names {
		left, right := fields[name][0], fields[name][1]
		equal := func(a, b Header) bool { return slices.Equal(a, b) }
		start := commonStart(left, right, equal)
		left, right = left[start:], right[start:]
		end := commonEnd(left, right, equal)
		left, right = left[:len(left)-end], right[:len(right)-end]
		list = slices.Grow(list, max(len(left), len(right)))
		noise := noisyHeaders[name] || request && deliveryHeaders[name]
		for i := range max(len(left), len(right)) {
			c := HeaderChange{Op: "replace", Noise: noise}
			if i < len(right) {
				c.Name, c.Right = right[i].Name(), right[i].exact()
			} else {
				c.Op = "remove"
			}
			if i < len(left) {
				c.Name, c.Left = left[i].Name(), left[i].exact()
			} else {
				c.Op = "add"
			}
			list = append(list, c)
		}
	}
	return list
}
