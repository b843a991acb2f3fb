package page

import (
	"context"
	"slices"
	"time"

	"relay"
	"relay/record"
)

// TimeOf returns the zero time for null.
func TimeOf(t *record.Time) time.Time {
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
func (p *Pages) sidebar(ctx context.Context, current string) (list []record.Alias, more int) {
	aliases, err := Aliases(ctx)
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
		p.Log.Warn("cannot read the aliases of the sidebar", "err", err)
		return nil, 0
	}
	return list, more
}
