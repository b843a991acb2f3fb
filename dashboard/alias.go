package dashboard

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"relay"
	"relay/record"
)

// aliasHead is the state of an alias, its tunnel and its queue.
type aliasHead struct {
	Name, URL, State                        string
	Since, Oldest                           stamp
	Online, Paused                          bool
	TunnelText                              string // client, user and address of the tunnel
	Queued, QueuedEvents                    int
	Released                                int       // events released by the page before; 0 = none
	Sending                                 []rowView // deliveries under way while others wait
	SSHCommand, RelayUpCommand, CurlCommand string    // commands to type: ssh, relay up, a first request
}

func (p *pages) aliasHead(r *http.Request, a *relay.Alias) (aliasHead, error) {
	st, err := p.Deliver.Status(r.Context(), []relay.Alias{*a})
	if err != nil {
		return aliasHead{}, err
	}
	if len(st) != 1 {
		return aliasHead{}, relay.ErrNotFound
	}
	return p.aliasHeadOf(r.Context(), record.OfAlias(a, st[0], p.Site)), nil
}

// aliasHeadOf is also used by the live updates, which bring alias records.
func (p *pages) aliasHeadOf(ctx context.Context, a *record.Alias) aliasHead {
	h := aliasHead{
		Name: a.Name, URL: a.URL, State: a.State, Online: a.Online, Paused: a.Settings.Paused,
		Queued: a.Queued, QueuedEvents: a.QueuedEvents,
		RelayUpCommand: "relay up --port 3000 --alias " + a.Name,
		CurlCommand:    p.curlCommand(a.Name),
	}
	if !a.Online {
		h.SSHCommand = p.tunnelCommand(viewerOf(ctx).User, a.Name)
	}
	if a.Since != nil {
		h.Since = exactStamp(a.Since.Time)
	}
	if a.OldestQueuedAt != nil {
		h.Oldest = exactStamp(a.OldestQueuedAt.Time)
	}
	if a.Tunnel != nil {
		h.TunnelText = record.SafeTextMax(a.Tunnel.Client+" of "+a.Tunnel.User+" from "+a.Tunnel.RemoteAddr, 200)
		if a.Tunnel.Target != nil {
			h.TunnelText += " to " + record.SafeTextMax(*a.Tunnel.Target, 200)
		}
	}
	return h
}

// sidebarAliases is how many aliases the sidebar shows; the page of all aliases has the
// others.
const sidebarAliases = 40

// sideAlias is an alias in the sidebar.
type sideAlias struct {
	Name, State string
	Queued      int
	Paused      bool
}

// sidebar lists the aliases of an account beside every page; more counts those that are
// left out. A store that does not answer leaves the rest of the page alone.
func (p *pages) sidebar(ctx context.Context, who relay.Actor, current string) (list []sideAlias, more int) {
	aliases, err := p.Accounts.Aliases(ctx, who)
	if len(aliases) > sidebarAliases {
		more = len(aliases) - sidebarAliases
		slices.SortStableFunc(aliases, func(a, b relay.Alias) int { // the current one stays
			return map[bool]int{true: -1}[a.Name == current] - map[bool]int{true: -1}[b.Name == current]
		})
		aliases = aliases[:sidebarAliases]
		slices.SortFunc(aliases, func(a, b relay.Alias) int { return strings.Compare(a.Name, b.Name) })
	}
	var status []relay.AliasStatus
	if err == nil {
		status, err = p.Deliver.Status(ctx, aliases)
	}
	if err != nil || len(status) != len(aliases) {
		p.Log.Warn("aliases of the sidebar not read", "error", err)
		return nil, 0
	}
	for i := range aliases {
		s := record.OfAlias(&aliases[i], status[i], p.Site)
		list = append(list, sideAliasOf(s))
	}
	return list, more
}

func sideAliasOf(a *record.Alias) sideAlias {
	return sideAlias{Name: a.Name, State: a.State, Queued: a.Queued, Paused: a.Settings.Paused}
}
