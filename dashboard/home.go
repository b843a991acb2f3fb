package dashboard

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/a-h/templ"

	"relay"
	"relay/record"
)

// homeView is the list of aliases, with the way to the first event.
type homeView struct {
	User    string
	Aliases []record.Alias
	Create  form
	Connect connectView
	Done    string
	Refused []relay.RefusedForward // lately: ssh -N shows its user no reason
}

// connectView holds the two commands that bring a person to the first event.
type connectView struct {
	SSH, Curl     string
	Host, HostKey string
}

func (p *pages) home(r *http.Request, who relay.Actor, create form) (templ.Component, error) {
	aliases, err := p.Accounts.Aliases(r.Context(), who)
	if err != nil {
		return nil, err
	}
	v := homeView{User: who.AccountName, Create: create.named("alias"), Connect: p.connect(who, aliases), Done: successText(r)}
	if v.Aliases, err = record.ReadAliases(r.Context(), p.Deliver, aliases, p.Site); err != nil {
		return nil, err
	}
	if v.Refused, err = p.Accounts.RefusedForwards(r.Context(), who.Account); err != nil {
		return nil, err
	}
	if partial(r) {
		return homeAliases(v), nil
	}
	return homePage(v), nil
}

// refusalSource says where refused tunnels were asked for from, and how often.
func refusalSource(x relay.RefusedForward) string {
	from := " from " + x.Remote.Addr().String()
	if x.Times > 1 {
		from += ", " + record.Count(x.Times, "time", "times")
	}
	return from
}

// createAlias makes an alias and goes on to its page, which says how to connect.
func (p *pages) createAlias(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
	f := posted("alias", r)
	name := strings.ToLower(field(r, "name"))
	var err error
	if relay.ValidLabel(name) && p.Site.Reserved(name) {
		f.errors["name"] = "this name is reserved; choose another one"
	} else {
		_, err = p.Accounts.CreateAlias(r.Context(), who, name, "")
	}
	return formPage(p.home).finish(w, r, who, f, err, "name", aliasPath(name))
}

// connect shows the first alias, or the name that the documentation uses: forwarding
// a free name makes it one's own.
func (p *pages) connect(who relay.Actor, aliases []relay.Alias) connectView {
	name := "stripe-dev"
	if len(aliases) > 0 {
		name = aliases[0].Name
	}
	host, _, _ := net.SplitHostPort(p.Site.SSHAddr)
	return connectView{
		SSH: p.tunnelCommand(who.AccountName, name), Curl: p.curlCommand(name),
		Host: host, HostKey: p.HostKey,
	}
}

// tunnelCommand brings an alias online by plain ssh, for the account user.
func (p *pages) tunnelCommand(user, alias string) string {
	return "ssh -N -R " + alias + ":80:localhost:3000 " + p.sshTargetFor(user)
}

// curlCommand sends a first request. Only localhost and what is below it resolves
// everywhere without DNS, so another domain on loopback is pinned.
func (p *pages) curlCommand(alias string) string {
	command := `curl -d '{"hello":"relay"}' `
	domain := p.Site.AliasDomain
	_, notName := netip.ParseAddr(domain)
	if p.Site.Loopback && notName != nil && domain != "localhost" && !strings.HasSuffix(domain, ".localhost") {
		port := p.Site.Base.Port()
		if port == "" {
			port = map[bool]string{true: "443", false: "80"}[p.secure()]
		}
		command += "--resolve " + alias + "." + domain + ":" + port + ":127.0.0.1 "
	}
	return command + p.Site.AliasURL(alias) + "/hook"
}

// sshTargetFor is what ssh is told to reach this relay as the account user.
func (p *pages) sshTargetFor(user string) string {
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

func (p *pages) loginCommand() string { return "ssh " + p.sshTargetFor("") + " login" }
