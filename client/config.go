package client

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"relay"
	"relay/cli"
	"relay/record"
)

// ConfigName is the name of the file that FindConfig looks for.
const ConfigName = "webhooks.yaml"

// Config is the content of a webhooks.yaml.
type Config struct {
	Path    string    // name of the file in messages; "" means there is no file
	Server  string    // "" means the file names no server
	Aliases []Forward // in the order of the file
}

// FindConfig returns the path of the nearest webhooks.yaml: that of the folder dir or of one of its parents. The
// result is "" if there is none.
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

// ReadConfig reads and checks a configuration file. name is the name of the file in errors, which are
// *cli.Error and begin with file, line and column.
func ReadConfig(path, name string) (*Config, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, &cli.Error{Exit: cli.ExitFailure, Text: "cannot read the configuration", Cause: err}
	}
	c, err := parseConfig(record.DecodeText(content))
	if e, ok := errors.AsType[*cli.Error](err); ok {
		e.Text = name + ":" + e.Text
		return nil, e
	}
	c.Path = name
	return c, nil
}

// maxConfig bounds a configuration, in bytes: some hundred aliases. The file may come from a repository of
// another user, and the YAML parser takes quadratic time for some long lines.
const maxConfig = 16 << 10

const wellFormed = "write key: value, with a space after the colon, indent with spaces, and close brackets and quotes"

// parseConfig reads the text of a configuration file. Errors begin with line and column.
func parseConfig(yamlText []byte) (*Config, error) {
	file, err := onlyMapping(yamlText)
	if err != nil {
		return nil, err
	}
	c := &Config{}
	values, err := fields(file, "the file", "version", "server", "aliases")
	if err != nil {
		return nil, err
	}
	if values["version"] == nil {
		return nil, cli.Errorf(cli.ExitFailure, "1:1: version is missing").WithHint("begin the file with: version: 1")
	}
	if version, err := number("version", values["version"]); err != nil {
		return nil, err
	} else if version != 1 {
		return nil, configError(values["version"].GetToken(), "version %d is not known; this relay reads version 1", version)
	}
	if n := values["server"]; n != nil {
		if c.Server, err = text("server", n); err != nil {
			return nil, err
		}
		if _, _, _, err := SplitServer(c.Server); err != nil {
			return nil, configError(n.GetToken(), "%v; write HOST:PORT", err)
		}
	}
	if n := values["aliases"]; n != nil {
		aliases, isMapping := n.(*ast.MappingNode)
		if !isMapping {
			return nil, configError(n.GetToken(), "aliases must be a mapping of names to settings")
		}
		for _, pair := range aliases.Values {
			forward, err := parseAlias(pair.Key.GetToken(), pair.Value)
			if err != nil {
				return nil, err
			}
			c.Aliases = append(c.Aliases, forward)
		}
	}
	return c, nil
}

// onlyMapping returns the mapping of a text with a single YAML document, or an empty mapping for an empty
// text.
func onlyMapping(yamlText []byte) (*ast.MappingNode, error) {
	if len(yamlText) > maxConfig {
		return nil, cli.Errorf(cli.ExitFailure, "1:1: the file has %d bytes, more than the %d that a configuration may have", len(yamlText), maxConfig)
	}
	tree, err := parser.ParseBytes(yamlText, 0)
	var found yaml.Error
	switch {
	case errors.As(err, &found) && found.GetToken() != nil:
		return nil, configError(found.GetToken(), "%s", found.GetMessage()).WithHint(wellFormed)
	case err != nil:
		return nil, cli.Errorf(cli.ExitFailure, "1:1: this is not YAML: %v", err).WithHint(wellFormed)
	}
	var file *ast.MappingNode
	for _, doc := range tree.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		body, isMapping := doc.Body.(*ast.MappingNode)
		switch {
		case file != nil:
			return nil, configError(doc.Body.GetToken(), "a second document; the file holds one")
		case !isMapping:
			return nil, configError(doc.Body.GetToken(), "the file must be a mapping").WithHint(wellFormed)
		}
		file = body
	}
	if file == nil {
		file = &ast.MappingNode{}
	}
	return file, nil
}

// parseAlias reads the entry of one alias.
func parseAlias(name *token.Token, n ast.Node) (f Forward, err error) {
	f.Alias = name.Value
	entry, isMapping := n.(*ast.MappingNode)
	if !isMapping {
		return f, configError(n.GetToken(), "alias %s must be a mapping such as { port: 3000 }", f.Alias)
	}
	values, err := fields(entry, "alias "+f.Alias, "port", "target", "hostHeader", "signing")
	if err != nil {
		return f, err
	}
	port, target := values["port"], values["target"]
	switch {
	case !relay.ValidLabel(f.Alias):
		return f, configError(name, "%q is not an alias name; it has 1 to 63 lower-case letters, digits and inner hyphens", f.Alias)
	case relay.ReservedLabel(f.Alias):
		return f, configError(name, "%q is a reserved name; choose another one", f.Alias)
	case port == nil && target == nil:
		return f, configError(name, "alias %s needs a port or a target", f.Alias)
	case port != nil && target != nil:
		return f, configError(target.GetToken(), "alias %s has both port and target; keep one", f.Alias)
	case port != nil:
		f.Target, err = value("port", port, number, PortTarget)
	default:
		f.Target, err = value("target", target, text, ParseTarget)
	}
	if header := values["hostHeader"]; err == nil && header != nil {
		f.Target, err = value("hostHeader", header, text, f.Target.WithHostHeader)
	}
	if signing := values["signing"]; err == nil && signing != nil {
		f.SecretEnv, err = parseSigning(signing)
	}
	return f, err
}

// parseSigning reads the names of the environment variables that hold secrets, by sender, such as {
// stripe: { secretEnv: STRIPE_WEBHOOK_SECRET } }.
func parseSigning(n ast.Node) (map[string]string, error) {
	senders, isMapping := n.(*ast.MappingNode)
	if !isMapping {
		return nil, configError(n.GetToken(), "signing must be a mapping such as { stripe: { secretEnv: STRIPE_WEBHOOK_SECRET } }")
	}
	out := map[string]string{}
	for _, pair := range senders.Values {
		name := pair.Key.GetToken()
		if !slices.Contains(record.ProviderNames(), name.Value) && name.Value != record.CustomSender {
			return nil, configError(name, "no sender %q is known", name.Value).Meant(name.Value, record.ProviderNames(), "", "relay events shows the name of a sender")
		}
		entry, isMapping := pair.Value.(*ast.MappingNode)
		if !isMapping {
			return nil, configError(pair.Value.GetToken(), "%s must be a mapping such as { secretEnv: STRIPE_WEBHOOK_SECRET }", name.Value)
		}
		values, err := fields(entry, "signing of "+name.Value, "secretEnv")
		if err != nil {
			return nil, err
		}
		if values["secretEnv"] == nil {
			return nil, configError(name, "%s needs secretEnv, the name of an environment variable", name.Value)
		}
		if out[name.Value], err = text("secretEnv", values["secretEnv"]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// fields returns the values of a mapping by key. An unknown key is an error, and a key without a value is
// left out.
func fields(n *ast.MappingNode, what string, known ...string) (map[string]ast.Node, error) {
	values := map[string]ast.Node{}
	for _, pair := range n.Values {
		key := pair.Key.GetToken()
		if !slices.Contains(known, key.Value) {
			return nil, configError(key, "unknown key %q in %s", key.Value, what).
				Meant(key.Value, known, "", "the keys here are "+strings.Join(known, ", "))
		}
		if pair.Value.Type() != ast.NullType {
			values[key.Value] = pair.Value
		}
	}
	return values, nil
}

// value decodes a scalar and parses it as a target. A usage error of the function parse gets the position of the scalar
// in the file.
func value[T any](key string, n ast.Node, decode func(string, ast.Node) (T, error), parse func(T) (Target, error)) (Target, error) {
	v, err := decode(key, n)
	if err != nil {
		return Target{}, err
	}
	target, err := parse(v)
	if e, ok := errors.AsType[*cli.Error](err); ok {
		err = configError(n.GetToken(), "%s", e.Text).WithHint("%s", e.Hint)
	}
	return target, err
}

// text returns a string, and number returns a decimal integer. The YAML library itself would convert a string into a
// number and a number into a string, and would read 03000 as 1536. Errors of text and number name the key.
func text(key string, n ast.Node) (s string, err error) {
	if n.Type() != ast.StringType && n.Type() != ast.LiteralType || yaml.NodeToValue(n, &s) != nil {
		return "", configError(n.GetToken(), "%s: expected text here", key)
	}
	return s, nil
}

func number(key string, n ast.Node) (i int, err error) {
	if n.Type() != ast.IntegerType || yaml.NodeToValue(n, &i) != nil || strconv.Itoa(i) != n.GetToken().Value {
		return 0, configError(n.GetToken(), "%s: expected a whole number here", key)
	}
	return i, nil
}

// configError returns an error whose text begins with line and column.
func configError(at *token.Token, format string, args ...any) *cli.Error {
	return cli.Errorf(cli.ExitFailure, "%d:%d: %s", at.Position.Line, at.Position.Column, fmt.Sprintf(format, args...))
}
