package relay

import (
	"net"
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
		host = net.JoinHostPort(host, p)
	}
	return s.Base.Scheme + "://" + host
}

// Reserved reports whether a valid label is forbidden as the name of an alias on this
// site, because it is reserved everywhere or would be the base host.
func (s Site) Reserved(label string) bool {
	base := strings.TrimSuffix(s.Base.Hostname(), ".")
	domain := strings.Trim(s.AliasDomain, ".")
	return ReservedLabel(label) || strings.EqualFold(label+"."+domain, base)
}

// URL returns the URL of a path on the base site.
func (s Site) URL(path string) string {
	return strings.TrimSuffix(s.Base.String(), "/") + path
}

// HostKey is a public host key of the SSH server.
type HostKey struct {
	Type        string // such as ssh-ed25519
	Key         string // the key in base64, as it follows the type in a known_hosts line
	Fingerprint string // SHA256:…
}
