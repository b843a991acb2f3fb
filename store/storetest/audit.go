package storetest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/store"
)

// testAudit checks which actions the audit log records, and which accounts may read it.
func testAudit(t *testing.T, fresh func(testing.TB) store.Options) {
	b := setup(t, fresh)
	ctx := t.Context()
	id := b.capture(b.hooks, "/audited", "x", 200)
	waiting := b.capture(b.hooks, "/waiting", "x", 0)
	b.must(b.AddMember(ctx, b.alice, "hooks", "bob"))
	share, byShare := b.auditedActs(id, waiting)
	rows := b.auditRows()
	for _, want := range []string{
		"user:bob replay " + id.String() + " attempt 2", "user:alice replay-queued hooks 1 events", "user:alice cancel " + waiting.String() + " ",
		"share share.use " + share.ID + " " + id.String(), "share replay " + id.String() + " attempt 3",
		"user:alice event.remove " + waiting.String() + " of hooks",
		"user:alice alias.set hooks retention the server's -> 10d, paused off -> on", "user:alice session.add ", "ssh:bob alias.takeover hooks from alice at",
	} {
		n := 0
		for _, e := range rows {
			if strings.HasPrefix(strings.Join([]string{e.Actor, e.Action, e.Target, e.Detail}, " "), want) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d rows of: %s", n, want)
		}
	}
	b.auditOfLogins()
	_, err := b.Audit(ctx, byShare, 0)
	b.want(relay.CodeForbidden, err)
}

// auditedActs acts on two events in all ways that testAudit looks for. It returns a share, and an actor who has
// used it.
func (b *fixture) auditedActs(id, waiting relay.ID) (relay.Share, relay.Actor) {
	ctx, t := b.Context(), b
	c, err := b.BeginReplay(ctx, b.bob, id, true)
	b.must(err)
	b.ok(b.Finish(id, ended(c.N, relay.StateDelivered, 200, ""), ""))
	n, err := b.Release(ctx, b.alice, "hooks")
	if err != nil || n != 1 {
		t.Fatal(n, err)
	}
	_, err = b.Release(ctx, b.alice, "hooks") // nothing is left to release, so there is no entry
	b.must(err)
	b.must(b.Cancel(ctx, b.alice, waiting))
	share, secret, err := b.CreateShare(ctx, b.alice, id, relay.Share{})
	b.must(err)
	_, _, err = b.ShareActor(ctx, secret, false)
	b.must(err)
	who, _, err := b.ShareActor(ctx, secret, true)
	b.must(err)
	_, err = b.BeginReplay(ctx, who, id, false)
	b.must(err)
	month := 10 * 24 * time.Hour
	_, err = b.SetAlias(ctx, b.alice, "hooks", func(s *relay.Settings) error { s.Paused, s.Retention = true, &month; return nil })
	b.must(err)
	_, err = b.SetAlias(ctx, b.alice, "hooks", func(*relay.Settings) error { return nil })
	b.must(err)
	link, err := b.CreateLoginLink(ctx, b.alice, "", 0)
	b.must(err)
	_, _, err = b.UseLoginLink(ctx, link, "192.0.2.7", "browser")
	b.must(err)
	key := relay.Actor{Account: b.bob.Account, Kind: relay.ActorSSH, Name: "bob", Credential: "key_1"}
	for range 3 {
		b.NoteLogin(key, "192.0.2.8:1")
		b.NoteRefusedLogin("SHA256:unknown", "from 192.0.2.9:1 as root")
		b.NoteTakeover(b.hooks, relay.TunnelInfo{User: "alice"}, relay.TunnelInfo{Account: b.bob.Account, User: "bob"})
	}

	b.must(b.DeleteEvent(ctx, b.alice, waiting))
	b.want(relay.CodeForbidden, b.DeleteEvent(ctx, b.bob, id)) // a refused delete adds no entry
	return share, who
}

// auditRows waits until the audit log has all entries, and returns those that alice may read. There must be no
// refused login of an unknown key among them.
func (b *fixture) auditRows() (rows []relay.AuditEntry) {
	ctx, t := b.Context(), b
	var err error
	b.eventually("what nobody waits for is written", func() bool {
		rows, err = b.Audit(ctx, b.alice, 0)
		return err == nil && slices.ContainsFunc(rows, func(e relay.AuditEntry) bool { return e.Action == "alias.takeover" })
	})
	strangers := func(e relay.AuditEntry) bool { return e.Action == "login.refused" }
	if slices.ContainsFunc(rows, strangers) {
		t.Error("an account reads of a stranger's login")
	}
	all, err := b.Audit(ctx, relay.System(), 1000)
	b.must(err)
	all = slices.DeleteFunc(all, func(e relay.AuditEntry) bool { return !strangers(e) })
	if len(all) != 1 || all[0].Actor != "ssh:unknown" || all[0].Target != "SHA256:unknown" || all[0].Detail != "from 192.0.2.9:1 as root" {
		t.Errorf("a stranger's login: %+v", all)
	}
	return rows
}

// auditOfLogins checks that three logins with one key in a short time have a single entry, which the account of
// the key and admins may read.
func (b *fixture) auditOfLogins() {
	ctx, t := b.Context(), b
	logins := func(who relay.Actor) (n int) {
		rows, err := b.Audit(ctx, who, 0)
		b.must(err)
		for _, e := range rows {
			if e.Action == "login.ssh" {
				n++
			}
		}
		return n
	}
	if mine, foreign, admin := logins(b.bob), logins(b.alice), logins(b.root); mine != 1 || foreign != 0 || admin != 1 {
		t.Errorf("logins of bob: he sees %d, alice %d, an admin %d", mine, foreign, admin)
	}
}
