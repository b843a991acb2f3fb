package page

import (
	"net"
	"net/netip"
	"strings"

	"relay"
)

// Connect holds the two commands that bring a person to the first event.
type Connect struct {
	SSH, Curl     string
	Host, HostKey string
}

// Connect shows the first alias, or the name that the documentation uses: forwarding
// a free name makes it one's own.
func (p *Pages) Connect(who relay.Actor, aliases []relay.Alias) Connect {
	name := "stripe-dev"
	if len(aliases) > 0 {
		name = aliases[0].Name
	}
	host, _, _ := net.SplitHostPort(p.Site.SSHAddr)
	return Connect{
		SSH: p.TunnelCommand(who.AccountName, name), Curl: p.CurlCommand(name),
		Host: host, HostKey: p.HostKey,
	}
}

// TunnelCommand brings an alias online by plain ssh, for the account user.
func (p *Pages) TunnelCommand(user, alias string) string {
	return "ssh -N -R " + alias + ":80:localhost:3000 " + p.sshTargetFor(user)
}

// CurlCommand returns a command that sends a first request. Only localhost and its subdomains resolve
// everywhere without DNS, so another domain on loopback is pinned to an address.
func (p *Pages) CurlCommand(alias string) string {
	command := `curl -d '{"hello":"relay"}' `
	domain := p.Site.AliasDomain
	_, notName := netip.ParseAddr(domain)
	if p.Site.Loopback && notName != nil && domain != "localhost" && !strings.HasSuffix(domain, ".localhost") {
		port := p.Site.Base.Port()
		if port == "" {
			port = map[bool]string{true: "443", false: "80"}[p.Secure()]
		}
		command += "--resolve " + alias + "." + domain + ":" + port + ":127.0.0.1 "
	}
	return command + p.Site.AliasURL(alias) + "/hook"
}

// sshTargetFor returns what ssh is told to reach this relay as the account user.
func (p *Pages) sshTargetFor(user string) string {
	host, port, err := net.SplitHostPort(p.Site.SSHAddr)
	var words []string
	if err == nil && port != "22" {
		words = append(words, "-p", port)
	}
	if p.SSHFlags != nil {
		if flags := p.SSHFlags(user); flags != "" {
			words = append(words, flags)
		}
	}
	return strings.Join(append(words, host), " ")
}

// LoginCommand prints a link to log in with.
func (p *Pages) LoginCommand() string { return "ssh " + p.sshTargetFor("") + " login" }
