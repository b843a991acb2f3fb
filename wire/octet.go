package wire

import "bytes"

// Classes of octets, as bits in the values of the table class.
const (
	tokenOctet   = 1 << iota // tchar of RFC 9110, section 5.6.2
	targetOctet              // bytes allowed in a request-target: 0x21-0x7E, 0x80-0xFF
	valueOctet               // field-content, SP and HTAB (RFC 9110, section 5.5)
	hostOctet                // reg-name without pct-encoded (RFC 3986, section 3.2.2)
	literalOctet             // inside the brackets of an IPv6 address
	hexOctet
)

// class holds the classes of each octet.
var class = classes()

func classes() (t [256]uint8) {
	for i := 0x21; i <= 0xFF; i++ {
		if i != 0x7F {
			t[i] |= targetOctet | valueOctet
		}
	}
	t[' '] |= valueOctet
	t['\t'] |= valueOctet
	mark := func(set string, bits uint8) {
		for i := range len(set) {
			t[set[i]] |= bits
		}
	}
	mark("0123456789", tokenOctet|hostOctet|literalOctet|hexOctet)
	mark("abcdefABCDEF", tokenOctet|hostOctet|literalOctet|hexOctet)
	mark("ghijklmnopqrstuvwxyzGHIJKLMNOPQRSTUVWXYZ", tokenOctet|hostOctet)
	mark("!#$%&'*+-.^_`|~", tokenOctet)
	mark("-._~!$&'()*+,;=", hostOctet)
	mark(":.", literalOctet)
	return t
}

func is(c byte, bits uint8) bool { return class[c]&bits != 0 }

// only reports whether every byte of p is in one of the classes in bits.
func only(p []byte, bits uint8) bool {
	for _, c := range p {
		if class[c]&bits == 0 {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + ('a' - 'A')
	}
	return c
}

// fold compares p with a word in lower case, ignoring the case of p.
func fold(p []byte, word string) bool {
	if len(p) != len(word) {
		return false
	}
	for i, c := range p {
		if lower(c) != word[i] {
			return false
		}
	}
	return true
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' }

// trim removes optional white space (OWS) at both ends.
func trim(p []byte) []byte {
	for len(p) > 0 && isSpace(p[0]) {
		p = p[1:]
	}
	for len(p) > 0 && isSpace(p[len(p)-1]) {
		p = p[:len(p)-1]
	}
	return p
}

// hasToken reports whether a comma-separated list has a word (in lower case).
func hasToken(list []byte, word string) bool {
	for more := true; more; {
		var item []byte
		item, list, more = bytes.Cut(list, []byte{','})
		if fold(trim(item), word) {
			return true
		}
	}
	return false
}

// hasWord reports whether a value has a word (in lower case); all octets that are no
// token octets separate words.
func hasWord(value []byte, word string) bool {
	for len(value) > 0 {
		n := 0
		for n < len(value) && is(value[n], tokenOctet) {
			n++
		}
		if fold(value[:n], word) {
			return true
		}
		value = value[min(n+1, len(value)):]
	}
	return false
}
