package page

import (
	"context"
	"slices"
	"time"

	"relay"
	"relay/record"
)

// TimeOf returns the time, or the zero time for nil.
func TimeOf(t *record.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// sidebarAliases is the largest number of aliases in the sidebar; the page of all aliases lists the others.
const sidebarAliases = 40

// sidebar lists the aliases of an account for the sidebar; more is the number of aliases that are left
// out. If the store does not answer, the list is empty, and the rest of the page is shown.
func (p *Pages) sidebar(ctx context.Context, current string) (list []record.Alias, more int) {
	aliases, err := Aliases(ctx)
	if more = max(0, len(aliases)-sidebarAliases); more > 0 {
		if at := slices.IndexFunc(aliases, func(a relay.Alias) bool { return a.Name == current }); at >= sidebarAliases {
			// The list always contains the alias of the page.
			aliases[sidebarAliases-1] = aliases[at]
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
