package mask

import (
	"bytes"
	"slices"
	"strings"
)

// text hides secrets in a text: the user information and secret query values of URLs, values that follow a name
// such as password, and the known secrets. out gets the edits of a text in which s begins at the index base.
func (m *Masker) text(out *edits, s []byte, base int) {
	packed := isPacked(s)
	if len(s) < minSecret || m.finder == nil && !packed && bytes.IndexByte(s, '=') < 0 && bytes.IndexByte(s, ':') < 0 && bytes.IndexByte(s, '%') < 0 && bytes.IndexByte(s, '>') < 0 {
		return
	}
	n := normalise(s, &m.buffer)
	hide := func(from, to int) {
		if from < to {
			start, end := n.piece(from, to)
			out.add(base+start, base+end, Masked)
		}
	}
	t := textScan{m: m, n: n, hide: hide}
	for i := 0; i < len(n.p); {
		switch n.p[i] {
		case ':', '=':
			i = t.separator(i)
		case '<':
			t.open = i + 1
			i++
		case '>':
			i = t.element(i)
		default:
			i++
		}
	}
	if m.finder != nil {
		m.finder.find(n, hide)
	}
	if packed {
		m.packed(n, hide)
	}
}

// textScan finds names and their values in the normal form of a text.
type textScan struct {
	m      *Masker
	n      *normal
	hide   func(from, to int)
	open   int  // position after the last <, 0 = none
	oauth  bool // the text has field names of OAuth
	looked bool // oauth was determined
}

// secret adds a value to the known secrets and hides it. It returns the end of the value.
func (t *textScan) secret(from, to int) int {
	t.m.learnNormal(t.n.p[from:to], t.n.p[from:to])
	t.hide(from, to)
	return max(from, to)
}

// separator handles a colon or an equals sign, and returns the position at which the scan continues.
func (t *textScan) separator(i int) int {
	p := t.n.p
	if p[i] == ':' && bytes.HasPrefix(p[i:], []byte("://")) {
		return t.address(i + 3)
	}
	name, quoted := nameBefore(p, i)
	from := i + 1
	for from < len(p) && from < i+8 && (p[from] == ' ' || p[from] == '\t') {
		from++
	}
	if len(name) < 3 || from == len(p) || p[from] == '>' || p[from] == '=' {
		return i + 1
	}
	switch {
	case p[i] == ':' && !quoted && !strongName(name):
		return i + 1
	case secretAddress(name):
		return t.secretAddress(from)
	case !t.m.secretField(name) && !t.isCode(name, from):
		return i + 1
	}
	to := t.valueEnd(i, from, quoted)
	if isQuote(p[from]) {
		from++
	}
	return max(i+1, t.secret(from, to))
}

// nameBefore returns the name before a separator, and whether it is quoted.
func nameBefore(p []byte, i int) (name []byte, quoted bool) {
	for spaces := 0; i > 0 && (p[i-1] == ' ' || p[i-1] == '\t') && spaces < 8; spaces++ {
		i--
	}
	if i > 0 && isQuote(p[i-1]) {
		quoted = true
		i--
	}
	from := i
	for from > 0 && i-from < maxName && (isWord(p[from-1]) || strings.IndexByte("_-.[]$", p[from-1]) >= 0) {
		from--
	}
	return p[from:i], quoted
}

func isQuote(c byte) bool { return c == '"' || c == '\'' || c == '`' }

// valueEnd returns the end of the value that begins at the index from, after the separator at the index i.
func (t *textScan) valueEnd(i, from int, quotedName bool) int {
	p := t.n.p
	end := func(chars string) int {
		if n := bytes.IndexAny(p[from:], chars); n >= 0 {
			return from + n
		}
		return len(p)
	}
	switch {
	case isQuote(p[from]):
		if n := bytes.IndexByte(p[from+1:], p[from]); n >= 0 {
			return from + 1 + n
		}
		return len(p)
	case p[from] == '{' || p[from] == '[': // an object or array may contain any character
		return closing(p, from)
	case p[i] == ':' && quotedName: // the value is a number, or a word in YAML
		return end(",}]\r\n")
	case p[i] == ':': // the value ends with the line, such as in Authorization: Bearer …
		return end("\r\n<\"")
	}
	to := from
	for to < len(p) && strings.IndexByte(" \t\r\n\"'`<>", p[to]) < 0 && (p[to] != '&' || t.n.escaped(to) && !t.n.escaped(i)) {
		to++
	}
	return to
}

// closing returns the end of the object or array that begins at p[from], or the end of the text.
func closing(p []byte, from int) int {
	depth := 0
	for i := from; i < len(p); i++ {
		switch p[i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(p)
}

// isCode reports whether the value of a field named code is a login code. That is so if the value looks
// like a login code, or if the text has fields of OAuth.
func (t *textScan) isCode(name []byte, from int) bool {
	if !strings.EqualFold(string(name), "code") {
		return false
	}
	rest := t.n.p[from:]
	to := bytes.IndexAny(rest[:min(len(rest), maxPattern)], "& \t\r\n\"'<>")
	if to < 0 {
		to = min(len(rest), maxPattern)
	}
	if looksLikeCode(rest[:to]) {
		return true
	}
	if !t.looked {
		t.looked = true
		t.oauth = slices.ContainsFunc([]string{"grant_type=", "client_id=", "redirect_uri=", "&state=", "?state="}, func(field string) bool {
			return bytes.Contains(t.n.p, []byte(field))
		})
	}
	return t.oauth
}

// keptHosts are services whose URLs are secrets, given by the end of the host and the start of the path:
// every client that knows such a URL may write there.
var keptHosts = []struct{ host, path string }{
	{"hooks.slack.com", "/"},
	{"discord.com", "/api/webhooks/"},
	{"discordapp.com", "/api/webhooks/"},
	{"api.telegram.org", "/bot"},
	{"webhook.office.com", "/"},
	{"hooks.zapier.com", "/"},
	{"hook.make.com", "/"},
	{"maker.ifttt.com", "/"},
	{"logic.azure.com", "/"},
}

// address hides the user information of a URL whose authority begins at the index from, and its path if the path is
// a secret. It returns the position at which the scan continues; the query is read like any other text.
func (t *textScan) address(from int) int {
	p := t.n.p
	to := from + indexOf(p[from:], addressEnd+"/?#")
	if at := bytes.LastIndexByte(p[from:to], '@'); at > 0 {
		info := p[from : from+at]
		if user, password, ok := bytes.Cut(info, []byte(":")); ok {
			t.m.learnNormal(password, password)
			if looksLikeCode(user) {
				t.m.learnNormal(user, user)
			}
		} else {
			t.m.learnNormal(info, info)
		}
		t.hide(from, from+at)
		from += at + 1
	}
	host := p[min(from, to):to]
	for _, kept := range keptHosts {
		if n := len(host) - len(kept.host); n >= 0 && string(host[n:]) == kept.host && bytes.HasPrefix(p[to:], []byte(kept.path)) {
			return t.secret(to+len(kept.path), to+indexOf(p[to:], addressEnd))
		}
	}
	return to
}

// addressEnd are characters that end a URL in a text.
const addressEnd = " \t\r\n\"'`<>\\"

func indexOf(p []byte, chars string) int {
	if n := bytes.IndexAny(p, chars); n >= 0 {
		return n
	}
	return len(p)
}

// secretAddress hides a URL that is a secret, except its scheme and host.
func (t *textScan) secretAddress(from int) int {
	p := t.n.p
	if isQuote(p[from]) {
		from++
	}
	to := from + indexOf(p[from:], addressEnd)
	host := hostEnd(p[from:to])
	return max(from, t.secret(from+host, to))
}

// hostEnd returns the end of scheme, host and slash of a URL; 0 = no URL.
func hostEnd(p []byte) int {
	scheme := bytes.Index(p, []byte("://"))
	if scheme < 0 {
		return 0
	}
	host := scheme + 3 + indexOf(p[scheme+3:], "/?#")
	if bytes.IndexByte(p[scheme+3:host], '@') >= 0 {
		return scheme + 3
	}
	return min(len(p), host+1)
}

// element hides the content of an XML element with the name of a secret. The tag of the element ends at i.
func (t *textScan) element(i int) int {
	p := t.n.p
	from, open := i+1, t.open
	if t.open = 0; open == 0 || i-open > 2*maxName {
		return from
	}
	tag := p[open:i]
	name := tag[:indexOf(tag, " \t\r\n/")]
	if at := bytes.LastIndexByte(name, ':'); at >= 0 {
		name = name[at+1:]
	}
	if len(name) < 3 || bytes.HasSuffix(tag, []byte("/")) || !t.m.secretField(name) {
		return from
	}
	end := []byte("<")
	if bytes.HasPrefix(p[from:], []byte("<![CDATA[")) {
		from, end = from+len("<![CDATA["), []byte("]]>")
	}
	to := len(p)
	if n := bytes.Index(p[from:], end); n >= 0 {
		to = from + n
	}
	return max(i+1, t.secret(from, to))
}
