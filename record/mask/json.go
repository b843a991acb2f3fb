package mask

import (
	"bytes"
	"encoding/json"
	"strings"

	"relay/record/body"
)

// maxDepth is the largest nesting of JSON that is read, as in encoding/json.
const maxDepth = 10_000

const (
	maskedJSON   = `"` + Masked + `"`
	maskedMember = ": " + maskedJSON // replaces the colon and the value of a member
)

// json hides secrets in one or more JSON values: the values of secret fields, including objects and arrays, and
// the secrets that the method text finds in other strings. If the JSON was cut within the value of a secret field,
// the whole rest is hidden. out gets the edits of a text in which s begins at the index base.
func (m *Masker) json(out *edits, s []byte, base int) {
	j := m.scan()
	defer m.done(j)
	j.out, j.s, j.base = out, s, base
	for i := 0; i < len(s); {
		if i = j.token(i); len(j.open) > maxDepth {
			out.add(base+i, base+len(s), "")
			break
		}
	}
	for len(j.open) > 0 {
		j.end(len(s), false)
	}
}

// scan returns a jsonScan. It reuses the memory of earlier scans, because a body may have a hundred
// thousand strings with JSON in them.
func (m *Masker) scan() *jsonScan {
	n := len(m.scans)
	if n == 0 {
		return &jsonScan{m: m}
	}
	j := m.scans[n-1]
	m.scans = m.scans[:n-1]
	return j
}

// done keeps the memory of a jsonScan for reuse.
func (m *Masker) done(j *jsonScan) {
	*j = jsonScan{m: m, open: j.open[:0], inner: nested{j.inner.plain[:0], j.inner.at[:0], edits{j.inner.edits.list[:0]}}}
	m.scans = append(m.scans, j)
}

// jsonScan reads JSON token by token. It skips text that is not JSON.
type jsonScan struct {
	m      *Masker
	out    *edits
	s      []byte
	base   int
	open   []container
	hidden int // the depth of the container that is the value of a secret field; 0 = none
	inner  nested
}

// container is an object or array whose end has not been read yet.
type container struct {
	object  bool
	isName  bool   // the next string is a name
	name    []byte // name of the member that is being read, with its escapes
	nameEnd int
	items   int  // number of elements of an array
	named   bool // a member called name or key, or the first element of an array, is the name of a secret
	valueAt int  // start of the value that belongs to such a name: of the member called value, or of the second element; 0 = none
	valueTo int  // end of that value
}

// top returns the innermost container; nil at the top level.
func (j *jsonScan) top() *container {
	if len(j.open) == 0 {
		return nil
	}
	return &j.open[len(j.open)-1]
}

// token reads the token at i and returns its end.
func (j *jsonScan) token(i int) int {
	switch c := j.s[i]; c {
	case ' ', '\t', '\r', '\n', ':':
		return i + 1
	case ',':
		if t := j.top(); t != nil {
			t.isName = t.object
			t.items++
		}
		return i + 1
	case '{', '[':
		if j.hidden == 0 && j.secretValue() {
			j.hidden = len(j.open) + 1
		}
		j.open = append(j.open, container{object: c == '{', isName: c == '{'})
		return i + 1
	case '}', ']':
		if len(j.open) > 0 {
			j.end(i+1, true)
		}
		return i + 1
	case '"':
		to, ended := stringEnd(j.s, i)
		if t := j.top(); t != nil && t.isName {
			inside := j.s[i+1 : to]
			if ended {
				inside = inside[:len(inside)-1]
			}
			if t.isName, t.name, t.nameEnd = false, inside, to; j.hidden == 0 {
				j.m.known(j.out, t.name, j.base+i+1)
			}
			return to
		}
		j.value(i, to, ended)
		return to
	}
	to := i + 1
	for to < len(j.s) && strings.IndexByte(" \t\r\n,:[]{}\"", j.s[to]) < 0 {
		to++
	}
	j.value(i, to, true)
	return to
}

// stringEnd returns the end of the string that begins at i; ended is false if the text ends first.
func stringEnd(s []byte, i int) (to int, ended bool) {
	for to = i + 1; to < len(s); to++ {
		switch s[to] {
		case '\\':
			to++
		case '"':
			return to + 1, true
		}
	}
	return len(s), false
}

// secretValue reports whether the next value belongs to a secret field.
func (j *jsonScan) secretValue() bool {
	t := j.top()
	return t != nil && t.object && j.m.secretField(unquoted(t.name))
}

// end closes the innermost container. to is the index after the text of the container. ended is false if the JSON
// was cut before the end of the container.
func (j *jsonScan) end(to int, ended bool) {
	t := *j.top()
	j.open = j.open[:len(j.open)-1]
	if t.named && t.valueAt > 0 {
		if t.valueTo == 0 {
			t.valueTo = to
		}
		j.m.learnJSON(j.s[t.valueAt:t.valueTo])
		j.out.add(j.base+t.valueAt, j.base+t.valueTo, maskedJSON)
	}
	if parent := j.top(); parent != nil && parent.valueAt > 0 && parent.valueTo == 0 {
		parent.valueTo = to
	}
	if j.hidden == 0 || len(j.open) >= j.hidden {
		return
	}
	j.hidden = 0
	j.hide(to, ended)
}

// hide replaces the value of a secret field. to is the index after the value. ended is false if the JSON was cut
// within the value.
func (j *jsonScan) hide(to int, ended bool) {
	with := maskedMember
	if !ended {
		with = ": "
	}
	j.out.add(j.base+j.top().nameEnd, j.base+to, with)
}

// value reads a string, a number or a word.
func (j *jsonScan) value(from, to int, ended bool) {
	raw, isString := j.s[from:to], j.s[from] == '"'
	t := j.top()
	if j.hidden > 0 {
		if isString && len(raw) >= minWithin+2 {
			j.m.learnJSON(raw)
		}
		return
	}
	switch {
	case t == nil:
	case t.object && j.member(t, from, to, ended):
		return
	case !t.object && t.items == 0 && isString && ended && len(raw) < maxName && strongName(raw):
		t.named = true // a pair such as ["Authorization", "Bearer …"]
	case !t.object && t.items == 1 && t.named && isString:
		t.valueAt, t.valueTo = from, to
		return
	}
	if !isString {
		if j.m.isKnown(raw) {
			j.out.add(j.base+from, j.base+to, maskedJSON)
		}
		return
	}
	j.text(from, to, ended)
}

// member reads the value of a member of an object. It returns false if the function value still has to
// search the value for secrets.
func (j *jsonScan) member(t *container, from, to int, ended bool) bool {
	raw, isString := j.s[from:to], j.s[from] == '"'
	name := unquoted(t.name)
	isCode := isString && bytes.EqualFold(name, []byte("code")) && looksLikeCode(raw[1:max(1, len(raw)-1)])
	switch {
	case j.m.secretField(name) || isCode:
		if isString && isNameOf(name) && j.m.secretField(unquoted(raw[1:max(1, to-from-1)])) {
			t.named = true
		}
		j.m.learnJSON(raw)
		j.hide(to, ended)
		return true
	case isString && secretAddress(name):
		inside := raw[1:]
		if ended {
			inside = inside[:len(inside)-1]
		}
		host := hostEnd(inside)
		j.m.learn(unquoted(inside[host:]))
		if host < len(inside) {
			j.out.add(j.base+from+1+host, j.base+from+1+len(inside), Masked)
		}
		return true
	case isString && isNameOf(name) && j.m.secretField(unquoted(raw[1:max(1, to-from-1)])):
		t.named = true
	case isValueOf(name):
		t.valueAt, t.valueTo = from, to
	}
	return false
}

// isNameOf reports whether the value of this member may be the name of another member's value, as in
// {"name":"password","value":"…"}.
func isNameOf(name []byte) bool {
	switch string(name) {
	case "name", "key", "Name", "Key", "field", "header":
		return true
	}
	return false
}

func isValueOf(name []byte) bool { return string(name) == "value" || string(name) == "Value" }

// text hides the secrets in a string, which may itself contain JSON.
func (j *jsonScan) text(from, to int, ended bool) {
	inside := j.s[from+1 : to]
	if ended {
		inside = inside[:len(inside)-1]
		if body.StartsJSON(inside) && j.inner.unquote(inside) && json.Valid(j.inner.plain) {
			j.inner.mask(j.m, j.out, j.base+from+1, inJSON)
			return
		}
	}
	j.m.text(j.out, inside, j.base+from+1)
}

// unquoted resolves the escapes of a JSON string without its quotes.
func unquoted(inside []byte) []byte {
	if bytes.IndexByte(inside, '\\') < 0 {
		return inside
	}
	var n nested
	if !n.unquote(inside) {
		return inside
	}
	return n.plain
}

// learnJSON adds the strings and numbers in a secret JSON value to the known secrets.
func (m *Masker) learnJSON(raw []byte) {
	if !m.learning {
		return
	}
	for i := 0; i < len(raw); {
		switch c := raw[i]; {
		case c == '"':
			to, ended := stringEnd(raw, i)
			inside := raw[i+1 : to]
			if ended {
				inside = inside[:len(inside)-1]
			}
			m.learn(unquoted(inside))
			i = to
		case c >= '0' && c <= '9':
			to := i
			for to < len(raw) && raw[to] >= '0' && raw[to] <= '9' {
				to++
			}
			m.learn(raw[i:to])
			i = to
		default:
			i++
		}
	}
}
