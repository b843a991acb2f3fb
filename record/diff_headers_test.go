package record

import (
	"fmt"
	"strings"
	"testing"
)

func TestHeaderChanges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		was, is []Header
		request bool
		want    string
	}{
		{"nothing", nil, nil, false, ""},
		{"the same", []Header{{"A", "1"}}, []Header{{"A", "1"}}, false, ""},
		{
			"noise and a change",
			[]Header{{"DATE", "1"}, {"A", "1"}, {"B", "1"}},
			[]Header{{"DATE", "2"}, {"A", "1"}, {"B", "2"}},
			false, `replace DATE "1" "2" noise; replace B "1" "2"`,
		},
		{
			"unchanged noise is not listed",
			[]Header{{"Date", "1"}, {"A", "1"}},
			[]Header{{"Date", "1"}},
			false, `remove A "1"`,
		},
		{"the letter case of a name", []Header{{"a", "1"}}, []Header{{"A", "1"}}, false, `replace a "1" "1"`},
		{"the order of fields", []Header{{"A", "1"}, {"B", "2"}}, []Header{{"B", "2"}, {"A", "1"}}, false, ""},
		{"the order within a field", []Header{{"Via", "a"}, {"Via", "b"}}, []Header{{"Via", "b"}, {"Via", "a"}}, false, `replace Via "a" "b"; replace Via "b" "a"`},
		{"a line before others of its field", []Header{{"Via", "b"}, {"Via", "c"}}, []Header{{"Via", "a"}, {"Via", "b"}, {"Via", "c"}}, false, `add Via "a"`},
		{"values that differ only in bytes that are not UTF-8", []Header{{"A", "\ufffd", "/w=="}}, []Header{{"A", "\ufffd", "/g=="}}, false, `replace A "\\xff" "\\xfe"`},
		{"a signature of a request", []Header{{"Stripe-Signature", "1"}}, []Header{{"Stripe-Signature", "2"}}, true, `replace Stripe-Signature "1" "2" noise`},
		{"the same of a response", []Header{{"Stripe-Signature", "1"}}, []Header{{"Stripe-Signature", "2"}}, false, `replace Stripe-Signature "1" "2"`},
	} {
		var got []string
		for _, h := range headerChanges(c.was, c.is, c.request) {
			text := h.Op + " " + h.Name
			for _, value := range []*string{h.Left, h.Right} {
				if value != nil {
					text += fmt.Sprintf(" %q", *value)
				}
			}
			if h.Noise {
				text += " noise"
			}
			got = append(got, text)
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
	}
}
