package client

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"relay"
)

// ConfigName is the file that relay looks for.
const ConfigName = "webhooks.yaml"

// Config is what a webhooks.yaml says.
type Config struct {
	Path    string    // as it is called in messages; "" = there is none
	Server  string    // "" = not said
	Aliases []Forward // in the order of the file
}

// Forward gives the entry of an alias.
func (c *Config) Forward(alias string) (Forward, bool) {
	for _, f := range c.Aliases {
		if f.Alias == alias {
			return f, true
		}
	}
	return Forward{}, false
}

// FindConfig looks for a webhooks.yaml in a folder and its parents, the nearest
// first; "" when there is none.
func FindConfig(dir string) string {
	for {
		path := filepath.Join(dir, ConfigName)
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return path
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}

// ReadConfig reads and checks a configuration file. Errors are *Error that begin
// with file, line and column; name is how the file is called in them.
func ReadConfig(path, name string) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, &Error{Exit: ExitFailure, Text: "cannot read the configuration", Cause: err}
	}
	c, err := parseConfig(text, name)
	if err != nil {
		return nil, err
	}
	c.Path = name
	return c, nil
}

// configReader walks the YAML tree, where every node still knows its place.
type configReader struct {
	name string
}

func parseConfig(text []byte, name string) (*Config, error) {
	r := configReader{name}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, r.syntax(text, err)
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if body != nil {
			return nil, r.at(doc.Body, "a second document; the file holds one")
		}
		body = doc.Body
	}
	start := &token.Position{Line: 1, Column: 1}
	if body == nil {
		return nil, r.errorf(start, "version is missing").WithHint("begin the file with: version: 1")
	}
	return r.config(body)
}

func (r configReader) errorf(p *token.Position, format string, args ...any) *Error {
	return Errorf(ExitFailure, "%s:%d:%d: %s", r.name, p.Line, p.Column, fmt.Sprintf(format, args...))
}

func (r configReader) at(n ast.Node, format string, args ...any) *Error {
	return r.errorf(startOf(n), format, args...)
}

// startOf is where a node begins; the token of a mapping is its first colon.
func startOf(n ast.Node) *token.Position {
	switch m := n.(type) {
	case *ast.MappingNode:
		if !m.IsFlowStyle && len(m.Values) > 0 {
			return m.Values[0].Key.GetToken().Position
		}
	case *ast.MappingValueNode:
		return m.Key.GetToken().Position
	}
	return n.GetToken().Position
}

func (r configReader) config(body ast.Node) (*Config, error) {
	fields, err := r.mapping(body, "the file", "version", "server", "aliases")
	if err != nil {
		return nil, err
	}
	if err := r.version(body, fields["version"]); err != nil {
		return nil, err
	}
	c := &Config{}
	if n := fields["server"]; n != nil {
		if c.Server, err = r.text(n, "server"); err != nil {
			return nil, err
		}
		if _, _, _, err := SplitServer(c.Server); err != nil {
			return nil, r.at(n, "%v; write HOST:PORT", err)
		}
	}
	if n := fields["aliases"]; n != nil {
		c.Aliases, err = r.aliases(n)
	}
	return c, err
}

func (r configReader) version(body, n ast.Node) error {
	if n == nil {
		return r.at(body, "version is missing").WithHint("begin the file with: version: 1")
	}
	v, err := r.integer(n, "version")
	if err != nil {
		return err
	}
	if v != 1 {
		return r.at(n, "version %d is not known; this relay reads version 1", v)
	}
	return nil
}

func (r configReader) aliases(n ast.Node) ([]Forward, error) {
	entries, err := r.entries(n, "aliases")
	if err != nil {
		return nil, err
	}
	var list []Forward
	for _, e := range entries {
		name := keyText(e)
		if !relay.ValidLabel(name) {
			return nil, r.at(e.Key, "%q is no alias name; it has 1 to 63 lower-case letters, digits and inner hyphens", name)
		}
		if relay.ReservedLabel(name) {
			return nil, r.at(e.Key, "%q is a reserved name; choose another one", name)
		}
		f, err := r.alias(name, e)
		if err != nil {
			return nil, err
		}
		list = append(list, f)
	}
	return list, nil
}

func (r configReader) alias(name string, e *ast.MappingValueNode) (Forward, error) {
	f := Forward{Alias: name}
	fields, err := r.mapping(e.Value, "alias "+name, "port", "target", "hostHeader")
	if err != nil {
		return f, err
	}
	port, target := fields["port"], fields["target"]
	switch {
	case port != nil && target != nil:
		return f, r.at(target, "alias %s has both port and target; keep one", name)
	case port != nil:
		f.Target, err = r.port(port)
	case target != nil:
		f.Target, err = r.target(target)
	default:
		return f, r.at(e.Key, "alias %s needs a port or a target", name)
	}
	if err != nil {
		return f, err
	}
	if n := fields["hostHeader"]; n != nil {
		v, err := r.text(n, "hostHeader")
		if err == nil {
			f.Target, err = f.Target.WithHostHeader(v)
			if err != nil {
				err = r.at(n, "%v", err)
			}
		}
		return f, err
	}
	return f, nil
}

func (r configReader) port(n ast.Node) (Target, error) {
	v, err := r.integer(n, "port")
	if err != nil {
		return Target{}, err
	}
	t, err := PortTarget(int(min(v, 1<<20)))
	if err != nil {
		return t, r.at(n, "port %d is not between 1 and 65535", v)
	}
	return t, nil
}

func (r configReader) target(n ast.Node) (Target, error) {
	s, err := r.text(n, "target")
	if err != nil {
		return Target{}, err
	}
	t, err := ParseTarget(s)
	var e *Error
	if errors.As(err, &e) {
		return t, r.at(n, "%s", e.Text).WithHint("%s", e.Hint)
	}
	return t, err
}

// mapping gives the values of a mapping that may hold these keys and no others.
func (r configReader) mapping(n ast.Node, what string, keys ...string) (map[string]ast.Node, error) {
	entries, err := r.entries(n, what)
	if err != nil {
		return nil, err
	}
	fields := map[string]ast.Node{}
	for _, e := range entries {
		key := keyText(e)
		if !slices.Contains(keys, key) {
			unknown := r.at(e.Key, "unknown key %q in %s", key, what)
			if near := Nearest(key, keys); near != "" {
				return nil, unknown.WithHint("did you mean %s", near)
			}
			return nil, unknown.WithHint("the keys here are %s", strings.Join(keys, ", "))
		}
		fields[key] = e.Value
	}
	return fields, nil
}

// entries gives the entries of a mapping in order.
func (r configReader) entries(n ast.Node, what string) ([]*ast.MappingValueNode, error) {
	switch m := plain(n).(type) {
	case *ast.MappingNode:
		return m.Values, nil
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{m}, nil
	}
	err := r.wrongType(n, what, "keys with values")
	if s, ok := plain(n).(*ast.StringNode); ok && strings.Contains(s.Value, ":") {
		return nil, err.WithHint(wellFormed)
	}
	return nil, err
}

func (r configReader) integer(n ast.Node, what string) (int64, error) {
	i, ok := plain(n).(*ast.IntegerNode)
	if !ok {
		return 0, r.wrongType(n, what, "a number")
	}
	switch v := i.Value.(type) {
	case int64:
		return v, nil
	case uint64:
		return int64(min(v, 1<<62)), nil
	}
	return 0, r.wrongType(n, what, "a number")
}

func (r configReader) text(n ast.Node, what string) (string, error) {
	switch s := plain(n).(type) {
	case *ast.StringNode:
		return s.Value, nil
	case *ast.LiteralNode:
		return strings.TrimSpace(s.Value.Value), nil
	}
	return "", r.wrongType(n, what, "text")
}

func (r configReader) wrongType(n ast.Node, what, want string) *Error {
	got := map[ast.NodeType]string{
		ast.MappingType: "keys with values", ast.MappingValueType: "keys with values", ast.SequenceType: "a list",
		ast.IntegerType: "a number", ast.FloatType: "a number with a fraction", ast.StringType: "text",
		ast.LiteralType: "text", ast.BoolType: "a truth value", ast.NullType: "nothing",
	}[plain(n).Type()]
	if got == "" {
		got = "something else"
	}
	return r.at(n, "%s must be %s, not %s", what, want, got)
}

// plain looks through an anchor at its value.
func plain(n ast.Node) ast.Node {
	if a, ok := n.(*ast.AnchorNode); ok {
		return a.Value
	}
	return n
}

func keyText(e *ast.MappingValueNode) string {
	if s, ok := e.Key.(*ast.StringNode); ok {
		return s.Value
	}
	return e.Key.GetToken().Value
}
