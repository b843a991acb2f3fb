package alias

import (
	"context"
	"net/http"

	"relay"
	"relay/dashboard/page"
	"relay/record"
)

// Head is the state of an alias, its tunnel and its queue.
type Head struct {
	record.Alias
	Released                                int    // number of events that the user has just released, from the address of the page; 0 = none
	Sending                                 []Row  // deliveries in progress while other events wait
	SSHCommand, RelayUpCommand, CurlCommand string // commands for the user to type: ssh, relay up, and a first request
}

// Head reads the state of an alias for the head of its pages.
func (p Pages) Head(r *http.Request, a *relay.Alias) (Head, error) {
	list, err := record.ReadAliases(r.Context(), p.Deliver, []relay.Alias{*a}, p.Site)
	if err != nil {
		return Head{}, err
	}
	return p.aliasHeadOf(r.Context(), list[0]), nil
}

// aliasHeadOf returns the state of an alias from its record. Live updates contain such records and use
// this function, too.
func (p Pages) aliasHeadOf(ctx context.Context, a record.Alias) Head {
	h := Head{Alias: a, RelayUpCommand: "relay up --port 3000 --alias " + a.Name, CurlCommand: p.CurlCommand(a.Name)}
	if !a.Online {
		h.SSHCommand = p.TunnelCommand(page.ViewerOf(ctx).User, a.Name)
	}
	return h
}

// sinceText returns the words that the page shows before the time Since.
func (a *Head) sinceText() string {
	if a.Online {
		return "online since "
	}
	return "offline since "
}

// TunnelText returns the client, user and address of the tunnel.
func (a *Head) TunnelText() string {
	if a.Tunnel == nil {
		return ""
	}
	text := record.SafeTextMax(a.Tunnel.Client+" of "+a.Tunnel.User+" from "+a.Tunnel.RemoteAddr, 200)
	if a.Tunnel.Target != nil {
		text += " to " + record.SafeTextMax(*a.Tunnel.Target, 200)
	}
	return text
}
