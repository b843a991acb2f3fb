package mcp

import (
	"strings"
	"testing"

	"relay/record"
	"relay/relaytest"
)

// TestWorstBytes: 1 MiB of hostile bytes is decoded, cut, searched and escaped for an agent in time proportional to
// its length.
func TestWorstBytes(t *testing.T) {
	t.Parallel()
	body := func(p []byte) *record.Body { return &record.Body{Data: string(p), Encoding: record.EncodingUTF8} }
	rows := map[string]func(p []byte){
		"escaped": func(p []byte) {
			half := len(p) / 2
			_, _ = escaped(map[string]any{"text": string(p[:half]), string(p[half:]): 1})
		},
		"texts of a list": func(p []byte) {
			_, _ = escaped(strings.SplitAfterN(string(p), "\n", 1000))
		},
		"body": func(p []byte) {
			text, _, _ := textOf(body(p), nil, false)
			cutPiece(piece{}, text, len(text)/2, 64<<10)
		},
		"value of JSON": func(p []byte) { _, _ = valueAt(p, "a.b[0].c") },
		"piece":         func(p []byte) { cutPiece(piece{}, p, 1, len(p)-2) },
		"cut":           func(p []byte) { cut(body(p), 8<<10) },
	}
	for _, label := range []string{"application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b", "text/xml"} {
		rows["body of "+label] = func(p []byte) { _, _, _ = textOf(body(p), []record.Header{{"Content-Type", label}}, false) }
	}
	for name, f := range rows {
		t.Run(name, func(t *testing.T) { relaytest.WorstBytes(t, 1<<20, f) })
	}
	// A long path must not cause the rest of the text to be read again at each step.
	t.Run("path of JSON", func(t *testing.T) {
		shapes := []relaytest.Worst{
			{Begin: strings.Repeat(`{"a":`, maxSteps) + "[", Unit: "1,", End: "1]" + strings.Repeat("}", maxSteps)},
			{Begin: strings.Repeat("[", maxSteps) + "0", Unit: ",[]", End: strings.Repeat("]", maxSteps)},
			{Begin: "{", Unit: `"a":1,`, End: `"a":{"a":1}}`},
		}
		for _, step := range []string{".a", "[0]"} {
			path := strings.Repeat(step, maxSteps)
			relaytest.WorstShapes(t, 1<<20, shapes, func(p []byte) { _, _ = valueAt(p, path) })
		}
	})
}

// TestValueAt checks the values that an agent gets at a path, and the error for a path without a
// value.
func TestValueAt(t *testing.T) {
	t.Parallel()
	const text = ` {"a":{"b":[10,{"c":"x"}]},"a":{"b":[11, {"c" : "y"} ],"":1,"0":2,"n":null},"list":[]} `
	for path, want := range map[string]string{
		"": text, "$": text, "a.b[0]": "11", "$.a.b[1].c": `"y"`, "a.b[1]": `{"c" : "y"}`, "a[0]": "2", "a.0": "2", "a.n": "null",
		"a.b[2]": "", "a.b.c": "", "a.b[-1]": "", "list[0]": "", "a.b[0].c": "", "x": "", "a.b[01]": "",
	} {
		value, err := valueAt([]byte(text), path)
		if string(value) != want || (err == nil) != (want != "") {
			t.Errorf("%s: %s, %v", path, value, err)
		}
	}
	for _, bad := range []string{"", "x", `{"a":1`, `{"a":1} x`} {
		if _, err := valueAt([]byte(bad), "a"); err == nil || !strings.Contains(err.Error(), "is not JSON") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
