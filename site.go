package relay

import (
	"net/url"
	"strings"
)

// Site has the public addresses of the relay.
type Site struct {
	Base        url.URL // dashboard and API, without path
	AliasDomain string
	SSHAddr     string // host:port that SSH clients dial
	Loopback    bool   // every listener is on loopback
}

// AliasURL returns the public URL of an alias, with scheme and port of the base URL.
func (s Site) AliasURL(alias string) string {
	host := alias + "." + s.AliasDomain
	if p := s.Base.Port(); p != "" {
		host += ":" + p
	}
	return s.Base.Scheme + "://" + host
}

// Reserved reports whether a valid label is forbidden as the name of an alias on this site, because it
// is reserved everywhere or its host would be the base host.
func (s Site) Reserved(label string) bool {
	base := strings.TrimSuffix(s.Base.Hostname(), ".")
	domain := strings.Trim(s.AliasDomain, ".")
	return ReservedLabel(label) || strings.EqualFold(label+"."+domain, base)
}

// maxAliasSpelling is more than the length of every spelling of an alias.
const maxAliasSpelling = 300

// AliasLabel returns the name of an alias in lower case, without a trailing dot and without the alias domain at
// its end. The result need not be a valid label; "" = the text is too long for an alias.
func (s Site) AliasLabel(name string) string {
	if len(name) > maxAliasSpelling {
		return ""
	}
	name = strings.TrimSuffix(lowerASCII(name), ".")
	if domain := strings.Trim(lowerASCII(s.AliasDomain), "."); domain != "" {
		name = strings.TrimSuffix(name, "."+domain)
	}
	return name
}

// lowerASCII lowers only A-Z. A letter such as the Kelvin sign, whose lower-case form is k, must not become part
// of a label.
func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

// SSHDestination returns the arguments with which ssh connects to the relay: the port, unless it is 22, the user
// name, unless it is "", and the host.
func (s Site) SSHDestination(user string) string {
	if user != "" {
		user += "@"
	}
	addr := url.URL{Host: s.SSHAddr}
	switch addr.Port() {
	case "":
		return user + s.SSHAddr
	case "22":
		return user + addr.Hostname()
	}
	return "-p " + addr.Port() + " " + user + addr.Hostname()
}

// URL returns the URL of a path on the base site.
func (s Site) URL(path string) string {
	return strings.TrimSuffix(s.Base.String(), "/") + path
}

// HostKey is a public host key of the SSH server. Host, type and key, separated by spaces, are a line of
// known_hosts.
type HostKey struct {
	Type        string `json:"type" doc:"such as ssh-ed25519"`
	Key         string `json:"key" doc:"base64"`
	Fingerprint string `json:"fingerprint" doc:"SHA256:…"`
}
