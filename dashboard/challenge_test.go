package dashboard_test

import (
	"crypto/sha256"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"relay"
)

// TestMissedChallenge: the pages of a queued challenge and of its alias offer the setting that answers such
// challenges to the owner, and not to a member. Once the alias has the setting, these pages no longer offer it.
func TestMissedChallenge(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	a := o.alias("alice", "shop")
	o.must(o.AddMember(t.Context(), o.actor("alice"), "shop", "bob"))
	add := func(missed string) relay.ID { return o.queuedRequest(a, missed, "POST /hook HTTP/1.1\r\n\r\n", "") }
	const button, form = "Answer slack challenges while offline", `action="/aliases/shop/settings/handshakes"`
	id, needs := add("slack"), add("zoom")
	page := "/events/" + id.String()
	o.get("alice", page).want(200, button, form, "handshakes=slack")
	o.get("bob", page).want(200, "handshakes=slack").lacks(form)
	o.get("alice", "/events/"+needs.String()).want(200, "relay secret add shop --provider zoom", form, `name="secret"`, "Secret of zoom")
	o.get("alice", "/aliases/shop").want(200, "challenge not answered")
	o.post("bob", "/aliases/shop/settings/handshakes", "name", "slack").want(403)
	o.post("alice", "/aliases/shop/settings/handshakes", "name", "slack").redirectsTo("/aliases/shop/settings?done=saved")
	o.get("alice", page).want(200, "Let the sender try again").lacks(form)
}

// TestMissedChallengeWithASecret: one form sets an alias to answer challenges of a sender, and stores the
// secret or verify token for them.
func TestMissedChallengeWithASecret(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	a := o.alias("alice", "shop")
	path := "/aliases/shop/settings/handshakes"
	page := "/events/" + o.queuedRequest(a, "meta", "GET /?hub.mode=subscribe HTTP/1.1\r\n\r\n", "").String()
	o.get("alice", page).want(200, "verifyToken=TOKEN", "Verify token of meta", `type="password" name="secret"`)
	o.post("alice", path, "name", "meta").want(422, "what you entered at the sender")
	o.post("alice", path, "name", "meta", "secret", "meaty").redirectsTo("/aliases/shop/settings?done=saved")
	o.get("alice", page).want(200, "did not fit its verify token").lacks(`action="` + path + `"`)
	o.post("alice", path, "name", "zoom", "secret", "s3cr3t").redirectsTo("/aliases/shop/settings?done=saved")
	set, err := o.Alias(t.Context(), o.actor("alice"), "shop")
	o.must(err)
	kept, err := o.Secrets(t.Context(), o.actor("alice"), "shop")
	o.must(err)
	if s := set.Settings; strings.Join(s.Handshakes, " ") != "meta zoom" || s.VerifyToken == nil || len(kept) != 1 || kept[0].Provider != "zoom" {
		t.Errorf("%+v, %+v", s, kept)
	}
}

// TestKeepAsSecret: on a challenge of Asana or Notion, the owner has a button that stores its secret. The
// button is gone afterwards.
func TestKeepAsSecret(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	a := o.alias("alice", "shop")
	o.must(o.AddMember(t.Context(), o.actor("alice"), "shop", "bob"))
	const button, value = "Keep as secret", "b537207f20cbfa02357cf448134da559"
	asana := "/events/" + o.queuedRequest(a, "asana", "POST / HTTP/1.1\r\nX-Hook-Secret: "+value+"\r\n\r\n", "").String()
	notion := "/events/" + o.queuedRequest(a, "notion", "POST / HTTP/1.1\r\nContent-Type: application/json\r\n\r\n", `{"verification_token":"`+value+`"}`).String()
	plain := "/events/" + o.queuedRequest(a, "", "POST / HTTP/1.1\r\n\r\n", "").String()
	for _, event := range []string{asana, notion} {
		o.get("alice", event).want(200, button, `action="`+event+`/keep-secret"`)
		o.get("bob", event).want(200).lacks(button)
		o.post("bob", event+"/keep-secret").want(403)
		o.post("alice", event+"/keep-secret").redirectsTo("/aliases/shop/settings?done=secret-added#secrets")
		o.get("alice", event).want(200).lacks(button)
	}
	o.get("alice", plain).want(200).lacks(button)
	o.post("alice", plain+"/keep-secret").want(422)
	open, err := o.OpenSecrets(t.Context(), a.ID)
	o.must(err)
	if len(open) != 2 || open[0].Provider != "asana" || open[0].Value.Reveal() != value || open[1].Provider != "notion" || open[1].Value.Reveal() != value {
		t.Errorf("kept %+v", open)
	}
}

// TestConfirmationLinkIsShown: the link in a confirmation of Amazon SNS is shown if it leads to Amazon, and
// not if it leads elsewhere.
func TestConfirmationLinkIsShown(t *testing.T) {
	t.Parallel()
	o := newAccountFixture(t)
	a := o.alias("alice", "shop")
	page := func(link string) answer {
		return o.get("alice", "/events/"+o.queuedRequest(a, "", "POST / HTTP/1.1\r\nx-amz-sns-message-type: SubscriptionConfirmation\r\n\r\n", `{"SubscribeURL":"`+link+`"}`).String()).want(200)
	}
	page("https://sns.us-west-2.amazonaws.com/?Action=ConfirmSubscription&Token=1").want(200,
		`<a href="https://sns.us-west-2.amazonaws.com/?Action=ConfirmSubscription&amp;Token=1" rel="noopener noreferrer nofollow">`)
	page("https://evil.example/?Action=ConfirmSubscription").lacks(`id="confirm"`, `href="https://evil`)
}

// queuedRequest stores a queued event with a head and a body. missed is the name of its missed challenge, ""
// = none.
func (o *accountFixture) queuedRequest(a *relay.Alias, missed, head, body string) relay.ID {
	o.Helper()
	now := time.Now().UTC()
	method, _, _ := strings.Cut(head, " ")
	e := &relay.Event{
		ID: o.NewID(), AliasID: a.ID, Alias: a.Name, ReceivedAt: now, LastReceivedAt: now, Remote: netip.MustParseAddrPort("192.0.2.7:1"),
		Method: method, Target: []byte("/hook"), HTTPMinor: 1, Host: a.Name + ".localhost", State: relay.StateQueued, MissedHandshake: missed,
		Request: relay.Message{Head: []byte(head), Body: relay.Body{
			State: relay.BodyComplete, Data: []byte(body), Size: int64(len(body)), Stored: int64(len(body)), SHA256: sha256.Sum256([]byte(body)),
		}},
		Attempts: []relay.Attempt{{N: 1, Kind: relay.KindOriginal, State: relay.StateQueued, ReceivedAt: now}},
	}
	ticket := o.Accept(e)
	<-ticket.Done()
	o.must(ticket.Err())
	return e.ID
}

// TestMissedChallengeOfAnAlias: the page of an alias offers the setting for a challenge in its queue. Once it
// is set, the next challenge is answered.
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
