package dashboard_test

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"relay"
)

// The page of a challenge that was queued without an answer, and that of its alias, offer the setting to
// the owner; once it is set, they do not.
func TestMissedChallenge(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	a := o.alias("alice", "shop")
	o.must(o.AddMember(t.Context(), o.actor("alice"), "shop", "bob"))
	now := time.Now().UTC()
	add := func(missed string) relay.ID {
		e := &relay.Event{
			ID: o.NewID(), AliasID: a.ID, Alias: a.Name, ReceivedAt: now, LastReceivedAt: now, Remote: netip.MustParseAddrPort("192.0.2.7:1"),
			Method: "POST", Target: []byte("/hook"), HTTPMinor: 1, Host: a.Name + ".localhost", State: relay.StateQueued, MissedHandshake: missed,
			Request:  relay.Message{Head: []byte("POST /hook HTTP/1.1\r\n\r\n"), Body: relay.Body{State: relay.BodyComplete}},
			Attempts: []relay.Attempt{{N: 1, Kind: relay.KindOriginal, State: relay.StateQueued, ReceivedAt: now}},
		}
		ticket := o.Accept(e)
		<-ticket.Done()
		o.must(ticket.Err())
		return e.ID
	}
	const button, form = "Answer slack challenges while offline", `action="/aliases/shop/settings/handshakes"`
	id, needs := add("slack"), add("zoom")
	page := "/events/" + id.String()
	o.get("alice", page).want(200, button, form, "handshakes=slack")
	o.get("bob", page).want(200, "handshakes=slack").lacks(form)
	o.get("alice", "/events/"+needs.String()).want(200, "its answer needs a secret").lacks(form)
	o.get("alice", "/aliases/shop").want(200, "challenge not answered")
	o.post("bob", "/aliases/shop/settings/handshakes", "name", "slack").want(403)
	o.post("alice", "/aliases/shop/settings/handshakes", "name", "slack").redirectsTo("/aliases/shop/settings?done=saved")
	o.get("alice", page).want(200, "Let the sender try again").lacks(form)
}

// The page of an alias offers the same, for a challenge that waits in its queue.
func TestMissedChallengeOfAnAlias(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	const form, body = `action="/aliases/hook/settings/handshakes"`, `{"challenge":"abc"}`
	r.send("POST / HTTP/1.1\r\nHost: hook.localhost\r\nContent-Type: application/json\r\nContent-Length: 19\r\n\r\n" + body)
	contains(t, "alias", r.get("/aliases/hook", 200), form, "Answer monday challenges while offline")
	r.submit("/aliases/hook/settings/handshakes", url.Values{"name": {"monday"}}, 200)
	if page := r.get("/aliases/hook", 200); strings.Contains(page, form) {
		t.Error("it is offered once more")
	}
	id := r.send("POST / HTTP/1.1\r\nHost: hook.localhost\r\nContent-Type: application/json\r\nContent-Length: 19\r\n\r\n" + body)
	contains(t, "event", r.get("/events/"+id.String(), 200), ">answered<", `data-state="answered"`, "Content-Security-Policy")
}
