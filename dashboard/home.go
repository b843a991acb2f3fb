package dashboard

import (
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/a-h/templ"

	"relay"
)

type homeView struct {
	User    string
	Aliases []aliasView
	Connect connectView
}

type aliasView struct {
	Name, URL, State, Queued, LastEvent string
}

// connectView holds the two commands that bring a person to the first event.
type connectView struct {
	SSH, Curl string
}

func (p *pages) home(_ http.ResponseWriter, r *http.Request) (templ.Component, error) {
	who, ok, err := p.visitor(r)
	if err != nil {
		return nil, err
	}
	if !ok {
		return welcome(p.loginCommand()), nil
	}
	aliases, err := p.Accounts.Aliases(r.Context(), who)
	if err != nil {
		return nil, err
	}
	status, err := p.Deliver.Status(r.Context(), aliases)
	if err != nil {
		return nil, err
	}
	v := homeView{User: who.AccountName, Connect: p.connect(aliases)}
	for i, a := range aliases {
		v.Aliases = append(v.Aliases, p.aliasView(a, status[i]))
	}
	return home(v), nil
}

func (p *pages) aliasView(a relay.Alias, st relay.AliasStatus) aliasView {
	v := aliasView{Name: a.Name, URL: p.Site.AliasURL(a.Name), State: string(st.State), LastEvent: "none yet"}
	if st.Queued > 0 {
		v.Queued = fmt.Sprintf("%d queued", st.Queued)
	}
	if !st.LastEventAt.IsZero() {
		v.LastEvent = st.LastEventAt.UTC().Format(time.DateTime) + " UTC"
	}
	return v
}

func (p *pages) connect(aliases []relay.Alias) connectView {
	name := "stripe-dev"
	if len(aliases) > 0 {
		name = aliases[0].Name
	}
	return connectView{
		SSH:  fmt.Sprintf("ssh -N -R %s:80:localhost:3000 %s", name, p.sshTarget()),
		Curl: fmt.Sprintf("curl -d '{\"hello\":\"relay\"}' %s/hook", p.Site.AliasURL(name)),
	}
}

func (p *pages) sshTarget() string {
	host, port, err := net.SplitHostPort(p.Site.SSHAddr)
	if err != nil || port == "22" {
		return host
	}
	return "-p " + port + " " + host
}

func (p *pages) loginCommand() string { return "ssh " + p.sshTarget() + " login" }
