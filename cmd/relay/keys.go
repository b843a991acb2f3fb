package main

import (
	"bytes"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Keys that are no letters.
const (
	keyUp     = "up"
	keyDown   = "down"
	keyEnter  = "enter"
	keyEscape = "escape"
	keyBack   = "backspace"
)

// Bracketed paste: with it on, a terminal puts these around what is pasted.
const (
	pasteOn    = "\x1b[?2004h"
	pasteOff   = "\x1b[?2004l"
	pasteBegin = "\x1b[200~"
	pasteEnd   = "\x1b[201~"
)

// pasteQuiet is how long the keyboard has to rest after something that looked like
// pasted text, where the terminal does not say what is.
const pasteQuiet = 50 * time.Millisecond

// keyParser makes keys of what a terminal sends. Pasted text makes none: a paste
// must not replay events or end the tunnel.
type keyParser struct {
	pasting bool
	quiet   time.Time // nothing counts until then
}

// parse takes what came with one read.
func (k *keyParser) parse(p []byte, now time.Time) (keys []string) {
	for len(p) > 0 {
		if k.pasting {
			_, after, found := bytes.Cut(p, []byte(pasteEnd))
			k.pasting, p = !found, after
			continue
		}
		if p[0] == 0x1b {
			var key string
			key, p = k.sequence(p)
			if key != "" {
				keys = append(keys, key)
			}
			continue
		}
		text := p
		if at := bytes.IndexByte(p, 0x1b); at >= 0 {
			text = p[:at]
		}
		p = p[len(text):]
		keys = append(keys, k.plain(string(text), now)...)
	}
	return keys
}

// sequence takes one escape sequence (ECMA-48, sections 5.4 and 8.3) off the start.
func (k *keyParser) sequence(p []byte) (key string, rest []byte) {
	if bytes.HasPrefix(p, []byte(pasteBegin)) {
		k.pasting = true
		return "", p[len(pasteBegin):]
	}
	if len(p) == 1 {
		return keyEscape, nil
	}
	if p[1] != '[' && p[1] != 'O' {
		return "", p[2:] // a letter with Alt
	}
	for i := 2; i < len(p); i++ {
		if p[i] < 0x40 || p[i] > 0x7e {
			continue
		}
		if i == 2 && p[i] == 'A' {
			key = keyUp
		} else if i == 2 && p[i] == 'B' {
			key = keyDown
		}
		return key, p[i+1:]
	}
	return "", nil
}

// plain gives the keys of bytes without escape. A person gives one key at a time, or
// holds one down; more than that at once was pasted.
func (k *keyParser) plain(text string, now time.Time) []string {
	first, size := utf8.DecodeRuneInString(text)
	same := strings.Count(text, text[:size])*size == len(text)
	if !same || first == utf8.RuneError {
		k.quiet = now.Add(pasteQuiet)
		return nil
	}
	if now.Before(k.quiet) { // the end of it may come as a single letter
		return nil
	}
	var keys []string
	for range len(text) / size {
		if key := named(first); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

func named(r rune) string {
	switch r {
	case '\r', '\n':
		return keyEnter
	case 0x7f, '\b':
		return keyBack
	}
	if !unicode.IsPrint(r) {
		return ""
	}
	return string(r)
}
