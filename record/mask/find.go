package mask

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
)

// Limits of the secrets to search for.
const (
	minSecret  = 4         // shortest secret, in bytes, that is masked as a whole word
	minWithin  = 8         // shortest secret that is also masked within a longer word
	minDigits  = 6         // smallest number of digits of a number that is masked
	maxPattern = 256       // bytes of a secret that are searched for; the text after them up to the next delimiter is masked too
	maxSecrets = 128 << 10 // bytes of all secrets of an event together
	maxCoded   = 16 << 10  // bytes of all secrets that are searched for in base64 and hexadecimal digits
)

// finder finds many secrets in a text at the same time. Its time is proportional to the length of the text
// and does not depend on the number of secrets. It is the automaton of Aho and Corasick, "Efficient string
// matching" (1975).
type finder struct {
	root  [256]int32
	edges map[uint32]int32 // key: node<<8 | byte, for nodes with many children
	nodes []node
}

// fewChildren is the number of children of a node up to which the method child looks at them one by one.
const fewChildren = 4

// node is a state of the automaton: the beginning of a secret.
type node struct {
	found match // the longest secret that ends here
	fail  int32 // the failure link: the node of the longest shorter beginning of a secret with which this beginning ends
	child int32 // the first child, 0 = none
	next  int32 // the next child of the same parent, 0 = none
	c     byte  // the last byte of the beginning
	many  bool  // the children are in edges too
}

// match is the secret that a node of the automaton has found.
type match struct {
	length int32 // length of the secret in normal form; 0 = none
	kind   matchKind
}

type matchKind uint8

const (
	matchWithin matchKind = iota // the secret is masked anywhere, even within a longer word
	matchAlone                   // the secret is masked only as a whole word
	matchStart                   // the beginning of a secret that is longer than maxPattern
	matchCoded                   // the secret in base64 or hexadecimal digits
)

func newFinder() *finder {
	return &finder{edges: map[uint32]int32{}, nodes: []node{{}}}
}

// fold makes the two alphabets of base64 equal, and capitals equal to small letters. It also makes a plus
// equal to a space, because a plus means a space in forms.
func fold(c byte) byte { return folded[c] }

var folded = func() (table [256]byte) {
	for i := range table {
		table[i] = byte(i)
	}
	for c := byte('A'); c <= 'Z'; c++ {
		table[c] = c + 'a' - 'A'
	}
	table['+'], table['-'], table['_'] = ' ', ' ', '/'
	return table
}()

// child returns the child of a node for a byte; 0 = none.
func (f *finder) child(at int32, c byte) int32 {
	if at == 0 {
		return f.root[c]
	}
	if f.nodes[at].many {
		return f.edges[uint32(at)<<8|uint32(c)]
	}
	child := f.nodes[at].child
	for child != 0 && f.nodes[child].c != c {
		child = f.nodes[child].next
	}
	return child
}

// addChild adds a child for a byte to a node that has no child for it.
func (f *finder) addChild(at int32, c byte) int32 {
	child := int32(len(f.nodes))
	f.nodes = append(f.nodes, node{next: f.nodes[at].child, c: c})
	parent := &f.nodes[at]
	parent.child = child
	switch {
	case at == 0:
		f.root[c] = child
	case parent.many:
		f.edges[uint32(at)<<8|uint32(c)] = child
	default:
		n := 0
		for k := child; k != 0; k = f.nodes[k].next {
			n++
		}
		if parent.many = n > fewChildren; parent.many {
			for k := child; k != 0; k = f.nodes[k].next {
				f.edges[uint32(at)<<8|uint32(f.nodes[k].c)] = k
			}
		}
	}
	return child
}

// add adds a pattern in normal form.
func (f *finder) add(pattern []byte, kind matchKind) {
	at := int32(0)
	for _, c := range pattern {
		c = fold(c)
		next := f.child(at, c)
		if next == 0 {
			next = f.addChild(at, c)
		}
		at = next
	}
	if is := &f.nodes[at].found; is.length == 0 || kind < is.kind {
		*is = match{int32(len(pattern)), kind}
	}
}

// build completes the automaton after the last pattern was added. It visits the nodes by depth, because the
// failure link of a node leads to a node with a lower depth.
func (f *finder) build() {
	queue := make([]int32, 1, len(f.nodes))
	for i := 0; i < len(queue); i++ {
		at := queue[i]
		for child := f.nodes[at].child; child != 0; child = f.nodes[child].next {
			is := &f.nodes[child]
			if at != 0 {
				is.fail = f.next(f.nodes[at].fail, is.c)
			}
			if is.found.length == 0 {
				is.found = f.nodes[is.fail].found
			}
			queue = append(queue, child)
		}
	}
}

// next returns the state to which the byte c leads from the state with the index at.
func (f *finder) next(at int32, c byte) int32 {
	for at != 0 {
		if child := f.child(at, c); child != 0 {
			return child
		}
		at = f.nodes[at].fail
	}
	return f.root[c]
}

// find calls the function take for each secret in a text, with the range of the secret in the normal form n
// of the text.
func (f *finder) find(n *normal, take func(from, to int)) {
	at := int32(0)
	for i := 0; i < len(n.p); i++ {
		at = f.next(at, fold(n.p[i]))
		m := f.nodes[at].found
		if m.length == 0 {
			continue
		}
		from, to := i+1-int(m.length), i+1
		switch m.kind {
		case matchAlone:
			if from > 0 && isWord(n.p[from-1]) || to < len(n.p) && isWord(n.p[to]) {
				continue
			}
		case matchStart:
			for to < len(n.p) && !strings.ContainsRune(" \t\r\n\"'<>&,;", rune(n.p[to])) {
				to++
			}
		case matchCoded:
			for from > 0 && isBase64(n.p[from-1]) {
				from--
			}
			for to < len(n.p) && isBase64(n.p[to]) {
				to++
			}
		}
		take(from, to)
		if to > i+1 {
			i, at = to-1, 0
		}
	}
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c >= 0x80
}

func isBase64(c byte) bool {
	return c < 0x80 && isWord(c) || c == '+' || c == '/' || c == '-' || c == '_' || c == '='
}

// codedForms returns the coded forms in which a secret may occur in a longer text. For base64 these are, for
// each of the three alignments, the digits that do not depend on neighbouring bytes. A further form is in
// hexadecimal digits.
func codedForms(secret string) (forms []string) {
	for before := range 3 {
		coded := base64.RawStdEncoding.EncodeToString([]byte("\x00\x00"[:min(before, 2)] + secret))
		first := []int{0, 2, 3}[before]
		forms = append(forms, coded[first:(before+len(secret))*8/6])
	}
	return append(forms, hex.EncodeToString([]byte(secret)))
}
