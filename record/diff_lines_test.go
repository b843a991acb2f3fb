package record_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"relay"
	"relay/record"
)

// TestDiffInOneBody: JSON changes are shown at their positions in the right body. A change without a position
// there, or a long body, gives no such view.
func TestDiffInOneBody(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ was, is, want string }{
		{
			`{"error":"x","handler":"h","n":1}`, `{"handler":"h","n":2,"order":{"id":1,"tags":["a"]}}`,
			" {| \"handler\": \"h\",|~ \"n\": 1→2,|+ \"order\": {|+ \"id\": 1,|+ \"tags\": [|+ \"a\"|+ ]|+ }|- \"error\": \"x\"| }",
		},
		{`{"a":{"b":1,"c":[]}}`, `{"a":{"c":[]}}`, " {| \"a\": {| \"c\": []|- \"b\": 1| }| }"},
		{`{"t":"1 \u00d7"}`, `{"t":"2 \u00d7"}`, " {|~ \"t\": \"1 ×\"→\"2 ×\"| }"},
		{`{"a/b~":1}`, `{"a/b~":2,"":3}`, " {|~ \"a/b~\": 1→2,|+ \"\": 3| }"},
		{`{"a":{"x":1}}`, `{"a":{}}`, " {| \"a\": {}|- \"x\": 1| }"},
		{`[1,2]`, `[1,2,3]`, " [| 1,| 2,|+ 3| ]"},
		{`{"a":1}`, `{"a":[1]}`, ""},                                         // the kind of the value changes
		{`[1]`, `{"a":1}`, ""},                                               // the whole body changes
		{`{"a":"\u001b"}`, `{"a":"` + strings.Repeat("x", 70000) + `"}`, ""}, // the body is too long
	} {
		e := &relay.Event{ID: relay.ID{1}}
		for i, body := range []string{x.was, x.is} {
			e.Attempts = append(e.Attempts, relay.Attempt{N: i + 1, HasResponse: true, Status: 200, Response: relay.Message{
				Head: []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"),
				Body: relay.Body{Data: []byte(body), Stored: int64(len(body)), Size: int64(len(body)), SHA256: [32]byte{byte(i)}, State: relay.BodyComplete},
			}})
		}
		d, err := record.ReadDiff(t.Context(), inlineBodies{e}, record.Compared{Event: e, N: 1}, record.Compared{Event: e, N: 2}, record.DiffResponse)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		lines, ok := d.Lines()
		for _, l := range lines {
			sign := map[string]string{"add": "+ ", "remove": "- ", "replace": "~ ", "": " "}[l.Op]
			text := sign + strings.TrimSpace(l.Text)
			if l.Op == "replace" {
				text += fmt.Sprintf(" %s→%s", l.Old, l.New)
			}
			got = append(got, text)
		}
		if !ok {
			got = nil
		}
		if all := strings.Join(got, "|"); all != x.want {
			t.Errorf("%s and %.80s:\n%s\n%s", x.was, x.is, all, x.want)
		}
	}
}

type inlineBodies struct{ *relay.Event }

func (s inlineBodies) BodyPart(_ context.Context, _ relay.ID, n, _ int) ([]byte, error) {
	return s.Attempts[n-1].Response.Body.Data, nil
}
