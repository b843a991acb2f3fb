package relay

import (
	"net"
	"net/url"
	"strings"
)

// Site is where the relay is reached: what printed addresses are made of.
type Site struct {
	Base        url.URL // dashboard and API, without path
	AliasDomain string
	SSHAddr     string // host:port that people dial
	Loopback    bool   // every listener is on loopback
}

// AliasURL is the public address of an alias; it takes scheme and port of the base
// URL.
func (s Site) AliasURL(alias string) string {
	host := alias + "." + s.AliasDomain
	if p := s.Base.Port(); p != "" {
		host = net.JoinHostPort(host, p)
	}
	return s.Base.Scheme + "://" + host
}

// Reserved tells whether a valid label may not become an alias here: a reserved
// one, or the one that the base host takes.
func (s Site) Reserved(label string) bool {
	base := strings.TrimSuffix(s.Base.Hostname(), ".")
	domain := strings.Trim(s.AliasDomain, ".")
	return ReservedLabel(label) || strings.EqualFold(label+"."+domain, base)
}

// URL is an address on the base site.
func (s Site) URL(path string) string {
	return strings.TrimSuffix(s.Base.String(), "/") + path
}

// HostKey is a public key by which the relay proves itself to SSH clients.
type HostKey struct {
	Type        string // such as ssh-ed25519
	Key         string // the key in base64, as it follows the type in a known_hosts line
	Fingerprint string // SHA256:…
}
