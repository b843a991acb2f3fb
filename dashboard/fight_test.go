package dashboard_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/dashboard"
)

// TestFightIsShown: an alias that goes to and fro says so on its owner's page.
func TestFightIsShown(t *testing.T) {
	t.Parallel()
	var log logged
	r := newFixture(t, func(o *dashboard.Options) { log.accounts = o.Accounts; o.Accounts = &log })
	r.online()
	r.send(post("/hook", "{}"))
	entry := func(ago time.Duration) relay.AuditEntry {
		return relay.AuditEntry{At: time.Now().Add(-ago), Action: "alias.takeover", Target: "hook", Detail: "from bob at 192.0.2.1:1 <b>"}
	}
	log.entries = []relay.AuditEntry{entry(time.Minute), entry(2 * time.Minute), entry(time.Hour)}
	if page := r.get("/aliases/hook", 200); strings.Contains(page, "fight") {
		t.Error("two takeovers are no fight")
	}
	log.entries = append(log.entries, entry(3*time.Minute))
	contains(t, "alias page", r.get("/aliases/hook", 200), "Two tunnels fight for this alias", "3 times", "from bob at 192.0.2.1:1 &lt;b&gt;")
}

// TestTakeoversReachTheLogThatFightsAreReadFrom: the store writes what the page looks for.
func TestTakeoversReachTheLogThatFightsAreReadFrom(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	who, err := r.s.SessionOwner(t.Context(), r.session)
	must(t, err)
	info := relay.TunnelInfo{User: "bob", Remote: netip.MustParseAddrPort("192.0.2.1:1")}
	r.s.NoteTakeover(r.alias, info, info)
	r.await("the entry", func() bool {
		entries, err := r.s.Audit(t.Context(), who, 10)
		must(t, err)
		return len(entries) > 0 && entries[0].Action == "alias.takeover" && entries[0].Target == "hook"
	})
}

// logged is a store with an audit log that a test writes.
type logged struct {
	accounts
	entries []relay.AuditEntry
}

func (l *logged) Audit(context.Context, relay.Actor, int) ([]relay.AuditEntry, error) {
	return l.entries, nil
}
