package mcp

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"relay/record"
)

// TestFiltersAreAll: an agent can filter by everything that lists of events take.
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

// TestEscaped: texts of strangers cannot move a cursor, end a line of a log or hide, and nothing else
// of a value changes.
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
