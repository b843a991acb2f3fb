package client

import (
	"bytes"
	"errors"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/token"
)

// misspelled are the mistakes that people make in YAML: what the library says about
// one, and what it is and asks for.
var misspelled = []struct{ says, is, hint string }{
	{"flow mapping end token", `the "{" is not closed`, `end it with "}", and put commas between what is inside`},
	{"'}' must be specified", `the "{" is not closed`, `end it with "}", and put commas between what is inside`},
	{"sequence end token", `the "[" is not closed`, `end it with "]"`},
	{"']' must be specified", `the "[" is not closed`, `end it with "]"`},
	{"corresponding to '}'", `there is a "}" without a "{"`, "remove it, or put the other one before it"},
	{"corresponding to ']'", `there is a "]" without a "["`, "remove it, or put the other one before it"},
	{"end character of", "the quoted text is not closed", "end it with the quote that it begins with"},
	{"value is not allowed in this context", "this does not fit to the lines above", wellFormed},
	{"non-map value is specified", "this is no key with a value", wellFormed},
	{"unexpected key name", "this is no key with a value", wellFormed},
}

const wellFormed = "write key: value, with a space after the colon, and indent what belongs together by the same number of spaces"

var keyTwice = regexp.MustCompile(`^mapping key "(.*)" already defined at \[(\d+):\d+\]`)

// syntax says what is wrong with a file that is no YAML, and where.
func (r configReader) syntax(text []byte, err error) error {
	var e yaml.Error
	if !errors.As(err, &e) || e.GetToken() == nil {
		return Errorf(ExitFailure, "%s: this is no YAML: %v", r.name, err).WithHint(wellFormed)
	}
	at, said := e.GetToken().Position, e.GetMessage()
	if twice := keyTwice.FindStringSubmatch(said); twice != nil {
		return r.errorf(at, "%q stands here again; the first time is line %s", twice[1], twice[2]).WithHint("keep one of them")
	}
	if line := tabbed(text, at.Line); line > 0 {
		return r.errorf(&token.Position{Line: line, Column: 1}, "this line is indented with a tab").WithHint("YAML takes spaces only; replace the tab by spaces")
	}
	for _, m := range misspelled {
		if strings.Contains(said, m.says) {
			return r.errorf(at, "%s", m.is).WithHint("%s", m.hint)
		}
	}
	return r.errorf(at, "this is no YAML: %s", said).WithHint(wellFormed)
}

// tabbed gives the first line up to last that has a tab in its indentation; 0 when
// there is none. The library finds out about it lines later.
func tabbed(text []byte, last int) int {
	n := 0
	for line := range bytes.Lines(text) {
		n++
		indent := line[:len(line)-len(bytes.TrimLeft(line, " \t"))]
		if bytes.IndexByte(indent, '\t') >= 0 && len(bytes.TrimSpace(line)) > 0 {
			return n
		}
		if n > last {
			break
		}
	}
	return 0
}
