package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"relay/record"
)

// fileEntry is one line of the configuration file. Its text stays as written, because the setting parses it:
// YAML would read `on` as a boolean and `1_0` as a number.
type fileEntry struct {
	text   string
	origin string // file:line of the entry
}

// settingName matches the form of a key, even a misspelled key.
var settingName = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)

// quotedWord matches a word of the file in a message of the YAML library: it may be a secret.
var quotedWord = regexp.MustCompile(`"[^"]{2,}"`)

// maxConfigFile is the largest size of a configuration file, in bytes. A file with every setting and comments
// has a quarter of this size.
const maxConfigFile = 64 << 10

// readConfigFile reads the YAML file; its keys are flag names.
func readConfigFile(path string, list []*setting) (map[string]fileEntry, error) {
	content, err := os.ReadFile(path)
	if err != nil && looksSecret(path) {
		return nil, errors.New("--config: this value looks like a secret, so it is not shown; expected the path of a file")
	}
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	if len(content) > maxConfigFile {
		return nil, fmt.Errorf("%s: it has %d bytes, more than the %d of a file of settings", path, len(content), maxConfigFile)
	}
	tree, err := parser.ParseBytes(record.DecodeText(content), 0)
	if err != nil {
		return nil, syntaxError(path, err)
	}
	entries := map[string]fileEntry{}
	var faults []error
	for i, doc := range tree.Docs {
		if doc.Body == nil {
			continue
		}
		mapping, ok := doc.Body.(*ast.MappingNode)
		if !ok || i > 0 {
			line := doc.Body.GetToken().Position.Line
			return nil, fmt.Errorf("%s:%d: expected one list of `setting: value` lines, such as `http-addr: 127.0.0.1:8080`", path, line)
		}
		for _, pair := range mapping.Values {
			key := pair.Key.GetToken()
			origin := fmt.Sprintf("%s:%d", path, key.Position.Line)
			text, err := textOf(key.Value, pair.Value, list)
			if err != nil {
				name := key.Value
				if !settingName.MatchString(name) || looksSecret(name) { // it may be the second line of a value, such as a piece of a password
					name = hidden
				}
				faults = append(faults, fmt.Errorf("%s: %s: %w", origin, name, err))
				continue
			}
			entries[key.Value] = fileEntry{text: text, origin: origin}
		}
	}
	return entries, errors.Join(faults...)
}

// textOf returns the text of the value of a key.
func textOf(key string, value ast.Node, list []*setting) (string, error) {
	s := named(list, key)
	if s == nil {
		names := mapSlice(list, func(s *setting) string { return s.name })
		if near := record.Nearest(strings.ReplaceAll(strings.ToLower(key), "_", "-"), names); near != "" {
			return "", fmt.Errorf("unknown setting; expected a flag name, did you mean %s?", near)
		}
		return "", errors.New("unknown setting; expected a flag name of `relayd serve --help`")
	}
	if s.file { // one item a line, because the comment of an SSH key may contain any other character
		return scalar(value, "\n")
	}
	return scalar(value, ",")
}

// scalar returns the text of a value; the items of a sequence are joined.
func scalar(node ast.Node, separator string) (string, error) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return n.Value.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, nil
	case *ast.SequenceNode:
		words := make([]string, len(n.Values))
		for i, item := range n.Values {
			word, err := scalar(item, separator)
			if err != nil {
				return "", err
			}
			words[i] = word
		}
		return strings.Join(words, separator), nil
	case *ast.NullNode:
		return "", errors.New("expected a value; leave the line out for the default")
	}
	return "", errors.New("expected a plain value")
}

// syntaxError returns the error for a YAML mistake, with its position and the expected text.
func syntaxError(path string, err error) error {
	fault, ok := errors.AsType[yaml.Error](err)
	if !ok || fault.GetToken() == nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	place := fmt.Sprintf("%s:%d", path, fault.GetToken().Position.Line)
	if key, first, twice := strings.Cut(fault.GetMessage(), "already defined at ["); twice {
		line, _, _ := strings.Cut(first, ":")
		key = strings.Trim(strings.TrimPrefix(key, "mapping key "), `" `)
		return fmt.Errorf("%s: %s is set in line %s already; expected each setting once", place, key, line)
	}
	return fmt.Errorf("%s: expected `setting: value` on a line of its own, without spaces before it; what YAML says: %s", place, quotedWord.ReplaceAllString(fault.GetMessage(), hidden))
}
