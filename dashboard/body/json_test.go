package body

import (
	"strings"
	"testing"
)

func TestIndentedJSONKeepsEveryByte(t *testing.T) {
	t.Parallel()
	in := `{"a":1.0,"a":[],"b":{ },"c":["\u0041\"}",{"d":null}] }`
	want := `{
  "a": 1.0,
  "a": [],
  "b": {},
  "c": [
    "\u0041\"}",
    {
      "d": null
    }
  ]
}`
	if out, fault := Indented([]byte(in), false); fault != nil || string(out) != want {
		t.Errorf("%v\n%s", fault, out)
	}
	for n := range len(in) {
		out, fault := Indented([]byte(in[:n]), true)
		if fault != nil || strings.ReplaceAll(strings.Join(strings.Fields(string(out)), ""), " ", "") != strings.ReplaceAll(in[:n], " ", "") {
			t.Errorf("%d bytes: %v, %q", n, fault, out)
		}
	}
	deep := strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	if out, fault := Indented([]byte(deep), false); fault != nil || len(out) > 10*len(deep) {
		t.Errorf("%v, %d bytes", fault, len(out))
	}
}

func TestFaultOfJSONIsLocated(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int{
		"": 0, `{"a":`: 5, `{"a" 1}`: 5, "[1,]": 3, "[1]\n x": 5, "[01]": 2, "tru!": 3, "\"a\x01\"": 2, "[\"a\xff\"]": 3, "[\"\\x\"]": 3,
	} {
		if _, fault := Indented([]byte(in), false); fault == nil || fault.Offset != want {
			t.Errorf("%q: %+v, want %d", in, fault, want)
		}
	}
}
