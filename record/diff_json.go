package record

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// jsonNode is a JSON value with a hash. Values are compared by their hashes.
type jsonNode struct {
	text  []byte // the text of the value as received
	kind  byte   // { or [ for an object or array, 0 for a scalar
	names []string
	kids  []*jsonNode
	hash  uint64

	doubled map[string]bool // names that occur more than once; nil = none
}

// jsonDiffer makes the patch (RFC 6902) between two values. docs/adr/0024-own-json-diff.md explains
// why no library is used.
type jsonDiffer struct {
	seed  maphash.Seed
	space []jsonNode // memory for the next nodes
	path  []byte     // JSON pointer (RFC 6901) to the current value
	field []byte     // the current path in the form that the filter by a JSON field reads
	size  int        // bytes of the listed changes
	out   BodyDiff

	doubled string // the first name that occurs more than once in an object that differs
}

// compareJSON compares two valid JSON texts in a time proportional to n log n of their size. It lists
// changes until they exceed diffBytes.
func compareJSON(was, is []byte) BodyDiff {
	d := &jsonDiffer{seed: maphash.MakeSeed(), out: BodyDiff{Kind: DiffJSON}}
	d.diff(d.read(was), d.read(is))
	if d.out.Total > len(d.out.Changes) {
		d.out.Note = fmt.Sprintf("only the first %d changes are listed", len(d.out.Changes))
	}
	if d.doubled != "" {
		d.out.Note = strings.TrimSuffix("the name "+d.doubled+" stands more than once in an object; "+d.out.Note, "; ")
	}
	return d.out
}

// read reads a text that is valid JSON.
func (d *jsonDiffer) read(text []byte) *jsonNode {
	r := nodeReader{d: d, scanner: scanner{p: text}, whole: string(text)}
	return r.node()
}

// nodeReader reads the values of one text.
type nodeReader struct {
	scanner
	d     *jsonDiffer
	whole string // the text as a string; names without escapes are slices of whole
}

// newNode returns an empty node.
func (d *jsonDiffer) newNode() *jsonNode {
	if len(d.space) == 0 {
		d.space = make([]jsonNode, 64)
	}
	n := &d.space[0]
	d.space = d.space[1:]
	return n
}

// string returns the value of a JSON string, without quotes and escapes.
func (s *nodeReader) string(raw []byte) string {
	if bytes.IndexByte(raw, '\\') >= 0 {
		return jsonString(raw)
	}
	at := cap(s.p) - cap(raw) // index of raw in the text, because both slices extend to the same end
	return s.whole[at+1 : at+len(raw)-1]
}

// node reads one value. If a name occurs more than once in an object, all its members are kept, because
// parsers differ in the member that they use.
func (s *nodeReader) node() *jsonNode {
	d := s.d
	n := d.newNode()
	open := s.peek()
	start := s.i
	switch open {
	case '{':
		n.kind = open
		n.hash = 1
		var times timesOf
		s.members(func(raw []byte) bool {
			name := s.string(raw)
			kid := s.node()
			nth := times.add(name, n.names)
			if nth == 2 {
				if n.doubled == nil {
					n.doubled = map[string]bool{}
				}
				n.doubled[name] = true
			}
			n.names, n.kids = append(n.names, name), append(n.kids, kid)
			// The hash is a sum, because the order of members counts only among members with the same name.
			n.hash += maphash.Comparable(d.seed, [3]uint64{maphash.String(d.seed, name), nth, kid.hash})
			return true
		})
	case '[':
		n.kind = open
		s.i++
		n.hash = 2
		for !s.take(']') {
			s.take(',')
			kid := s.node()
			n.kids = append(n.kids, kid)
			n.hash = maphash.Comparable(d.seed, hashPair{n.hash, kid.hash})
		}
	case '"':
		raw, _ := s.text()
		n.hash = ^maphash.String(d.seed, s.string(raw)) // inverted, so that the string "1" and the number 1 have different hashes
	default:
		n.hash = maphash.Bytes(d.seed, s.literal())
	}
	n.text = s.p[start:s.i]
	return n
}

type hashPair struct{ a, b uint64 }

// timesOf counts how often each name of an object occurs. As long as an object has few names, the map stays
// empty, and add compares the names with each other instead.
type timesOf map[string]uint64

// add counts a name and returns how often it has occurred. The argument before holds the earlier names of the
// object.
func (t *timesOf) add(name string, before []string) (nth uint64) {
	if len(before) < 8 {
		for _, other := range before {
			if other == name {
				nth++
			}
		}
		return nth + 1
	}
	if *t == nil {
		*t = timesOf{}
		for _, other := range before {
			(*t)[other]++
		}
	}
	(*t)[name]++
	return (*t)[name]
}

// jsonString resolves the escapes of a string. An unpaired surrogate, which no valid text contains, is
// kept as three special bytes, so that two different ones stay different.
func jsonString(raw []byte) string {
	raw = raw[1 : len(raw)-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw)
	}
	out := make([]byte, 0, len(raw))
	for len(raw) > 0 {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			break
		}
		out = append(out, raw[:i]...)
		raw = raw[i:]
		n := 0
		if out, n = appendEscape(out, raw); n == 6 && isSurrogate(hexRune(raw[2:6])) {
			r := hexRune(raw[2:6])
			out = append(out[:len(out)-len("\ufffd")], 0xed, byte(0x80|r>>6&0x3f), byte(0x80|r&0x3f))
		}
		raw = raw[n:]
	}
	return string(append(out, raw...))
}

func (d *jsonDiffer) diff(was, is *jsonNode) {
	switch {
	case was.hash == is.hash:
	case was.kind != is.kind || was.kind == 0:
		d.change("replace", was, is)
	case was.kind == '{':
		d.diffObjects(was, is)
	default:
		d.diffArrays(was, is)
	}
}

// change counts a change of the current value from was to is, and lists it unless there are too many. A nil
// argument was means an added value, and a nil argument is means a removed value.
func (d *jsonDiffer) change(op string, was, is *jsonNode) {
	if d.out.Total++; d.full() {
		return
	}
	c := BodyChange{Op: op, Path: new(validText(d.path)), Field: validText(d.field), Value: compact(is), Old: compact(was)}
	d.out.Changes = append(d.out.Changes, c)
	d.size += len(*c.Path) + len(c.Field) + len(c.Value) + len(c.Old)
}

// full reports whether the list of changes is full. Their bytes are limited too, because each change has its
// whole path, which may be as long as the body.
func (d *jsonDiffer) full() bool { return len(d.out.Changes) >= diffChanges || d.size > diffBytes }

// at runs fn while the current value is the member with the given name.
func (d *jsonDiffer) at(name string, fn func()) {
	if d.full() { // no further change is listed, so no path is needed
		fn()
		return
	}
	path, field := len(d.path), len(d.field)
	d.path = append(d.path, '/')
	if d.path = append(d.path, name...); strings.ContainsAny(name, "~/") {
		d.path = append(d.path[:path+1], escapePointer.Replace(name)...)
	}
	if written := joinPath([]string{name}); written[0] == '[' || field == 0 {
		d.field = append(d.field, written...)
	} else {
		d.field = append(append(d.field, '.'), written...)
	}
	fn()
	d.path, d.field = d.path[:path], d.field[:field]
}

// atIndex runs fn while the current value is element i of an array.
func (d *jsonDiffer) atIndex(i int, fn func()) {
	path, field := len(d.path), len(d.field)
	d.path = strconv.AppendInt(append(d.path, '/'), int64(i), 10)
	d.field = append(strconv.AppendInt(append(d.field, '['), int64(i), 10), ']')
	fn()
	d.path, d.field = d.path[:path], d.field[:field]
}

// differsInDoubled reports whether two objects differ in a name that occurs more than once in one of them.
// A patch cannot address such a member, so the whole object is replaced.
func (d *jsonDiffer) differsInDoubled(was, is *jsonNode) bool {
	if was.doubled == nil && is.doubled == nil {
		return false
	}
	values := func(n *jsonNode) map[string][]uint64 {
		list := map[string][]uint64{}
		for i, name := range n.names {
			if was.doubled[name] || is.doubled[name] {
				list[name] = append(list[name], n.kids[i].hash)
			}
		}
		return list
	}
	left, right := values(was), values(is)
	for _, name := range append(was.names[:len(was.names):len(was.names)], is.names...) {
		if !slices.Equal(left[name], right[name]) {
			d.doubled = cmp.Or(d.doubled, strconv.Quote(cutText(validText(name))))
			return true
		}
		delete(left, name) // each name is compared once, however often it occurs
		delete(right, name)
	}
	return false
}

func (d *jsonDiffer) diffObjects(was, is *jsonNode) {
	if d.differsInDoubled(was, is) {
		d.change("replace", was, is)
		return
	}
	index := map[string]int{} // index of each name on the right, filled when a name is at another position
	place := func(i int, name string) (j int, ok bool) {
		if i < len(is.names) && is.names[i] == name {
			return i, true
		}
		if len(index) == 0 {
			for j, name := range is.names {
				index[name] = j
			}
		}
		j, ok = index[name]
		return j, ok
	}
	paired := make([]bool, len(is.names))
	for i, name := range was.names {
		if was.doubled[name] { // differsInDoubled has found all members of this name equal
			continue
		}
		j, ok := place(i, name)
		if !ok {
			d.at(name, func() { d.change("remove", was.kids[i], nil) })
			continue
		}
		if paired[j] = true; was.kids[i].hash != is.kids[j].hash {
			d.at(name, func() { d.diff(was.kids[i], is.kids[j]) })
		}
	}
	for j, name := range is.names {
		if !paired[j] && !was.doubled[name] {
			d.at(name, func() { d.change("add", nil, is.kids[j]) })
		}
	}
}

// diffArrays pairs the elements of two arrays. It first lists the removed elements, from the last to the
// first. Then come the added and moved elements in the order of the right array, and then the changes within
// paired elements. The index of each operation refers to the array after the operations before it.
func (d *jsonDiffer) diffArrays(was, is *jsonNode) {
	partner, kept := pairElements(was.kids, is.kids)
	leftOf := make([]int, len(is.kids)) // index in the left array; -1 = added
	for j := range leftOf {
		leftOf[j] = -1
	}
	for i := len(partner) - 1; i >= 0; i-- {
		if j := partner[i]; j >= 0 {
			leftOf[j] = i
		} else {
			d.atIndex(i, func() { d.change("remove", was.kids[i], nil) })
		}
	}
	// stand holds the elements of the array that results from the operations listed so far. Element i of the
	// left array counts at place i+1, as long as it is not moved. An added or moved element counts at the place
	// last, which is that of the preceding element that stays.
	stand := newPlaces(len(partner) + 1)
	for i, j := range partner {
		if j >= 0 {
			stand.add(i+1, 1)
		}
	}
	last := 0
	for j, i := range leftOf {
		switch {
		case i >= 0 && kept[i]:
			last = i + 1
			continue
		case d.full():
			d.out.Total++
			continue
		}
		from := -1
		if i >= 0 {
			from = stand.before(i + 1)
			stand.add(i+1, -1)
		}
		to := stand.before(last + 1)
		stand.add(last, 1)
		switch {
		case i < 0:
			d.atIndex(to, func() { d.change("add", nil, is.kids[j]) })
		case from != to:
			d.move(from, to, i, is.kids[j])
		}
	}
	for j, i := range leftOf {
		if i >= 0 && was.kids[i].hash != is.kids[j].hash {
			d.atIndex(j, func() { d.diff(was.kids[i], is.kids[j]) })
		}
	}
}

// places counts the elements at each of a number of places: a Fenwick tree.
type places []int

func newPlaces(n int) places { return make(places, n+1) }

// add changes the number of elements at a place.
func (p places) add(place, n int) {
	for i := place + 1; i < len(p); i += i & -i {
		p[i] += n
	}
}

// before returns the number of elements at lower places.
func (p places) before(place int) (n int) {
	for i := place; i > 0; i -= i & -i {
		n += p[i]
	}
	return n
}

// move lists the operation that moves an element from one index to another. The argument left is the index of
// the element in the left array.
func (d *jsonDiffer) move(from, to, left int, n *jsonNode) {
	d.atIndex(to, func() { d.change("move", nil, n) })
	if d.out.Total > len(d.out.Changes) {
		return
	}
	c := &d.out.Changes[len(d.out.Changes)-1]
	d.size += len(*c.Path)
	d.atIndex(from, func() { c.From = new(validText(d.path)) })
	d.atIndex(left, func() { c.Field = validText(d.field) })
}

// pairElements returns for each left element the index of its partner on the right, or -1, and which of the
// paired elements keep their order. It pairs first equal values, then objects with the same id, and then
// elements at the same place between elements that keep their order.
func pairElements(was, is []*jsonNode) (partner []int, kept []bool) {
	partner, kept = make([]int, len(was)), make([]bool, len(was))
	taken := make([]bool, len(is))
	for i := range partner {
		partner[i] = -1
	}
	pairBy(was, is, partner, taken, func(n *jsonNode) (uint64, bool) { return n.hash, true })
	pairBy(was, is, partner, taken, elementID)
	for _, i := range longestIncreasing(partner) {
		kept[i] = true
	}
	pairGaps(was, is, partner, kept, taken)
	return partner, kept
}

// pairBy pairs the elements that have no partner yet by equal keys, in the order of the arrays.
func pairBy[K comparable](was, is []*jsonNode, partner []int, taken []bool, key func(*jsonNode) (K, bool)) {
	first := map[K]int{}         // 1 + index of the first free right element with each key
	next := make([]int, len(is)) // 1 + index of the next right element with the same key; 0 = none
	for j := len(is) - 1; j >= 0; j-- {
		if taken[j] {
			continue
		}
		if k, ok := key(is[j]); ok {
			next[j] = first[k]
			first[k] = j + 1
		}
	}
	if len(first) == 0 {
		return
	}
	for i, n := range was {
		if partner[i] >= 0 {
			continue
		}
		if k, ok := key(n); ok {
			if j := first[k]; j > 0 {
				partner[i], taken[j-1], first[k] = j-1, true, next[j-1]
			}
		}
	}
}

// pairGaps pairs the remaining elements between two elements that keep their order, one after the
// other, if their kinds agree.
func pairGaps(was, is []*jsonNode, partner []int, kept, taken []bool) {
	var left []int // indices in was: elements without a partner after the last one that keeps its order
	j := 0
	gap := func(end int) {
		for ; j < end && len(left) > 0; j++ {
			if taken[j] {
				continue
			}
			if i := left[0]; was[i].kind == is[j].kind {
				partner[i], taken[j], kept[i] = j, true, true
			}
			left = left[1:]
		}
		left, j = left[:0], end+1
	}
	for i := range was {
		if kept[i] {
			gap(partner[i])
		} else if partner[i] < 0 {
			left = append(left, i)
		}
	}
	gap(len(is))
}

// elementID returns the value that identifies an object among its siblings.
func elementID(n *jsonNode) (string, bool) {
	for _, want := range []string{"id", "uuid", "key", "name"} {
		if i := slices.Index(n.names, want); i >= 0 && n.kids[i].kind == 0 {
			return want + string(n.kids[i].text), true
		}
	}
	return "", false
}

// longestIncreasing returns the indices of a longest increasing subsequence of the values
// that are not negative.
func longestIncreasing(values []int) []int {
	var ends []int // ends[k]: index of the smallest value that ends a sequence of length k+1
	before := make([]int, len(values))
	for i, v := range values {
		if v < 0 {
			continue
		}
		k := sort.Search(len(ends), func(k int) bool { return values[ends[k]] >= v })
		if before[i] = -1; k > 0 {
			before[i] = ends[k-1]
		}
		if k == len(ends) {
			ends = append(ends, i)
		} else {
			ends[k] = i
		}
	}
	if len(ends) == 0 {
		return nil
	}
	out := make([]int, 0, len(ends))
	for i := ends[len(ends)-1]; i >= 0; i = before[i] {
		out = append(out, i)
	}
	slices.Reverse(out)
	return out
}

var escapePointer = strings.NewReplacer("~", "~0", "/", "~1")

func compact(n *jsonNode) json.RawMessage {
	if n == nil {
		return nil
	}
	var b bytes.Buffer
	_ = json.Compact(&b, n.text) // never fails, because the text is valid JSON
	return b.Bytes()
}
