package dashboard

import (
	"context"
	"time"

	"relay"
	"relay/record"
)

// Two tunnels that both come back whenever they lost an alias keep it from working.
const (
	fightAction  = "alias.takeover" // as the audit log has them, once a minute for an alias
	fightWithin  = 10 * time.Minute
	fightCount   = 3
	fightEntries = 100 // of the log, that are looked at
)

// fightView is the hint that tunnels take an alias from each other.
type fightView struct{ Times, Last string }

// fight looks for takeovers in the log of the alias' owner; nil = it is quiet, or not
// this actor's to know. It never fails: the page does not need it.
func (p *pages) fight(ctx context.Context, who relay.Actor, a *relay.Alias, now time.Time) *fightView {
	if a.Owner != who.Account {
		return nil
	}
	entries, err := p.Accounts.Audit(ctx, withoutAdmin(who), fightEntries)
	if err != nil {
		p.Log.Warn("audit log not read", "alias", a.Name, "error", err)
		return nil
	}
	n, last := 0, ""
	for i := range entries {
		e := &entries[i]
		if e.Action != fightAction || e.Target != a.Name || now.Sub(e.At) > fightWithin {
			continue
		}
		if n++; n == 1 {
			last = e.Detail
		}
	}
	if n < fightCount {
		return nil
	}
	return &fightView{Times: countText(n, "time", "times"), Last: record.SafeTextMax(last, 200)}
}
