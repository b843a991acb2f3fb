package compose

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"relay"
	"relay/relaytest"
)

func jsonRequest(lines, doc string) *Request {
	return &Request{Head: []byte("POST / HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n"), Framing: relay.FramingLength, Body: []byte(doc)}
}

// TestSetMembers compares documents after setting members with the exact text, or expects an error.
func TestSetMembers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ doc, set, want string }{
		{`{"a":1}`, "a=2", `{"a":2}`},
		{` { "a" : 1 , "b" : [ 1 , 2 ] } `, "b.1=3", ` { "a" : 1 , "b" : [ 1 , 3 ] } `},
		{`{"a":1,"a":2}`, "a=3", `{"a":1,"a":3}`},
		{`{"a":{"b":1},"a":{"b":2}}`, "a.b=3", `{"a":{"b":1},"a":{"b":3}}`},
		{`{"a":{"b":1},"a":2}`, "a.b=3", "error"},
		{`{"a":2,"a":{"b":1}}`, "a.b=3", `{"a":2,"a":{"b":3}}`},
		{`{"a":1}`, "b=2|c=3", `{"a":1,"b":2,"c":3}`},
		{`{}`, "b=2|c=3", `{"b":2,"c":3}`},
		{`{ }`, "b=2", `{"b":2 }`},
		{`{"z":1,"a":2}`, "a=3|z=4", `{"z":4,"a":3}`},
		{`{"a":{"b":1}}`, `a={"b":5}|a.b=6`, `{"a":{"b":6}}`},
		{`{}`, `a={}|a.b=6`, `{"a":{"b":6}}`},
		{`{"a":1}`, `/a=2|a=3`, `{"a":3}`},
		{`{"a":1}`, `a.b=2|/a=3`, "error"},
		{`{"\u0061":1}`, "a=2", `{"\u0061":2}`},
		{`[[1,2],[3,4]]`, "1.0=5|0.1=6", `[[1,6],[5,4]]`},
		{`[1]`, "1=2", "error"},
		{`[1]`, "00=2", "error"},
		{`[1,2]`, "-1=2", "error"},
		{`[1,2]`, "0=3|x=2", "error"},
		{`{"a":[]}`, "a.b=1", "error"},
		{`{"a":1}`, "b.c=1", "error"},
		{`1`, "a=1", "error"},
		{`""`, "a=1", "error"},
		{`{"a":"}]\",","b":[{"c":"\\"}]}`, "b.0.c=1", `{"a":"}]\",","b":[{"c":1}]}`},
	} {
		members := map[string]json.RawMessage{}
		for part := range strings.SplitSeq(c.set, "|") {
			name, value, _ := strings.Cut(part, "=")
			members[name] = json.RawMessage(value)
		}
		r := jsonRequest("", c.doc)
		err := r.set(members)
		got := string(r.Body)
		if err != nil {
			got = "error"
		}
		if c.set == `a.b=2|/a=3` { // /a=3 is applied first, and then a has no members
			c.want = "error"
		}
		if got != c.want {
			t.Errorf("%s with %s: %s (%v), want %s", c.doc, c.set, got, err, c.want)
		}
	}
}

// TestSetKeepsMarkAndCharset: a byte order mark stays, also within a content coding. A charset that
// cannot be kept is refused.
func TestSetKeepsMarkAndCharset(t *testing.T) {
	t.Parallel()
	packed := func(doc string) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write([]byte(doc))
		_ = w.Close()
		return b.String()
	}
	const coded, latin = "Content-Encoding: gzip\r\n", "Content-Type: application/json; charset=iso-8859-1\r\n"
	for name, c := range map[string]struct{ lines, body, set, want string }{
		"mark":              {"", "\ufeff{\"a\":1}", `"é"`, "\ufeff{\"a\":\"é\"}"},
		"mark in gzip":      {coded, packed("\ufeff{\"a\":1}"), "2", "\ufeff{\"a\":2}"},
		"ascii":             {latin, `{"a":1}`, `"x"`, `{"a":"x"}`},
		"other value":       {latin, `{"a":1}`, `"é"`, "error"},
		"other in gzip":     {coded + latin, packed("{\"a\":1,\"b\":\"\xe9\"}"), "2", "error"},
		"utf-16 in gzip":    {coded, packed("\xff\xfe{\x00}\x00"), "2", "error"},
		"utf-8 by name":     {"Content-Type: application/json; charset=UTF-8\r\n", `{"a":1}`, `"é"`, `{"a":"é"}`},
		"gzip ends early":   {coded, packed(`{"a":1}`)[:20], "2", "error"},
		"gzip of too much":  {coded, packed(`{"a":"` + strings.Repeat("x", maxJSON) + `"}`), "2", "error"},
		"not the coding":    {coded, `{"a":1}`, "2", "error"},
		"a coding unknown":  {"Content-Encoding: lzma\r\n", `{"a":1}`, "2", "error"},
		"several in a line": {"Content-Encoding: gzip, gzip\r\n", packed(packed(`{"a":1}`)), "2", `{"a":2}`},
	} {
		r := jsonRequest(c.lines, c.body)
		err := r.set(map[string]json.RawMessage{"a": json.RawMessage(c.set)})
		got := string(r.Body)
		if err != nil {
			got = "error"
		}
		if got != c.want {
			t.Errorf("%s: %q (%v), want %q", name, got, err, c.want)
		}
		if _, there := r.Line("Content-Encoding"); err == nil && there {
			t.Errorf("%s: the line of the coding stayed", name)
		}
	}
}

// TestWorstBytes: the time to set fifty members with the longest paths is proportional to the body.
func TestWorstBytes(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]string{"names": "a", "indexes": "0", "types": "type", "last": "k9"} {
		deep := map[string]json.RawMessage{}
		for i := range maxSet {
			path := strings.Repeat("/"+step, maxName/(len(step)+1)-i)
			deep[path[:len(path)-len(step)]+fmt.Sprintf("%s%d", step[:len(step)-1], i)] = json.RawMessage("1")
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			relaytest.WorstBytes(t, 512<<10, func(p []byte) { _ = jsonRequest("", string(p)).set(deep) })
			shapes := []relaytest.Worst{
				{Unit: `{"` + step + `":`, Close: "}", Begin: "", End: ""},
				{Unit: `[`, Close: ",0]"},
				{Begin: strings.Repeat(`{"`+step+`":`, 120) + "[0", Unit: ",0", End: "]" + strings.Repeat("}", 120)},
				{Begin: strings.Repeat("[", 120) + "[0", Unit: `,{"a":[]}`, End: "]" + strings.Repeat("]", 120)},
				{Begin: `{"b":1`, Unit: `,"` + step + `":{"` + step + `":{}}`, End: "}"},
				{Begin: "[0", Unit: `,"\""`, End: "]"},
			}
			relaytest.WorstShapes(t, 512<<10, shapes, func(p []byte) {
				r := jsonRequest("", string(p))
				_ = r.set(deep)
				_ = findMember(r.Body, step)
			})
		})
	}
}
