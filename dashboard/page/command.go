package page

import (
	"net"
	"net/netip"
	"strings"

	"relay"
)

// Connect holds the two commands that a user needs for the first event, and the SSH host with its key, which
// ssh asks about.
type Connect struct {
	SSH, Curl     string
	Host, HostKey string
}

// Connect returns the commands for the first alias. Without an alias they are for the name that the
// documentation uses, because a tunnel for a free name makes the alias.
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

// TunnelCommand returns the command that opens the tunnel of an alias with plain ssh, for an account.
func (p *Pages) TunnelCommand(user, alias string) string {
	return "ssh -N -R " + alias + ":80:localhost:3000 " + p.sshTargetFor(user)
}

// CurlCommand returns a command that sends a first request. Only localhost and its subdomains resolve
// everywhere without DNS. With another alias domain on loopback, the command therefore gives curl the address
// 127.0.0.1 (--resolve).
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

// sshTargetFor returns the arguments with which ssh reaches this relay as an account.
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

// LoginCommand returns the command that prints a login link.
func (p *Pages) LoginCommand() string { return "ssh " + p.sshTargetFor("") + " login" }
