package server

import (
	"net/netip"
	"strings"

	"relay"
	"relay/wire"
)

// routeKind is the kind of handler that answers for a host.
type routeKind uint8

const (
	hostUnknown routeKind = iota // none of the hosts below: 421, except for health checks
	hostNested                   // more than one label below the alias domain: 421
	hostAlias                    // one label below the alias domain
	hostBase                     // base site
	hostInvalid                  // not a host (RFC 9112, section 3.2): 400
)

// route is the result of routing a host; label is the lower-case label of a hostAlias.
type route struct {
	kind  routeKind
	label string
}

// hosts finds the route of a host. The names in it are in lower case and without a trailing dot.
type hosts struct {
	base     string
	domain   string
	loopback bool
}

func newHosts(site relay.Site) hosts {
	return hosts{
		base:     plainName(site.Base.Hostname()),
		domain:   plainName(site.AliasDomain),
		loopback: site.Loopback,
	}
}

// find routes the value of a Host line, in any letter case, with or without port and trailing dot. If the
// base host also has the form of an alias host, find returns hostBase.
func (h hosts) find(value string) route {
	name, ok := splitHost(value)
	if !ok {
		return route{kind: hostInvalid}
	}
	return h.findName(name)
}

// findName routes a name that splitHost returned.
func (h hosts) findName(name string) route {
	switch {
	case name == "":
		return route{}
	case name == h.base:
		return route{kind: hostBase}
	case h.loopback && (name == "localhost" || name == "127.0.0.1" || name == "::1"):
		return route{kind: hostBase}
	}
	label, ok := strings.CutSuffix(name, "."+h.domain)
	switch {
	case !ok || h.domain == "":
		return route{}
	case label == "" || strings.Contains(label, "."):
		return route{kind: hostNested}
	}
	return route{kind: hostAlias, label: label}
}

// plainName returns a configured host in the form that findName compares.
func plainName(name string) string {
	return strings.TrimSuffix(strings.ToLower(name), ".")
}

// splitHost returns the name in a Host value (RFC 9110, section 7.2: uri-host, optional port): in lower case,
// without one trailing dot, and an IPv6 literal without brackets. ok is false for an invalid value, such as
// one with user information or a path. An empty value is valid and has an empty name.
func splitHost(value string) (name string, ok bool) {
	if value != "" && !wire.ValidHost([]byte(value)) {
		return "", false
	}
	if rest, bracket := strings.CutPrefix(value, "["); bracket {
		literal, _, _ := strings.Cut(rest, "]")
		ip, err := netip.ParseAddr(literal)
		return ip.String(), err == nil && ip.Is6()
	}
	name, _, _ = strings.Cut(value, ":")
	return plainName(name), true
}
