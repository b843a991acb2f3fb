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

// URL is an address on the base site.
func (s Site) URL(path string) string {
	return strings.TrimSuffix(s.Base.String(), "/") + path
}
