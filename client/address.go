package client

import (
	"bytes"
	"cmp"
	"errors"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kevinburke/ssh_config"

	"relay/cli"
	"relay/record"
	"relay/sockets"
)

// DefaultServer is the relay that is used when no flag, environment variable, configuration or stored login names one.
const DefaultServer = "127.0.0.1:2222"

const (
	defaultPort = "2222"
	defaultUser = "relay" // a reserved name, never an alias; the relay does not identify users by it
)

// address is the SSH address of the relay and the user name to log in with.
type address struct {
	host, port, user string
	// The other fields come from ~/.ssh/config, with paths expanded.
	identities     []string // IdentityFile
	identityFiles  bool     // there is an IdentityFile line, even "none", so the default keys are not tried
	identitiesOnly bool     // IdentitiesOnly
	agent          *string  // IdentityAgent; nil = SSH_AUTH_SOCK, "" = none
	addKeys        string   // AddKeysToAgent
}

func (a address) String() string { return net.JoinHostPort(a.host, a.port) }

// SplitServer splits HOST, HOST:PORT, [IPv6]:PORT and USER@HOST:PORT; port and user are
// "" when not given.
func SplitServer(s string) (user, host, port string, err error) {
	host = s
	if before, after, ok := strings.Cut(s, "@"); ok {
		user, host = before, after
	}
	if h, p, splitErr := net.SplitHostPort(host); splitErr == nil {
		host, port = h, p
	} else if bare := strings.Trim(host, "[]"); net.ParseIP(bare) != nil {
		host = bare
	} else if strings.Contains(host, ":") {
		host = "" // the text has an unknown form
	}
	n, convErr := strconv.ParseUint(cmp.Or(port, defaultPort), 10, 16)
	if host == "" || strings.ContainsAny(host, " /\\\t\r\n") || convErr != nil || n == 0 {
		return "", "", "", cli.Errorf(cli.ExitUsage, "%q is not a server address", s).WithHint("write HOST:PORT, such as %s", DefaultServer)
	}
	return user, host, port, nil
}

// resolve finds the address of a server by ~/.ssh/config as ssh does; a port or user in the parameter server takes
// precedence. The function say gets warnings about unsupported settings.
func resolve(server, home string, say func(string)) (address, error) {
	user, host, port, err := SplitServer(server)
	if err != nil {
		return address{}, err
	}
	a := address{host: host, port: port, user: user}
	a.apply(filepath.Join(home, ".ssh", "config"), host, home, say)
	a.port, a.user = cmp.Or(a.port, defaultPort), cmp.Or(a.user, defaultUser)
	return a, nil
}

// apply applies a ssh_config file. If the file cannot be parsed, the function say gets a warning and the login goes on,
// because ssh understands more than this parser.
func (a *address) apply(path, name, home string, say func(string)) {
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	var conf *ssh_config.Config
	if err == nil {
		conf, err = ssh_config.Decode(bytes.NewReader(record.DecodeText(content)))
	}
	if err != nil {
		say("warning: " + path + " is not used: " + err.Error())
		return
	}
	all := func(key string) []string {
		values, err := conf.GetAll(name, key)
		if err != nil {
			say("warning: ~/.ssh/config, " + key + " of " + name + ": " + err.Error())
		}
		return append(slices.DeleteFunc(values, func(v string) bool { return v == "" }), "")
	}
	if v := all("HostName")[0]; v != "" {
		a.host = strings.ReplaceAll(v, "%h", name)
	}
	a.port = cmp.Or(a.port, all("Port")[0])
	a.user = cmp.Or(a.user, all("User")[0])
	for _, key := range []string{"ProxyJump", "ProxyCommand"} {
		if v := all(key)[0]; v != "" && !strings.EqualFold(v, "none") {
			say("warning: " + key + " of ~/.ssh/config is not used; relay dials " + a.host + " itself")
		}
	}
	for _, file := range all("IdentityFile") {
		if file == "" {
			continue
		}
		a.identityFiles = true
		if !strings.EqualFold(file, "none") {
			a.identities = append(a.identities, a.expandPath(file, home))
		}
	}
	a.identitiesOnly = strings.EqualFold(all("IdentitiesOnly")[0], "yes")
	a.addKeys = strings.ToLower(all("AddKeysToAgent")[0])
	if v := unquoted(all("IdentityAgent")[0]); v != "" && v != "SSH_AUTH_SOCK" {
		switch name, isVariable := strings.CutPrefix(v, "$"); {
		case strings.EqualFold(v, "none"):
			v = ""
		case isVariable && !strings.HasPrefix(v, "${"):
			v = os.Getenv(name)
		default:
			v = a.expandPath(v, home)
		}
		a.agent = &v
	}
}

func unquoted(s string) string {
	if len(s) > 1 && s[0] == '"' && s[len(s)-1] == '"' {
		return s[1 : len(s)-1]
	}
	return s
}

// variable matches an environment variable in a path of ~/.ssh/config.
var variable = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*\}`)

// expandPath expands a path of ~/.ssh/config; see TOKENS in ssh_config(5).
func (a *address) expandPath(path, home string) string {
	path = unquoted(path)
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		path = filepath.Join(home, rest)
	}
	path = variable.ReplaceAllStringFunc(path, func(v string) string { return os.Getenv(v[2 : len(v)-1]) })
	local := ""
	if u, err := user.Current(); err == nil {
		local = u.Username
	}
	path = strings.NewReplacer("%%", "%", "%d", home, "%h", a.host, "%p", cmp.Or(a.port, defaultPort), "%r", cmp.Or(a.user, defaultUser), "%u", local).Replace(path)
	if !filepath.IsAbs(path) {
		path = filepath.Join(home, ".ssh", path)
	}
	return path
}

// SameServer reports whether two HOST:PORT mean the same relay; all names of this
// machine are equal.
func SameServer(a, b string) bool {
	if strings.EqualFold(a, b) {
		return true
	}
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	return errA == nil && errB == nil && portA == portB && LoopbackName(hostA) && LoopbackName(hostB)
}

// LoopbackName reports whether a host name or address means this machine: a loopback
// address, localhost or a name below it.
func LoopbackName(host string) bool {
	host = strings.Trim(strings.ToLower(strings.TrimSuffix(host, ".")), "[]")
	return sockets.IsLoopback(host) || strings.HasSuffix(host, ".localhost")
}
