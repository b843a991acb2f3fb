package sshgate

import (
	"errors"
	"strings"
)

// maxCommand is the longest command line that is read.
const maxCommand = 4096

// splitWords splits a command line at white space. Quotes (single or double) and
// backslashes work as in a shell; nothing else does: no variables, no patterns, no
// commands within commands.
func splitWords(line string) ([]string, error) {
	if len(line) > maxCommand {
		return nil, errors.New("the command is too long")
	}
	var (
		words  []string
		word   strings.Builder
		inWord bool
		quote  byte
	)
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == 0:
			return nil, errors.New("the command contains a NUL byte")
		case quote != 0 && c == quote:
			quote = 0
		case c == '\\' && quote != '\'':
			if i++; i == len(line) {
				return nil, errors.New("the command ends with a backslash")
			}
			word.WriteByte(line[i])
			inWord = true
		case quote != 0:
			word.WriteByte(c)
		case c == '\'' || c == '"':
			quote, inWord = c, true
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, errors.New("a quote is not closed")
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}
