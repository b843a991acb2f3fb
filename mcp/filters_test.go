package mcp

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"relay"
	"relay/record"
)

// TestFiltersAreAll: an agent can use every filter that lists of events have.
func TestFiltersAreAll(t *testing.T) {
	t.Parallel()
	var got, want []string
	for field := range reflect.TypeFor[filters]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		got = append(got, name)
	}
	for _, f := range record.FilterNames() {
		want = append(want, f.Name)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("filters %v\nwant    %v", got, want)
	}
}

// TestEscaped: control characters and invisible characters in texts and keys are escaped. Everything else in
// a value stays unchanged.
func TestEscaped(t *testing.T) {
	t.Parallel()
	in := map[string]any{
		"plain": "a \"quoted\" \\ text\n\tnext", "moves": "\x1b[2J\r\u202eabc\u200b", "n": 1.5, "list": []any{true, nil, "\x00"}, "\x1bkey": "<&>",
	}
	got, err := escaped(in)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(got, &out); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"plain": in["plain"], "moves": `\x1b[2J\r\u202eabc\u200b`, "n": 1.5, "list": []any{true, nil, `\x00`}, `\x1bkey`: "<&>",
	}
	if !reflect.DeepEqual(out, want) {
		t.Errorf("got  %#v\nwant %#v", out, want)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, got); err != nil || compact.Len() != len(got) {
		t.Errorf("%v: %s", err, got)
	}
}

// TestPieces: each piece moves the offset forward, even if the requested length is shorter than a character.
// The length of a path is limited.
func TestPieces(t *testing.T) {
	t.Parallel()
	text, got := []byte("aä😀b"), ""
	for at, n := 0, 0; n < 10; n++ {
		p := cutPiece(piece{}, text, at, 1)
		if got += p.Text; p.NextOffset == nil {
			break
		}
		at = *p.NextOffset
	}
	if got != string(text) {
		t.Errorf("pieces make %q", got)
	}
	if v, err := valueAt([]byte(`{"a":[{"b":1},{"b":2}]}`), "a[1].b"); err != nil || string(v) != "2" {
		t.Errorf("%s, %v", v, err)
	}
	for _, path := range []string{strings.Repeat("[0]", 65), strings.Repeat("x", 1025)} {
		if _, err := valueAt([]byte(strings.Repeat("[", 100)), path); err == nil || relay.AsError(err).Code != codeBound {
			t.Errorf("%.20s: %v", path, err)
		}
	}
}
