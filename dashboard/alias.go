package dashboard

import (
	"context"
	"net/http"
	"slices"
	"time"

	"relay"
	"relay/record"
)

// aliasHead is the state of an alias, its tunnel and its queue.
type aliasHead struct {
	record.Alias
	Released                                int       // events released by the page before; 0 = none
	Sending                                 []rowView // deliveries under way while others wait
	SSHCommand, RelayUpCommand, CurlCommand string    // commands to type: ssh, relay up, a first request
}

func (p *pages) aliasHead(r *http.Request, a *relay.Alias) (aliasHead, error) {
	list, err := p.aliasRecords(r.Context(), []relay.Alias{*a})
	if err != nil {
		return aliasHead{}, err
	}
	return p.aliasHeadOf(r.Context(), list[0]), nil
}

// aliasRecords reads how aliases stand.
func (p *pages) aliasRecords(ctx context.Context, aliases []relay.Alias) ([]record.Alias, error) {
	status, err := p.Deliver.Status(ctx, aliases)
	if err != nil {
		return nil, err
	}
	list := make([]record.Alias, len(aliases))
	for i := range aliases {
		list[i] = *record.OfAlias(&aliases[i], status[i], p.Site)
	}
	return list, nil
}

// aliasHeadOf is also used by the live updates, which bring alias records.
func (p *pages) aliasHeadOf(ctx context.Context, a record.Alias) aliasHead {
	h := aliasHead{Alias: a, RelayUpCommand: "relay up --port 3000 --alias " + a.Name, CurlCommand: p.curlCommand(a.Name)}
	if !a.Online {
		h.SSHCommand = p.tunnelCommand(viewerOf(ctx).User, a.Name)
	}
	return h
}

// TunnelText names client, user and address of the tunnel.
func (a *aliasHead) TunnelText() string {
	if a.Tunnel == nil {
		return ""
	}
	text := record.SafeTextMax(a.Tunnel.Client+" of "+a.Tunnel.User+" from "+a.Tunnel.RemoteAddr, 200)
	if a.Tunnel.Target != nil {
		text += " to " + record.SafeTextMax(*a.Tunnel.Target, 200)
	}
	return text
}

// timeOf is the zero time for null.
func timeOf(t *record.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// sidebarAliases is how many aliases the sidebar shows; the page of all aliases has the
// others.
const sidebarAliases = 40

// sidebar lists the aliases of an account beside every page; more counts those that are
// left out. A store that does not answer leaves the rest of the page alone.
func (p *pages) sidebar(ctx context.Context, who relay.Actor, current string) (list []record.Alias, more int) {
	aliases, err := p.Accounts.Aliases(ctx, who)
	if more = max(0, len(aliases)-sidebarAliases); more > 0 {
		if at := slices.IndexFunc(aliases, func(a relay.Alias) bool { return a.Name == current }); at >= sidebarAliases {
			aliases[sidebarAliases-1] = aliases[at] // the current one is always there
		}
		aliases = aliases[:sidebarAliases]
	}
	if err == nil {
		list, err = p.aliasRecords(ctx, aliases)
	}
	if err != nil {
		p.Log.Warn("aliases of the sidebar not read", "error", err)
		return nil, 0
	}
	return list, more
}
