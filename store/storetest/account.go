package storetest

import (
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"relay"
	"relay/store"
)

func testAccounts(t *testing.T, fresh func(testing.TB) store.Options) {
	b := setup(t, fresh)
	ctx := t.Context()
	for _, name := range []string{"", "Alice", "a b", "-x", "x\x00", "über"} {
		_, err := b.CreateAccount(ctx, system, name, false)
		b.want(relay.CodeValidationFailed, err)
	}
	_, err := b.CreateAccount(ctx, system, "alice", false)
	b.want(relay.CodeConflict, err)
	_, err = b.CreateAccount(ctx, b.alice, "carol", false)
	b.want(relay.CodeForbidden, err)
	_, err = b.CreateAccount(ctx, b.root, "first.last_2", false)
	b.must(err)
	for who, want := range map[*relay.Actor]int{&b.root: 4, &b.alice: 1, &system: 4} {
		list, err := b.Accounts(ctx, *who)
		b.must(err)
		if len(list) != want {
			t.Errorf("%s sees %d accounts, want %d", who.Name, len(list), want)
		}
	}
	a, err := b.AccountByName(ctx, "root")
	if err != nil || !a.Admin || a.CreatedAt.IsZero() {
		t.Errorf("root is %+v, %v", a, err)
	}
	b.removeAccount()
	b.members()

	entries, err := b.Audit(ctx, b.bob, 0)
	b.must(err)
	for _, e := range entries {
		if e.Actor != "user:bob" && e.Target != "bob" && e.Detail != "bob" && e.Target != "other" {
			t.Errorf("bob sees %+v", e)
		}
	}
	all, err := b.Audit(ctx, b.root, 3)
	if err != nil || len(all) != 3 || all[0].ID < all[1].ID || all[0].At.IsZero() {
		t.Errorf("audit of the admin: %+v, %v", all, err)
	}
}

// removeAccount checks that a removed account can do nothing more. Its aliases wait for an admin to
// transfer them, and a new account with the same name does not get them.
func (b *fixture) removeAccount() {
	ctx := b.Context()
	_, err := b.CreateAccount(ctx, system, "dave", false)
	b.must(err)
	_, err = b.CreateAlias(ctx, system, "daves", "dave")
	b.must(err)
	token, secret, err := b.CreateToken(ctx, system, relay.Token{AccountName: "dave"})
	b.must(err)
	who, err := b.TokenOwner(ctx, secret)
	b.must(err)
	b.want(relay.CodeForbidden, b.RemoveAccount(ctx, b.alice, "dave"))
	b.must(b.RemoveAccount(ctx, b.root, "dave"))
	b.want(relay.CodeNotFound, b.RemoveAccount(ctx, b.root, "dave"))
	b.heard("account removed", func(c relay.Change) bool { return c.Kind == relay.ChangeAccount && c.Account == token.Account })
	_, err = b.TokenOwner(ctx, secret)
	b.want(relay.CodeNotFound, err)
	b.want(relay.CodeNotFound, b.StillValid(ctx, who))
	if list, err := b.Store.Aliases(ctx, who); err != nil || len(list) != 0 {
		b.Errorf("a removed account sees %v, %v", list, err)
	}
	_, err = b.CreateAccount(ctx, system, "dave", false)
	b.must(err)
	_, err = b.TransferAlias(ctx, b.bob, "daves", "bob")
	b.want(relay.CodeNotFound, err)
	orphans, err := b.UnownedAliases(ctx, b.root)
	if err != nil || len(orphans) != 1 || orphans[0].Name != "daves" {
		b.Errorf("orphans %+v, %v", orphans, err)
	}
	a, err := b.TransferAlias(ctx, b.root, "daves", "alice")
	if err != nil || a.OwnerName != "alice" {
		b.Errorf("transfer: %+v, %v", a, err)
	}
	b.must(b.SaveSearch(ctx, b.alice, "daves", relay.SavedSearch{Name: "errors", Words: "status:5xx"}))
	a, err = b.TransferAlias(ctx, b.alice, "daves", "alice")
	if err != nil || a.OwnerName != "alice" {
		b.Errorf("transfer to its owner: %+v, %v", a, err)
	}
	if list, err := b.SavedSearches(ctx, b.alice, "daves"); err != nil || len(list) != 1 {
		b.Errorf("searches after a transfer to the owner: %v, %v", list, err)
	}
	b.must(b.RemoveAlias(ctx, b.alice, "daves"))
}

func (b *fixture) members() {
	ctx := b.Context()
	b.want(relay.CodeNotFound, b.AddMember(ctx, b.bob, "hooks", "bob"))
	b.want(relay.CodeNotFound, b.AddMember(ctx, b.alice, "hooks", "nobody"))
	b.want(relay.CodeConflict, b.AddMember(ctx, b.alice, "hooks", "alice"))
	b.must(b.AddMember(ctx, b.alice, "hooks", "bob"))
	b.must(b.AddMember(ctx, b.alice, "hooks", "bob"))
	if names, err := b.Members(ctx, b.bob, "hooks"); err != nil || fmt.Sprint(names) != "[bob]" {
		b.Errorf("members %v, %v", names, err)
	}
	id := b.capture(b.hooks, "/m", "", 200)
	_, secret, err := b.CreateToken(ctx, b.bob, relay.Token{Alias: "hooks"})
	b.must(err)
	_, _, err = b.CreateShare(ctx, b.bob, id, relay.Share{})
	b.want(relay.CodeForbidden, err)
	b.want(relay.CodeForbidden, b.DeleteEvent(ctx, b.bob, id))
	_, err = b.BeginReplay(ctx, b.bob, id, false)
	b.must(err)
	b.must(b.Cancel(ctx, b.bob, id))
	b.want(relay.CodeForbidden, b.RemoveAlias(ctx, b.bob, "hooks"))
	b.want(relay.CodeForbidden, b.AddMember(ctx, b.bob, "hooks", "root"))
	_, err = b.SetAlias(ctx, b.bob, "hooks", func(*relay.Settings) error { return nil })
	b.want(relay.CodeForbidden, err)
	b.must(b.RemoveMember(ctx, b.bob, "hooks", "bob")) // a member may remove itself; the owner need not do it
	b.want(relay.CodeNotFound, b.RemoveMember(ctx, b.alice, "hooks", "bob"))
	b.heard("member removed", func(c relay.Change) bool { return c.Kind == relay.ChangeAccount && c.Account == b.bob.Account })
	_, err = b.Event(ctx, b.bob, id, 0)
	b.want(relay.CodeNotFound, err)
	_, err = b.TokenOwner(ctx, secret)
	b.want(relay.CodeNotFound, err)
}

func testAliases(t *testing.T, fresh func(testing.TB) store.Options) {
	b := setup(t, fresh, func(o *store.Options) { o.MaxAliases = 3 })
	ctx := t.Context()
	for _, name := range []string{"", "UP", "-a", "a_b", "www", "xn--a", "localhost"} {
		_, err := b.CreateAlias(ctx, b.alice, name, "")
		b.want(relay.CodeValidationFailed, err)
		_, err = b.ClaimAlias(ctx, b.alice, name)
		b.want(relay.CodeValidationFailed, err)
	}
	_, err := b.CreateAlias(ctx, b.alice, "other", "")
	b.want(relay.CodeConflict, err)
	_, err = b.CreateAlias(ctx, b.alice, "mine", "bob")
	b.want(relay.CodeForbidden, err)
	_, err = b.ClaimAlias(ctx, b.alice, "other")
	b.want(relay.CodeNotFound, err)
	a, err := b.ClaimAlias(ctx, b.alice, "claimed")
	if err != nil || a.Owner != b.alice.Account || !reflect.DeepEqual(a.Settings, relay.DefaultSettings()) {
		t.Errorf("claimed %+v, %v", a, err)
	}
	b.heard("alias claimed", func(c relay.Change) bool { return c.Kind == relay.ChangeAlias && c.Alias == a.ID })
	again, err := b.ClaimAlias(ctx, b.alice, "claimed")
	if err != nil || again.ID != a.ID {
		t.Errorf("claimed again %+v, %v", again, err)
	}
	b.race()
	_, err = b.CreateAlias(ctx, b.alice, "third", "")
	b.must(err)
	_, err = b.ClaimAlias(ctx, b.alice, "fourth")
	b.want(relay.CodeConflict, err)
	b.settings()
	b.removeAlias()

	b.tunnels()
	b.opt.AliasClaim = false
	b.reopen()
	_, err = b.ClaimAlias(ctx, b.bob, "free")
	b.want(relay.CodeNotFound, err)
}

// race checks that, if two accounts claim a name at once, one of them gets it, and all claims of that account
// succeed.
func (b *fixture) race() {
	var wg sync.WaitGroup
	got := make(chan int64, 8)
	for i := range 8 {
		who := b.root
		if i%2 == 0 {
			who = b.bob
		}
		wg.Go(func() {
			if a, err := b.ClaimAlias(b.Context(), who, "raced"); err == nil {
				got <- a.Owner
			} else {
				b.want(relay.CodeNotFound, err)
			}
		})
	}
	wg.Wait()
	close(got)
	if len(got) != 4 {
		b.Errorf("%d of the 4 claims of one account got the alias", len(got))
	}
	first := <-got
	for owner := range got {
		if owner != first {
			b.Error("two accounts own one alias")
		}
	}
	if first == 0 {
		b.Error("nobody got the alias")
	}
}

func (b *fixture) settings() {
	ctx := b.Context()
	long, month := time.Hour, 30*24*time.Hour
	want := relay.Settings{
		OfflineStatus: 503, AutoDeliver: true, HostHeader: "local:3000", Forwarded: true, FreshConnections: true,
		ResponseTimeout: &long, Retention: &month, Paused: true, Handshakes: []string{"slack", "x"},
		Answers: []relay.OfflineAnswer{{Method: new("POST"), PathPrefix: "/", Status: 200, Headers: [][2]string{{"X-A", "b"}}, Body: relay.AnswerBody{Encoding: "utf8", Data: "é"}}},
	}
	_, err := b.SetAlias(ctx, b.alice, "hooks", func(s *relay.Settings) error { *s = want; return nil })
	b.must(err)
	a, err := b.Alias(ctx, b.alice, "hooks")
	b.must(err)
	if !reflect.DeepEqual(a.Settings, want) {
		b.Errorf("settings %+v", a.Settings)
	}
	for _, edit := range []func(*relay.Settings){
		func(s *relay.Settings) { s.OfflineStatus = 99 }, func(s *relay.Settings) { s.HostHeader = "a\r\nb" },
		func(s *relay.Settings) { s.HostHeader = "" }, func(s *relay.Settings) { d := 2 * time.Hour; s.ResponseTimeout = &d },
		func(s *relay.Settings) { d := time.Duration(0); s.Retention = &d },
		func(s *relay.Settings) { s.Handshakes = []string{"no such"} },
		func(s *relay.Settings) { s.Answers = []relay.OfflineAnswer{{PathPrefix: "/", Status: 99}} },
	} {
		_, err := b.SetAlias(ctx, b.alice, "hooks", func(s *relay.Settings) error { edit(s); return nil })
		b.want(relay.CodeValidationFailed, err)
	}
	_, err = b.SetAlias(ctx, b.bob, "hooks", func(*relay.Settings) error { return nil })
	b.want(relay.CodeNotFound, err)
	b.heard("settings changed", func(c relay.Change) bool { return c.Kind == relay.ChangeAlias && c.Alias == b.hooks.ID })
}

// removeAlias checks that no data of a removed alias is ever shown, and that its name is reserved.
func (b *fixture) removeAlias() {
	ctx := b.Context()
	a, err := b.Alias(ctx, b.alice, "claimed")
	b.must(err)
	var ids []relay.ID
	for range 250 {
		e := b.newEvent(a, relay.StateQueued, "/old", "secret-of-old")
		b.Accept(e)
		ids = append(ids, e.ID)
	}
	id := b.capture(a, "/old", "secret-of-old", 200)
	_, share, err := b.CreateShare(ctx, b.alice, id, relay.Share{View: true})
	b.must(err)
	_, token, err := b.CreateToken(ctx, b.alice, relay.Token{Alias: "claimed"})
	b.must(err)
	b.must(b.RemoveAlias(ctx, b.alice, "claimed"))
	b.heard("a token that ended with its alias", func(c relay.Change) bool { return c.Kind == relay.ChangeAccount && c.Account == b.alice.Account })
	b.want(relay.CodeNotFound, b.RemoveAlias(ctx, b.alice, "claimed"))
	_, _, err = b.ShareActor(ctx, share, false)
	b.want(relay.CodeNotFound, err)
	_, err = b.TokenOwner(ctx, token)
	b.want(relay.CodeNotFound, err)
	_, err = b.Event(ctx, system, id, 0)
	b.want(relay.CodeNotFound, err)
	_, err = b.AliasByID(ctx, a.ID)
	b.want(relay.CodeNotFound, err)
	_, err = b.ClaimAlias(ctx, b.bob, "claimed")
	b.want(relay.CodeNotFound, err)
	_, err = b.CreateAlias(ctx, b.bob, "claimed", "")
	b.want(relay.CodeConflict, err)
	again, err := b.ClaimAlias(ctx, b.alice, "claimed")
	b.must(err)
	if again.ID == a.ID {
		b.Error("the id of a removed alias came back")
	}
	for _, who := range []relay.Actor{b.alice, system} {
		if page := b.list(who, relay.Filter{Texts: []relay.TextFilter{{Text: "secret-of-old"}}}); len(page.Events) != 0 {
			b.Errorf("%s still sees events of the old alias", who.Name)
		}
	}
	if rows, err := b.Summaries(ctx, ids[:5]); err != nil || len(rows) != 0 {
		b.Errorf("summaries of a removed alias: %d, %v", len(rows), err)
	}
	if c := b.nextOf(again, true); c != nil {
		b.Errorf("the new alias delivers %+v", c)
	}
	b.eventually("events of the old alias are deleted", func() bool {
		_, err := b.BodyPart(ctx, id, 0, 0)
		stats, statsErr := b.QueueStats(ctx, []int64{a.ID})
		return err != nil && statsErr == nil && stats[a.ID].Queued == 0
	})
}

// eventually polls until the function ok returns true.
func (b *fixture) eventually(what string, ok func() bool) {
	b.Helper()
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			b.Fatalf("never: %s", what)
		}
		<-tick.C
	}
}
