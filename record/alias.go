package record

import (
	"context"

	"relay"
)

// Alias is an alias with its tunnel and queue.
type Alias struct {
	Name           string       `json:"name"`
	URL            string       `json:"url"`
	Owner          string       `json:"owner"`
	Online         bool         `json:"online"`
	State          string       `json:"state" enum:"online,stale,offline,never"`
	Since          *Time        `json:"since" format:"date-time" doc:"of state"`
	Queued         int          `json:"queued" doc:"attempts that wait"`
	QueuedEvents   int          `json:"queuedEvents" doc:"inbound events that replay-queued would release"`
	OldestQueuedAt *Time        `json:"oldestQueuedAt" format:"date-time"`
	LastEventAt    *Time        `json:"lastEventAt" format:"date-time"`
	Tunnel         *AliasTunnel `json:"tunnel"`
	Settings       Settings     `json:"settings"`
}

// AliasTunnel is the tunnel attached to an alias.
type AliasTunnel struct {
	Client     string  `json:"client"`
	RemoteAddr string  `json:"remoteAddr"`
	User       string  `json:"user"`
	Since      Time    `json:"since" format:"date-time"`
	Target     *string `json:"target" doc:"known from relay up only"`
}

// OfAlias returns the JSON form of an alias and its status.
func OfAlias(a *relay.Alias, st relay.AliasStatus, site relay.Site) *Alias {
	out := &Alias{
		Name:           a.Name,
		URL:            site.AliasURL(a.Name),
		Owner:          a.OwnerName,
		Online:         st.State == relay.TunnelOnline,
		State:          string(st.State),
		Since:          timeOf(st.Since),
		Queued:         st.Queued,
		QueuedEvents:   st.QueuedEvents,
		OldestQueuedAt: timeOf(st.OldestQueuedAt),
		LastEventAt:    timeOf(st.LastEventAt),
		Settings:       OfSettings(a.Settings),
	}
	if st.State == "" {
		out.State = string(relay.TunnelNever)
	}
	if t := st.Tunnel; t != nil {
		out.Tunnel = &AliasTunnel{Client: t.Client, User: t.User, Since: Time{t.Since}, Target: textOf(t.Target)}
		if t.Remote.IsValid() {
			out.Tunnel.RemoteAddr = t.Remote.String()
		}
	}
	return out
}

// ReadAliases returns the JSON form of aliases, with their current status from the deliverer.
func ReadAliases(ctx context.Context, from relay.Deliverer, aliases []relay.Alias, site relay.Site) ([]Alias, error) {
	states, err := from.Status(ctx, aliases)
	if err != nil {
		return nil, err
	}
	list := make([]Alias, len(aliases))
	for i := range aliases {
		list[i] = *OfAlias(&aliases[i], states[i], site)
	}
	return list, nil
}

// Member is an account that may open the tunnel of an alias, see its events and replay them, like its
// owner.
type Member struct {
	User string `json:"user"`
}

// Released is the number of events that replay-queued released.
type Released struct {
	Alias    string `json:"alias"`
	Released int    `json:"released"`
}
