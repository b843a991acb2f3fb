package compose

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
)

// change describes what changes in one value of a JSON document: the value itself, members of the value, or
// both. If it has a new value, the changes of members apply to the new value. A nil change changes nothing.
type change struct {
	value   json.RawMessage // nil = unchanged
	members map[string]*change
	indexes map[int]*change // the entries of members whose name is a number, for the case that the value is an array
	names   []string        // names of the members, in the order in which they were added
	list    []*change       // changes of the members, in the same order

	// Results for this member in the object that is being read. If its name occurs several times, these
	// are the results for the last occurrence.
	seen    bool
	splices []splice
	err     error
}

// add adds the change that sets the member at path to value.
func (c *change) add(path []string, value json.RawMessage) {
	for _, step := range path {
		next := c.members[step]
		if next == nil {
			if next = new(change); c.members == nil {
				c.members, c.indexes = map[string]*change{}, map[int]*change{}
			}
			c.members[step], c.names, c.list = next, append(c.names, step), append(c.list, next)
			if i, err := strconv.Atoi(step); err == nil && strconv.Itoa(i) == step {
				c.indexes[i] = next
			}
		}
		c = next
	}
	c.value, c.members, c.indexes, c.names, c.list = value, nil, nil, nil, nil // the new value replaces earlier changes of members
}

// splice is a part of a document and its replacement.
type splice struct {
	from, to int
	with     []byte
}

// apply returns the valid JSON document doc after the change. Bytes outside the changed members stay as they
// are. It reads doc only once.
func (c *change) apply(doc []byte) ([]byte, error) {
	if c.value != nil {
		doc = c.value
	}
	w := walk{doc: doc}
	w.at = skipSpace(doc, 0)
	w.value(&change{members: c.members, indexes: c.indexes, names: c.names, list: c.list})
	if w.err != nil {
		return nil, w.err
	}
	if len(w.splices) == 0 {
		return doc, nil
	}
	size := len(doc)
	for _, s := range w.splices {
		size += len(s.with) - (s.to - s.from)
	}
	out, at := make([]byte, 0, size), 0
	for _, s := range w.splices {
		out = append(append(out, doc[at:s.from]...), s.with...)
		at = s.to
	}
	return append(out, doc[at:]...), nil
}

// walk reads a valid JSON document from its beginning to its end.
type walk struct {
	doc     []byte
	at      int
	splices []splice // replacements in the order of their positions
	err     error
}

// value reads the value at the present position and adds the replacements that a change requires.
func (w *walk) value(c *change) {
	if c == nil || c.value == nil && len(c.members) == 0 {
		w.at = skipValue(w.doc, w.at)
		return
	}
	if c.value != nil {
		from := w.at
		w.at = skipValue(w.doc, from)
		with, err := c.apply(nil)
		w.fail(err)
		w.splices = append(w.splices, splice{from, w.at, with})
		return
	}
	switch w.doc[w.at] {
	case '{':
		w.object(c)
	case '[':
		w.array(c)
	default:
		w.fail(errors.New("there is no object or array that holds " + strconv.Quote(c.names[0])))
		w.at = skipValue(w.doc, w.at)
	}
}

func (w *walk) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// object reads an object. If several members have the same name, the last one is changed, because most
// programs use the last one.
func (w *walk) object(c *change) {
	for _, member := range c.list {
		member.seen = false
	}
	outer, outerErr := w.splices, w.err
	end, children := w.at+1, 0
	for w.at = skipSpace(w.doc, w.at+1); w.doc[w.at] != '}'; children++ {
		if w.doc[w.at] == ',' {
			w.at = skipSpace(w.doc, w.at+1)
		}
		from := w.at
		w.at = skipString(w.doc, from)
		member := c.memberNamed(w.doc[from:w.at])
		w.at = skipSpace(w.doc, skipSpace(w.doc, w.at)+1) // skips the colon
		if member != nil {
			w.splices, w.err = member.splices[:0], nil
			w.value(member)
			member.seen, member.splices, member.err = true, w.splices, w.err
		} else {
			w.at = skipValue(w.doc, w.at)
		}
		end = w.at
		w.at = skipSpace(w.doc, w.at)
	}
	w.at++
	w.splices, w.err = outer, outerErr
	var inner, added []splice
	for i, member := range c.list {
		name := c.names[i]
		if member.seen {
			inner = append(inner, member.splices...)
			w.fail(member.err)
			continue
		}
		if member.value == nil {
			w.fail(missing(name))
			continue
		}
		value, err := member.apply(nil)
		w.fail(err)
		text, _ := json.Marshal(name)
		text = append(append(text, ':'), value...)
		if children > 0 || len(added) > 0 {
			text = append([]byte{','}, text...)
		}
		added = append(added, splice{end, end, text})
	}
	slices.SortStableFunc(inner, func(a, b splice) int { return a.from - b.from })
	w.splices = append(append(w.splices, inner...), added...)
}

func (w *walk) array(c *change) {
	found := 0
	i := 0
	for w.at = skipSpace(w.doc, w.at+1); w.doc[w.at] != ']'; i++ {
		if w.doc[w.at] == ',' {
			w.at = skipSpace(w.doc, w.at+1)
		}
		element := c.indexes[i]
		if w.value(element); element != nil {
			found++
		}
		w.at = skipSpace(w.doc, w.at)
	}
	w.at++
	for _, name := range c.names {
		if n, err := strconv.Atoi(name); found < len(c.names) && (err != nil || c.indexes[n] != c.members[name] || n >= i || n < 0) {
			w.fail(missing(name))
		}
	}
}

func missing(name string) error {
	return errors.New("the body has no member or element " + strconv.Quote(name) + " there")
}

// memberNamed returns the change of the member with a name, or nil. The argument text is the name as the
// document writes it, with quotes.
func (c *change) memberNamed(text []byte) *change {
	if bytes.IndexByte(text, '\\') < 0 {
		return c.members[string(text[1:len(text)-1])]
	}
	return c.members[nameOf(text)]
}

// nameOf decodes the name of a member. The argument text is the name as the document writes it, with quotes.
func nameOf(text []byte) string {
	if bytes.IndexByte(text, '\\') < 0 {
		return string(text[1 : len(text)-1])
	}
	var name string
	_ = json.Unmarshal(text, &name) // never fails, because the document is valid
	return name
}

func skipSpace(doc []byte, at int) int {
	for at < len(doc) && (doc[at] == ' ' || doc[at] == '\n' || doc[at] == '\t' || doc[at] == '\r') {
		at++
	}
	return at
}

// skipString returns the position after the string that begins at position at.
func skipString(doc []byte, at int) int {
	for at++; doc[at] != '"'; at++ {
		if doc[at] == '\\' {
			at++
		}
	}
	return at + 1
}

// skipValue returns the position after the value that begins at position at.
func skipValue(doc []byte, at int) int {
	depth := 0
	for at < len(doc) {
		switch c := doc[at]; c {
		case '"':
			at = skipString(doc, at)
		case '{', '[':
			depth++
			at++
			continue
		case '}', ']':
			depth--
			at++
		default:
			if depth > 0 && (c == ',' || c == ':' || c <= ' ') {
				at++
				continue
			}
			for at < len(doc) && doc[at] > ' ' && doc[at] != ',' && doc[at] != '}' && doc[at] != ']' {
				at++
			}
		}
		if depth == 0 {
			return at
		}
	}
	return at
}

// findMember returns the value of a member of the top-level object of a JSON document. If several members
// have the name, it returns the last value.
func findMember(doc []byte, name string) (value []byte) {
	at := skipSpace(doc, 0)
	if !json.Valid(doc) || doc[at] != '{' {
		return nil
	}
	for at = skipSpace(doc, at+1); doc[at] != '}'; at = skipSpace(doc, at) {
		if doc[at] == ',' {
			at = skipSpace(doc, at+1)
		}
		from := at
		at = skipString(doc, from)
		is := nameOf(doc[from:at]) == name
		from = skipSpace(doc, skipSpace(doc, at)+1)
		if at = skipValue(doc, from); is {
			value = doc[from:at]
		}
	}
	return value
}
