package mask

import (
	"encoding/base64"
	"strings"
)

// Bounds of the secrets that are searched for.
const (
	minSecret  = 4         // bytes of a secret that is masked as a whole word
	minWithin  = 8         // bytes of a secret that is masked also within a longer word
	minDigits  = 6         // bytes of a secret that is a number
	maxPattern = 256       // bytes of a secret that are searched for; the text up to the next delimiter is masked too
	maxSecrets = 128 << 10 // bytes of all secrets of an event
	maxCoded   = 16 << 10  // bytes of the secrets that are searched for in base64
)

// finder finds many secrets in a text, in time proportional to the length of the text alone: it is the
// automaton of Aho and Corasick, "Efficient string matching" (1975).
type finder struct {
	root  [256]int32
	edges map[uint32]int32 // node<<8 | byte
	fail  []int32
	found []match // by node: the longest secret that ends there
}

// match is the secret that a node of the automaton has found.
type match struct {
	length int32 // of the secret, in normal form; 0 = none
	kind   matchKind
}

type matchKind uint8

const (
	matchWithin matchKind = iota // anywhere
	matchAlone                   // only as a whole word
	matchStart                   // the beginning of a secret that is longer than maxPattern
	matchCoded                   // in base64
)

func newFinder() *finder {
	return &finder{edges: map[uint32]int32{}, fail: []int32{0}, found: []match{{}}}
}

// fold makes the two alphabets of base64 equal, and a plus equal to the space that it means in forms.
func fold(c byte) byte {
	switch c {
	case '+', '-':
		return ' '
	case '_':
		return '/'
	}
	return c
}

// add adds a pattern in normal form.
func (f *finder) add(pattern []byte, kind matchKind) {
	node := int32(0)
	for _, c := range pattern {
		edge := uint32(node)<<8 | uint32(fold(c))
		next, ok := f.edges[edge]
		if !ok {
			next = int32(len(f.found))
			f.edges[edge] = next
			f.found, f.fail = append(f.found, match{}), append(f.fail, 0)
		}
		node = next
	}
	if is := &f.found[node]; is.length == 0 || kind < is.kind {
		*is = match{int32(len(pattern)), kind}
	}
}

// build completes the automaton after the last pattern. It visits the nodes by depth, because the failure
// link of a node leads to a node of less depth.
func (f *finder) build() {
	children := make([][]uint32, len(f.found))
	for edge := range f.edges {
		children[edge>>8] = append(children[edge>>8], edge)
	}
	queue := []int32{0}
	for len(queue) > 0 {
		node := queue[0]
		queue = queue[1:]
		for _, edge := range children[node] {
			child, c := f.edges[edge], byte(edge)
			if node == 0 {
				f.root[c] = child
			} else {
				f.fail[child] = f.next(f.fail[node], c)
			}
			if f.found[child].length == 0 {
				f.found[child] = f.found[f.fail[child]]
			}
			queue = append(queue, child)
		}
	}
}

// next returns the state after a byte.
func (f *finder) next(node int32, c byte) int32 {
	for node != 0 {
		if next, ok := f.edges[uint32(node)<<8|uint32(c)]; ok {
			return next
		}
		node = f.fail[node]
	}
	return f.root[c]
}

// find calls take with each secret in a text, as a range of bytes of the normal form.
func (f *finder) find(n *normal, take func(from, to int)) {
	node := int32(0)
	for i := 0; i < len(n.p); i++ {
		node = f.next(node, fold(n.p[i]))
		m := f.found[node]
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
			i, node = to-1, 0
		}
	}
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c >= 0x80
}

func isBase64(c byte) bool {
	return c < 0x80 && isWord(c) || c == '+' || c == '/' || c == '-' || c == '_' || c == '='
}

// codedForms returns the forms of a secret in the base64 of a longer text, one for each of the three
// alignments: the digits that no neighbouring byte changes.
func codedForms(secret string) (forms []string) {
	for before := range 3 {
		coded := base64.RawStdEncoding.EncodeToString([]byte("\x00\x00"[:min(before, 2)] + secret))
		first := []int{0, 2, 3}[before]
		forms = append(forms, coded[first:(before+len(secret))*8/6])
	}
	return forms
}
