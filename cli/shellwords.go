package cli

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

var (
	errVariables = errors.New("variables and commands in it are not expanded; write their values")
	errWindows   = errors.New("it is in the form of the command prompt of Windows; copy it as cURL (bash)")
	errNoEnd     = errors.New("a quote in it has no end")
	errOperator  = errors.New("it is more than one command, or has a & without quotes around it; put the address in quotes")
)

// shellWords splits one command into words as a POSIX shell does, and reads $'…' as bash does. The only
// expansion that it knows is "$(printf '…')", which exported commands use for bytes that a terminal cannot
// show.
func shellWords(text string) ([]string, error) {
	var words []string
	var word strings.Builder
	begun := false
	for rest := text; rest != ""; {
		c, n := rest[0], 1
		var err error
		switch {
		case strings.IndexByte(" \t\r\n", c) >= 0:
			if begun {
				words = append(words, word.String())
				word.Reset()
			}
			begun = false
			rest = rest[1:]
			continue
		case c == '\\' && (strings.HasPrefix(rest, "\\\n") || strings.HasPrefix(rest, "\\\r\n")):
			rest = rest[strings.IndexByte(rest, '\n')+1:]
			continue
		case c == '#' && !begun:
			rest = afterComment(rest)
			continue
		case c == '\\' && len(rest) > 1:
			_, size := utf8.DecodeRuneInString(rest[1:])
			word.WriteString(rest[1 : 1+size])
			n += size
		case c == '\\':
			err = errNoEnd
		case c == '\'':
			end := strings.IndexByte(rest[1:], '\'')
			if n = end + 2; end < 0 {
				err = errNoEnd
			} else {
				word.WriteString(rest[1 : end+1])
			}
		case c == '"':
			n, err = doubleQuoted(&word, rest)
		case strings.HasPrefix(rest, "$'"):
			n, err = ansiQuoted(&word, rest)
		case c == '$' || c == '`':
			err = errVariables
		case c == '^' && len(rest) > 1 && strings.IndexByte("\"\r\n", rest[1]) >= 0:
			err = errWindows
		case strings.IndexByte("&|;<>()", c) >= 0:
			err = errOperator
		default:
			word.WriteByte(c)
		}
		if err != nil {
			return nil, err
		}
		begun, rest = true, rest[n:]
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}

// afterComment returns rest without the comment at its beginning. The line end after the comment stays.
func afterComment(rest string) string {
	if end := strings.IndexByte(rest, '\n'); end >= 0 {
		return rest[end:]
	}
	return ""
}

// doubleQuoted appends the content of the "…" at the beginning of rest to word. It returns the length of the
// "…", quotes included.
func doubleQuoted(word *strings.Builder, rest string) (int, error) {
	for i := 1; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == '"':
			return i + 1, nil
		case c == '\\' && i+1 < len(rest) && strings.IndexByte("\\\"$`", rest[i+1]) >= 0:
			i++
			word.WriteByte(rest[i])
		case strings.HasPrefix(rest[i:], "\\\n"):
			i++
		case strings.HasPrefix(rest[i:], "$(printf '"):
			format := rest[i+len("$(printf '"):]
			end := strings.Index(format, "')")
			if end < 0 {
				return 0, errVariables
			}
			if err := octalBytes(word, format[:end]); err != nil {
				return 0, err
			}
			i = len(rest) - len(format) + end + 1
		case c == '$' || c == '`':
			return 0, errVariables
		default:
			word.WriteByte(c)
		}
	}
	return 0, errNoEnd
}

// octalBytes writes the output of printf for a format that consists of \NNN and %% only.
func octalBytes(word *strings.Builder, format string) error {
	for i := 0; i < len(format); i++ {
		switch {
		case strings.HasPrefix(format[i:], "%%"):
			word.WriteByte('%')
			i++
		case format[i] == '\\' && len(format) > i+3:
			n, err := strconv.ParseUint(format[i+1:i+4], 8, 8)
			if err != nil {
				return errVariables
			}
			word.WriteByte(byte(n))
			i += 3
		case format[i] == '%' || format[i] == '\\':
			return errVariables
		default:
			word.WriteByte(format[i])
		}
	}
	return nil
}

// ansiEscapes maps the one-letter escapes of $'…' to their bytes.
var ansiEscapes = map[byte]byte{'n': '\n', 'r': '\r', 't': '\t', 'a': 7, 'b': 8, 'e': 0x1b, 'E': 0x1b, 'f': '\f', 'v': '\v', '\\': '\\', '\'': '\'', '"': '"', '?': '?'}

// ansiQuoted appends the content of the $'…' at the beginning of rest to word. It returns the length of the $'…'
// in rest.
func ansiQuoted(word *strings.Builder, rest string) (int, error) {
	for i := 2; i < len(rest); i++ {
		c := rest[i]
		if c == '\'' {
			return i + 1, nil
		}
		if c != '\\' || i+1 == len(rest) {
			word.WriteByte(c)
			continue
		}
		i++
		if plain, ok := ansiEscapes[rest[i]]; ok {
			word.WriteByte(plain)
			continue
		}
		base, most, from := 16, map[byte]int{'x': 2, 'u': 4, 'U': 8}[rest[i]], i+1
		if most == 0 {
			base, most, from = 8, 3, i
		}
		end := from
		for end < len(rest) && end < from+most && strings.IndexByte("0123456789abcdefABCDEF"[:map[int]int{8: 8, 16: 22}[base]], rest[end]) >= 0 {
			end++
		}
		n, err := strconv.ParseUint(rest[from:end], base, 32)
		switch {
		case err != nil:
			return 0, errors.New("the escape \\" + rest[i:i+1] + " in it is not known")
		case rest[i] == 'u' || rest[i] == 'U':
			word.WriteRune(rune(n))
		default:
			word.WriteByte(byte(n))
		}
		i = end - 1
	}
	return 0, errNoEnd
}
