package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// filled sets all fields of a value.
func filled(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		filled(v.Elem(), depth)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.UnixMilli(1_700_000_000_123).UTC()))
			return
		}
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				filled(v.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			filled(v.Index(i), depth+1)
		}
	case reflect.String:
		v.SetString(`a "text" <&> ` + "\u2028\x01\\ " + strings.Repeat("é\n", depth*5000))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Float64:
		v.SetFloat(1.5)
	}
}

// WriteEvent and WriteAttempts write exactly the bytes of encoding/json, for full and for empty records and
// with null members.
func TestRecordsAreWrittenAsJSON(t *testing.T) {
	t.Parallel()
	var full, bare Event
	filled(reflect.ValueOf(&full).Elem(), 0)
	withNulls := full
	withNulls.Response, withNulls.Timing, withNulls.Attempts = nil, nil, []Attempt{{Response: &Response{}}, {}}
	for i, e := range []*Event{&full, &bare, &withNulls} {
		var want, got bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(e); err != nil {
			t.Fatal(err)
		}
		if err := WriteEvent(&got, e); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want.Bytes(), got.Bytes()) {
			at := 0
			for at < min(want.Len(), got.Len()) && want.Bytes()[at] == got.Bytes()[at] {
				at++
			}
			t.Errorf("record %d differs at %d: want %.80q, got %.80q", i, at, want.Bytes()[at:], got.Bytes()[at:])
		}
	}
	list := ListOf(full.Attempts)
	var want, got bytes.Buffer
	enc := json.NewEncoder(&want)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(list)
	if err := WriteAttempts(&got, list); err != nil || want.String() != got.String() {
		t.Error("a page of attempts differs", err)
	}
}

// TestRecordsHaveABound: after Fit, a record as JSON has at most MaxJSON and 100 KiB, and not more than Weight says.
// The request and the last response keep their bodies.
func TestRecordsHaveABound(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"control characters": "\x01", "quotes": `"`, "letters": "a", "line separators": "\u2028"} {
		body := func() *Body {
			return &Body{Size: MaxBody, Encoding: EncodingUTF8, Data: strings.Repeat(text, MaxBody/len(text))}
		}
		e := &Event{Request: &Message{Body: body()}, Response: &Response{Body: body()}}
		for n := range 21 {
			e.Attempts = append(e.Attempts, Attempt{Number: n + 1, Response: &Response{Body: body()}})
		}
		e.Attempts[20].Response = e.Response
		e.Fit(MaxJSON)
		var out bytes.Buffer
		if err := WriteEvent(&out, e); err != nil || out.Len() > MaxJSON+100<<10 || int64(out.Len()) > e.Weight() {
			t.Errorf("%s: %d bytes, weight %d, %v", name, out.Len(), e.Weight(), err)
		}
		if e.Request.Body.Data == "" || e.Response.Body.Data == "" {
			t.Errorf("%s: the request or the last answer is left out", name)
		}
		left := fmt.Sprint()
		for i := range e.Attempts {
			b := e.Attempts[i].Response.Body
			if b.Data == "" && !b.Truncated {
				t.Errorf("%s: the body of attempt %d is not said to be cut", name, i+1)
			}
			left += map[bool]string{true: "x", false: "-"}[b.Data != ""]
		}
		if strings.Contains(strings.TrimLeft(left[1:], "-"), "-") {
			t.Errorf("%s: bodies of attempts: %s", name, left)
		}
	}
}
