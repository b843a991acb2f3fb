package client

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"relay"
	"relay/record"
)

// ConfigName is the file that relay looks for.
const ConfigName = "webhooks.yaml"

// Config is the content of a webhooks.yaml.
type Config struct {
	Path    string    // as it is called in messages; "" means there is no file
	Server  string    // "" means the file names none
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

// configFile is the YAML of the file. Pointers are nil where a key is missing.
type configFile struct {
	Version *located[int]    `yaml:"version"`
	Server  *located[string] `yaml:"server"`
	Aliases aliasEntries     `yaml:"aliases"`
}

// aliasEntry is the YAML of one alias.
type aliasEntry struct {
	Port       *located[int]    `yaml:"port"`
	Target     *located[string] `yaml:"target"`
	HostHeader *located[string] `yaml:"hostHeader"`

	name string
	at   *token.Position
}

// located is a value with its place in the file.
type located[T any] struct {
	value T
	at    *token.Position
}

// UnmarshalYAML decodes the value and notes where it begins. The library would convert
// between text and numbers, so the type is checked here.
func (l *located[T]) UnmarshalYAML(n ast.Node) error {
	l.at = n.GetToken().Position
	switch _, number := any(l.value).(int); {
	case number && n.Type() != ast.IntegerType:
		return configError(l.at, "expected a whole number here")
	case !number && n.Type() != ast.StringType && n.Type() != ast.LiteralType:
		return configError(l.at, "expected text here")
	}
	return yaml.NodeToValue(n, &l.value)
}

// aliasEntries are the aliases in the order of the file, which a map would lose.
type aliasEntries []aliasEntry

// UnmarshalYAML decodes a mapping of names to entries.
func (a *aliasEntries) UnmarshalYAML(n ast.Node) error {
	mapping, ok := n.(*ast.MappingNode)
	if !ok {
		return configError(n.GetToken().Position, "aliases must be a mapping of names to settings")
	}
	for _, pair := range mapping.Values {
		key := pair.Key.GetToken()
		e := aliasEntry{name: key.Value, at: key.Position}
		if pair.Value.Type() != ast.MappingType {
			return configError(pair.Value.GetToken().Position, "alias %s must be a mapping such as { port: 3000 }", e.name)
		}
		if err := decodeConfig(pair.Value, &e, "alias "+e.name); err != nil {
			return err
		}
		*a = append(*a, e)
	}
	return nil
}

// parseConfig reads the text of a configuration file that is called name in errors.
func parseConfig(text []byte, name string) (*Config, error) {
	c, err := decodeConfigFile(text)
	var e *Error
	if errors.As(err, &e) {
		located := *e
		located.Text = name + ":" + e.Text
		return nil, &located
	}
	return c, err
}

func decodeConfigFile(text []byte) (*Config, error) {
	tree, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, yamlError(err, "the file", nil)
	}
	var body ast.Node
	for _, doc := range tree.Docs {
		switch {
		case doc.Body == nil || doc.Body.Type() == ast.CommentType:
		case body != nil:
			return nil, configError(doc.Body.GetToken().Position, "a second document; the file holds one")
		default:
			body = doc.Body
		}
	}
	var file configFile
	if body != nil {
		if body.Type() != ast.MappingType {
			return nil, configError(body.GetToken().Position, "the file must be a mapping").WithHint(wellFormed)
		}
		if err := decodeConfig(body, &file, "the file"); err != nil {
			return nil, err
		}
	}
	return file.config()
}

// config checks what YAML cannot express.
func (f *configFile) config() (*Config, error) {
	switch {
	case f.Version == nil:
		return nil, configError(&token.Position{Line: 1, Column: 1}, "version is missing").WithHint("begin the file with: version: 1")
	case f.Version.value != 1:
		return nil, configError(f.Version.at, "version %d is not known; this relay reads version 1", f.Version.value)
	}
	c := &Config{}
	if f.Server != nil {
		if _, _, _, err := SplitServer(f.Server.value); err != nil {
			return nil, configError(f.Server.at, "%v; write HOST:PORT", err)
		}
		c.Server = f.Server.value
	}
	for _, e := range f.Aliases {
		forward, err := e.forward()
		if err != nil {
			return nil, err
		}
		c.Aliases = append(c.Aliases, forward)
	}
	return c, nil
}

func (e *aliasEntry) forward() (f Forward, err error) {
	f.Alias = e.name
	switch {
	case !relay.ValidLabel(e.name):
		return f, configError(e.at, "%q is no alias name; it has 1 to 63 lower-case letters, digits and inner hyphens", e.name)
	case relay.ReservedLabel(e.name):
		return f, configError(e.at, "%q is a reserved name; choose another one", e.name)
	case e.Port != nil && e.Target != nil:
		return f, configError(e.Target.at, "alias %s has both port and target; keep one", e.name)
	case e.Port != nil:
		f.Target, err = PortTarget(e.Port.value)
		err = at(e.Port.at, err)
	case e.Target != nil:
		f.Target, err = ParseTarget(e.Target.value)
		err = at(e.Target.at, err)
	default:
		return f, configError(e.at, "alias %s needs a port or a target", e.name)
	}
	if err == nil && e.HostHeader != nil {
		f.Target, err = f.Target.WithHostHeader(e.HostHeader.value)
		err = at(e.HostHeader.at, err)
	}
	return f, err
}

// configError is an error whose text begins with line and column; parseConfig puts the
// name of the file before it.
func configError(p *token.Position, format string, args ...any) *Error {
	return Errorf(ExitFailure, "%d:%d: %s", p.Line, p.Column, fmt.Sprintf(format, args...))
}

// at turns a usage error about a value into an error about its place in the file.
func at(p *token.Position, err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	return configError(p, "%s", e.Text).WithHint("%s", e.Hint)
}

// decodeConfig decodes a mapping into a struct; keys that the struct does not have are
// errors.
func decodeConfig(n ast.Node, into any, what string) error {
	err := yaml.NodeToValue(n, into, yaml.Strict())
	if err == nil {
		return nil
	}
	var keys []string
	for t, i := reflect.TypeOf(into).Elem(), 0; i < t.NumField(); i++ {
		if key := t.Field(i).Tag.Get("yaml"); key != "" {
			keys = append(keys, key)
		}
	}
	return yamlError(err, what, keys)
}

const wellFormed = "write key: value, with a space after the colon, indent with spaces, and close brackets and quotes"

// yamlError says what the YAML library found, and where.
func yamlError(err error, what string, keys []string) error {
	var own *Error
	var found yaml.Error
	if errors.As(err, &own) {
		return own
	}
	if !errors.As(err, &found) || found.GetToken() == nil {
		return Errorf(ExitFailure, "1:1: this is no YAML: %v", err).WithHint(wellFormed)
	}
	place := found.GetToken().Position
	var unknown *yaml.UnknownFieldError
	if errors.As(err, &unknown) {
		key := unknown.Token.Value
		e := configError(place, "unknown key %q in %s", key, what)
		if near := record.Nearest(key, keys); near != "" {
			return e.WithHint("did you mean %s", near)
		}
		return e.WithHint("the keys here are %s", strings.Join(keys, ", "))
	}
	return configError(place, "%s", found.GetMessage()).WithHint(wellFormed)
}
