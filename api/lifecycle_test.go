package api_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/record"
)

// TestLifeOfAnAccount: a new account uses its invitation once, and creates an alias, a share and a token. After it
// is removed, none of its credentials is valid, and an admin transfers its alias.
func TestLifeOfAnAccount(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.post(h.asAlice, "/api/v1/users", `{"name":"eve"}`).want(201)
	invite := decoded[record.Invite](h.post(h.asAlice, "/api/v1/users/eve/invite", "").want(201))
	if left := time.Until(invite.ExpiresAt.Time); left < 71*time.Hour || left > 72*time.Hour {
		t.Errorf("an invite lasts %s", left)
	}
	secret := invite.URL[strings.LastIndexByte(invite.URL, '/')+1:]
	cookie, _, err := h.store.UseInvite(t.Context(), secret, otherKey, "203.0.113.9:1", "test")
	must(t, err)
	if _, _, err := h.store.UseInvite(t.Context(), secret, otherKey, "203.0.113.9:1", "test"); err == nil {
		t.Error("an invite is used twice")
	}
	asEve := h.token("eve", relay.Token{Scopes: relay.AllScopes})
	h.post(asEve, "/api/v1/aliases", `{"name":"eves"}`).want(201)
	id := h.event("eves", nil)
	h.call("PUT", asEve, "/api/v1/aliases/eves/members/bob", "").want(204)
	share := decoded[record.Share](h.post(asEve, "/api/v1/events/"+id.String()+"/shares", "{}").want(201))
	h.call("PUT", h.asBob, "/api/v1/aliases/other/members/eve", "").want(204)
	h.get(asEve, "/api/v1/aliases/other").want(200)

	h.call("DELETE", h.asAlice, "/api/v1/users/eve", "").want(204)
	h.get(asEve, "/api/v1/me").code(401, "unauthorized")
	r := h.request("GET", "", "/api/v1/me", "")
	r.AddCookie(&http.Cookie{Name: "relay_session", Value: cookie})
	h.do(r).code(401, "unauthorized")
	h.get("", "/api/v1/shared/"+share.Token).code(404, "not-found")
	if a := h.get(h.asBob, "/api/v1/aliases/other/members").want(200); strings.Contains(a.body, "eve") {
		t.Errorf("who is gone is a member: %s", a.body)
	}
	if _, err := h.store.KeyOwner(t.Context(), fingerprintOf(t, h, otherKey)); err == nil {
		t.Error("the key is still good")
	}

	// The alias has no owner now: only an admin can transfer the alias and its events.
	h.post(h.asBob, "/api/v1/aliases/eves/transfer", `{"user":"bob"}`).code(403, "forbidden") // bob is a member, so he sees the alias
	h.get(h.asAlice, "/api/v1/aliases/eves").code(404, "not-found")
	h.post(h.asAlice, "/api/v1/aliases/eves/transfer", `{"user":"eve"}`).code(422, "validation-failed")
	if moved := decoded[record.Alias](h.post(h.asAlice, "/api/v1/aliases/eves/transfer", `{"user":"bob"}`).want(200)); moved.Owner != "bob" {
		t.Errorf("transferred to %s", moved.Owner)
	}
	h.get(h.asBob, "/api/v1/events/"+id.String()).want(200)
	h.post(h.asAlice, "/api/v1/aliases/eves/transfer", `{"user":"alice"}`).code(404, "not-found") // the alias has an owner again
}

// fingerprintOf returns the fingerprint that the store computes for a key. To get it, fingerprintOf creates
// an account with the key.
func fingerprintOf(t *testing.T, h *fixture, key string) string {
	t.Helper()
	h.account("keyholder", false)
	k, err := h.store.AddKey(t.Context(), relay.System(), "keyholder", "", key)
	must(t, err)
	must(t, h.store.RemoveKey(t.Context(), relay.System(), k.ID))
	return k.Fingerprint
}

// TestOnlyAFullAdminTransfers: an admin's token with fewer scopes cannot transfer an alias without an
// owner.
func TestOnlyAFullAdminTransfers(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.call("DELETE", h.asAlice, "/api/v1/users/bob", "").want(204)
	const transfer, body = "/api/v1/aliases/other/transfer", `{"user":"alice"}`
	h.post(h.token("alice", relay.Token{Scopes: relay.ScopeAliasesWrite}), transfer, body).code(404, "not-found")
	h.post(h.token("alice", relay.Token{Scopes: relay.AllScopes, Alias: "shop"}), transfer, body).code(404, "not-found")
	h.post(h.asAlice, transfer, body).want(200)
}

// TestANameIsKeptAfterItsAliasIsGone: the name of a removed alias is reserved for its former owner, and a new
// alias of that name shows no data of the old one.
func TestANameIsKeptAfterItsAliasIsGone(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	id := h.event("shop", nil)
	share := h.share(id, "")
	h.call("PUT", h.asAlice, "/api/v1/aliases/shop/members/bob", "").want(204)
	limited := h.token("alice", relay.Token{Scopes: relay.AllScopes, Alias: "shop"})
	h.call("DELETE", h.asBob, "/api/v1/aliases/shop", "").code(403, "forbidden")
	h.call("DELETE", h.asAlice, "/api/v1/aliases/shop", "").want(204)
	h.post(h.asBob, "/api/v1/aliases", `{"name":"shop"}`).code(409, "conflict")
	h.post(h.asAlice, "/api/v1/aliases", `{"name":"shop"}`).want(201)
	if list := h.list("alias=shop"); len(list.Data) != 0 {
		t.Errorf("old events show: %+v", list.Data)
	}
	h.get(h.asAlice, "/api/v1/events/"+id.String()).code(404, "not-found")
	h.get("", "/api/v1/shared/"+share.Token).code(404, "not-found")
	h.get(h.asBob, "/api/v1/aliases/shop").code(404, "not-found") // bob was a member of the old alias only
	h.get(limited, "/api/v1/me").code(401, "unauthorized")
}

// TestEveryChangeIsInTheAuditLog makes changes of every kind and looks for their audit entries. No entry
// shows a secret, and bob sees no entry of alice.
func TestEveryChangeIsInTheAuditLog(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	id := h.event("shop", nil)
	h.post(h.asAlice, "/api/v1/users", `{"name":"eve"}`).want(201)
	h.post(h.asAlice, "/api/v1/users/eve/invite", "").want(201)
	h.session("alice")
	token := decoded[record.Token](h.post(h.asAlice, "/api/v1/tokens", `{"name":"spare"}`).want(201))
	key := decoded[record.Key](h.post(h.asAlice, "/api/v1/keys", `{"key":"`+testKey+`"}`).want(201))
	share := h.share(id, "")
	h.setDeliveryState(relay.StateDelivered)
	h.post("", "/api/v1/events/shared/"+share.Token+"/replay", "").want(200)
	sessions := decoded[record.List[record.Session]](h.get(h.asAlice, "/api/v1/sessions").want(200))
	h.post(h.asAlice, "/api/v1/aliases", `{"name":"second"}`).want(201)
	for _, line := range []string{
		`PATCH /api/v1/aliases/shop {"paused":true}`, "PUT /api/v1/aliases/shop/members/bob", "DELETE /api/v1/aliases/shop/members/bob",
		`POST /api/v1/aliases/second/transfer {"user":"bob"}`,
		"DELETE /api/v1/events/" + id.String() + "/shares/" + share.ID, "DELETE /api/v1/tokens/" + token.ID, "DELETE /api/v1/keys/" + key.ID,
		"DELETE /api/v1/sessions/" + sessions.Data[0].ID, "DELETE /api/v1/aliases/shop", "DELETE /api/v1/users/eve",
	} {
		if a := h.line(h.asAlice, line); a.status >= 300 {
			t.Fatalf("%s: %d %s", line, a.status, a.body)
		}
	}
	log := h.get(h.asAlice, "/api/v1/audit?limit=1000").want(200)
	rows := decoded[record.List[record.AuditEntry]](log).Data
	for _, want := range []record.AuditEntry{
		{Action: "user.add", Target: "eve"},
		{Action: "invite.add", Target: "eve"},
		{Action: "user.remove", Target: "eve"},
		{Action: "session.add", Detail: "127.0.0.1:1"},
		{Action: "session.remove", Target: sessions.Data[0].ID},
		{Action: "token.add", Target: token.ID, Detail: "spare"},
		{Action: "token.remove", Target: token.ID},
		{Action: "key.add", Target: key.Fingerprint},
		{Action: "key.remove"},
		{Action: "share.add", Target: share.ID, Detail: id.String()},
		{Action: "share.use", Target: share.ID},
		{Action: "share.remove", Target: share.ID},
		{Action: "alias.add", Target: "second"},
		{Action: "alias.set", Target: "shop", Detail: "paused"},
		{Action: "alias.transfer", Target: "second"},
		{Action: "alias.remove", Target: "shop"},
		{Action: "member.add", Target: "shop", Detail: "bob"},
		{Action: "member.remove", Target: "shop", Detail: "bob"},
	} {
		if !slices.ContainsFunc(rows, func(e record.AuditEntry) bool {
			return e.Action == want.Action && strings.Contains(e.Target, want.Target) && strings.Contains(e.Detail, want.Detail) && e.Actor != "" && !e.At.IsZero()
		}) {
			t.Errorf("no row like %+v", want)
		}
	}
	for _, secret := range []string{token.Token, share.Token, h.asAlice} {
		if strings.Contains(log.body, secret) {
			t.Error("the audit log shows a secret")
		}
	}
	for _, e := range decoded[record.List[record.AuditEntry]](h.get(h.asBob, "/api/v1/audit?limit=1000").want(200)).Data {
		if strings.Contains(e.Target, "eve") || e.Target == token.ID || e.Action == "alias.set" {
			t.Errorf("bob sees %+v", e)
		}
	}
}

// TestNamesAreNotHoardedByRemovingAliases: not only the number of an account's aliases is limited, but also that of
// its removed names. They stay reserved, so without the limit an account could reserve all names, a few at a time.
func TestNamesAreNotHoardedByRemovingAliases(t *testing.T) {
	t.Parallel()
	h := newFixtureWithAliases(t, 2)
	took := 0
	for ; took < 100; took++ {
		name := "name" + strconv.Itoa(took)
		a := h.post(h.asBob, "/api/v1/aliases", `{"name":"`+name+`"}`)
		if a.status != 201 {
			a.code(409, "conflict")
			break
		}
		h.call("DELETE", h.asBob, "/api/v1/aliases/"+name, "").want(204)
	}
	if took != 20 {
		t.Errorf("%d names were taken", took)
	}
	h.post(h.asBob, "/api/v1/aliases", `{"name":"name3"}`).want(201) // bob had this name before
	h.post(h.asAlice, "/api/v1/aliases", `{"name":"more"}`).want(201)
}
