package dashboard

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/a-h/templ"

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
	list, err := record.ReadAliases(r.Context(), p.Deliver, []relay.Alias{*a}, p.Site)
	if err != nil {
		return aliasHead{}, err
	}
	return p.aliasHeadOf(r.Context(), list[0]), nil
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
		list, err = record.ReadAliases(ctx, p.Deliver, aliases, p.Site)
	}
	if err != nil {
		p.Log.Warn("aliases of the sidebar not read", "error", err)
		return nil, 0
	}
	return list, more
}

// shownSending is how many events a page names that are being sent while a queue
// drains.
const shownSending = 3

// WaitingCount counts the deliveries that go out by themselves.
func (a *aliasHead) WaitingCount() int { return max(0, a.Queued-a.QueuedEvents) }

// SentCount counts how many of the events released last are out.
func (a *aliasHead) SentCount() int { return max(0, a.Released-a.WaitingCount()) }

// QueueText says how the queue goes on.
func (a *aliasHead) QueueText() string {
	waiting := record.Count(a.WaitingCount(), "queued delivery", "queued deliveries")
	switch {
	case a.WaitingCount() == 0:
		return "The queue is empty."
	case a.Settings.Paused:
		return waiting + ": paused."
	case a.Online:
		return waiting + ": sent one at a time, in order."
	default:
		return waiting + ": sent when the tunnel is back online."
	}
}

// released is how many events the page let go before, as its address says; 0 = none.
func released(r *http.Request) int { return max(0, numberOf(r, "released")) }

// numberOf reads a count from an address; -1 = there is none.
func numberOf(r *http.Request, name string) int {
	n, err := strconv.Atoi(r.URL.Query().Get(name))
	if err != nil || n < 0 || n > 1_000_000 {
		return -1
	}
	return n
}

// addQueueProgress adds how far the queue is on its way out. Without the list of what is being
// sent the rest of the page still holds.
func (p *pages) addQueueProgress(ctx context.Context, who relay.Actor, a *aliasHead, released int) {
	a.Released, a.Sending = released, nil
	if !a.Online || a.WaitingCount() == 0 {
		return
	}
	page, err := p.Events.Events(ctx, who, relay.Filter{
		Alias: a.Name, State: relay.StateDelivering, Limit: shownSending, Budget: 80 * time.Millisecond, // of the time of a page, whose list follows
	})
	if err != nil {
		p.Log.Warn("deliveries not read", "alias", a.Name, "error", err)
		return
	}
	for i := range page.Events {
		a.Sending = append(a.Sending, p.row(&page.Events[i]))
	}
}

func releasedNotice(r *http.Request, a aliasHead) string {
	if n := numberOf(r, "replayed-now"); n > 0 {
		return record.Count(n, "event is being replayed", "events are being replayed") + "."
	}
	n := numberOf(r, "released")
	text := record.Count(n, "event was released", "events were released")
	switch {
	case n < 0:
		return ""
	case n > 0 && !a.Online:
		return text + "; they are delivered when the tunnel is back online."
	}
	return text + "."
}

// confirmRelease shows what "replay all queued" would do.
func (p *pages) confirmRelease(_ http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	head, err := p.aliasHead(r, a)
	if err != nil {
		return nil, err
	}
	page, err := p.Events.Events(r.Context(), who, relay.Filter{Alias: a.Name, State: relay.StateQueued, Limit: streamRows})
	if err != nil {
		return nil, err
	}
	var newest time.Time
	if i := slices.IndexFunc(page.Events, func(e relay.Event) bool { return e.AttemptCount == 1 }); i >= 0 {
		newest = page.Events[i].ReceivedAt
	}
	return releasePage(head, newest), nil
}

func releaseButton(n int) string { return "Replay all queued (" + strconv.Itoa(n) + ")" }

// release releases the queued inbound events of an alias.
func (p *pages) release(w http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	if err := p.Limits.Replay(who); err != nil {
		return nil, err
	}
	n, err := p.Deliver.Release(r.Context(), who, a.Name)
	return seeOther(w, r, err, withQuery(aliasPath(a.Name), url.Values{"released": {strconv.Itoa(n)}}))
}
