package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/api"
	"relay/record"
)

func (h *fixture) share(id relay.ID, body string) record.Share {
	h.t.Helper()
	return decoded[record.Share](h.post(h.asAlice, "/api/v1/events/"+id.String()+"/shares", body).want(201))
}

func TestShares(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	id := h.event("shop", nil)
	s := h.share(id, `{"expiresIn":"12h","view":true}`)
	if s.Token == "" || s.URL != "http://localhost:8080/s/"+s.Token || s.ReplayURL != "http://localhost:8080/api/v1/events/shared/"+s.Token+"/replay" ||
		!s.View || s.Uses != 0 || s.ExpiresAt == nil {
		t.Errorf("made %+v", s)
	}
	if left := time.Until(s.ExpiresAt.Time); left < 11*time.Hour || left > 12*time.Hour {
		t.Errorf("12h gives %s", left)
	}
	if forever := h.share(id, `{"expiresIn":null}`); forever.ExpiresAt != nil || forever.View {
		t.Errorf("null gives %+v", forever)
	}
	for _, absent := range []string{"", "{}"} {
		if week := h.share(id, absent); week.ExpiresAt == nil || time.Until(week.ExpiresAt.Time) > 7*24*time.Hour {
			t.Errorf("%q gives %+v", absent, week)
		}
	}
	for _, bad := range []string{`{"expiresIn":"soon"}`, `{"expiresIn":"0s"}`, `{"expiresIn":3}`, `{"view":"yes"}`, `{"uses":1}`} {
		h.post(h.asAlice, "/api/v1/events/"+id.String()+"/shares", bad).code(422, "validation-failed")
	}
	list := h.get(h.asAlice, "/api/v1/events/"+id.String()+"/shares").want(200)
	if got := decoded[record.List[record.Share]](list); len(got.Data) != 4 || strings.Contains(list.body, s.Token) {
		t.Errorf("listed %s", list.body)
	}
	one := "/api/v1/events/" + id.String() + "/shares/" + s.ID
	h.call("DELETE", h.asAlice, one, "").want(204)
	h.call("DELETE", h.asAlice, one, "").code(404, "not-found")
	h.get("", "/api/v1/shared/"+s.Token).code(404, "not-found")
}

func TestSharedReplay(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	id := h.event("shop", nil)
	s := h.share(id, "")
	target := "/api/v1/events/shared/" + s.Token + "/replay"
	h.setDeliveryState(relay.StateDelivered)
	r := h.request("POST", "", target, "anything")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	a := h.do(r).want(200)
	got := decoded[record.SharedReplay](a)
	if got.Event.State != "delivered" || got.Attempt.Number != 2 || *got.Attempt.Status != 200 || got.Attempt.LatencyMs == nil {
		t.Errorf("got %s", a.body)
	}
	for _, secret := range []string{"alice", "shop", "s3cret", "hello"} {
		if strings.Contains(a.body, secret) {
			t.Errorf("%s is in %s", secret, a.body)
		}
	}
	h.setDeliveryState(relay.StateQueued)
	h.post("", target, "").want(202)
	shares := decoded[record.List[record.Share]](h.get(h.asAlice, "/api/v1/events/"+id.String()+"/shares").want(200))
	if shares.Data[0].Uses != 2 {
		t.Errorf("%d uses", shares.Data[0].Uses)
	}
	unknown, wrong := h.post("", "/api/v1/events/shared/nope/replay", "").code(404, "not-found"), h.post("", target+"?wait=x", "").code(422, "validation-failed")
	_ = wrong
	h.call("DELETE", h.asAlice, "/api/v1/events/"+id.String()+"/shares/"+s.ID, "").want(204)
	if gone := h.post("", target, "").code(404, "not-found"); gone.sameBody() != unknown.sameBody() {
		t.Errorf("revoked %s, unknown %s", gone.body, unknown.body)
	}
	if strings.Contains(h.log.String(), s.Token) {
		t.Error("the share token is in the log")
	}
}

// TestShareForOneUseOutlivesARefusal: a refused replay does not use the share up; only a replay that was
// begun does.
func TestShareForOneUseOutlivesARefusal(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	id := h.event("shop", nil)
	for _, body := range []string{`{"oneUse":true}`, `{"oneUse":true,"expiresIn":null}`} {
		s := h.share(id, body)
		target := "/api/v1/events/shared/" + s.Token + "/replay"
		for _, code := range []string{relay.CodeQueueFull, relay.CodeStopping} {
			h.deliver.replay = func(relay.Actor, relay.ID, time.Duration) (*relay.Event, int, error) {
				return nil, 0, relay.Errorf(code, "not now")
			}
			h.post("", target, "").code(503, code)
		}
		shares := decoded[record.List[record.Share]](h.get(h.asAlice, "/api/v1/events/"+id.String()+"/shares").want(200)).Data
		if last := shares[len(shares)-1]; last.Uses != 0 || last.ID != s.ID || fmt.Sprint(last.ExpiresAt) != fmt.Sprint(s.ExpiresAt) {
			t.Errorf("it is %+v and was %+v", last, s)
		}
		h.setDeliveryState(relay.StateDelivered)
		h.post("", target, "").want(200)
		h.post("", target, "").code(404, "not-found")
		if a := h.get(h.asAlice, "/api/v1/events/"+id.String()+"/shares").want(200); strings.Contains(a.body, s.ID) {
			t.Errorf("a used share for one use is listed: %s", a.body)
		}
	}
	h.deliver.replay = func(relay.Actor, relay.ID, time.Duration) (*relay.Event, int, error) {
		return nil, 0, relay.Errorf(relay.CodeStoreUnavailable, "it may have been stored")
	}
	target := "/api/v1/events/shared/" + h.share(id, `{"oneUse":true}`).Token + "/replay"
	h.post("", target, "").code(503, "store-unavailable")
	h.post("", target, "").code(404, "not-found")
}

func TestSharedReplayLimitIsPerShare(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(o *api.Options) {
		o.Limits = api.NewLimits(api.Rate{N: 60, Per: time.Minute}, api.Rate{N: 2, Per: time.Hour})
	})
	id := h.event("shop", nil)
	one, two := h.share(id, ""), h.share(id, "")
	h.setDeliveryState(relay.StateDelivered)
	for range 2 {
		h.post("", "/api/v1/events/shared/"+one.Token+"/replay", "").want(200)
	}
	a := h.post("", "/api/v1/events/shared/"+one.Token+"/replay", "").code(429, "rate-limited")
	if a.header.Get("RateLimit-Policy") != `"shared-replays";q=2;w=3600` {
		t.Errorf("header %v", a.header)
	}
	h.post("", "/api/v1/events/shared/"+two.Token+"/replay", "").want(200)
}

func TestSharedEvent(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	id := h.event("shop", nil)
	h.deliver.state = relay.TunnelOnline
	closed := h.get("", "/api/v1/shared/"+h.share(id, "").Token).want(200)
	open := h.get("", "/api/v1/shared/"+h.share(id, `{"view":true}`).Token).want(200)
	for _, a := range []*answer{closed, open} {
		for _, secret := range []string{"alice", "shop", "s3cret", id.String()} {
			if strings.Contains(a.body, secret) {
				t.Errorf("%s is in %s", secret, a.body)
			}
		}
		if a.header.Get("Referrer-Policy") != "no-referrer" || a.header.Get("X-Robots-Tag") != "noindex" || a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("header %v", a.header)
		}
	}
	c, o := decoded[record.SharedEvent](closed), decoded[record.SharedEvent](open)
	if c.Request != nil || c.Response != nil || !c.Online || c.PayloadSize != 5 || *c.ResponseSize != 2 || c.Method != "POST" || c.Path != "/hook?x=1" {
		t.Errorf("closed: %s", closed.body)
	}
	if o.Request == nil || o.Request.Body.Data != "hello" || o.Response.Body.Data != "ok" {
		t.Errorf("open: %s", open.body)
	}
}

// TestSharesThatAreGoodForNothing: a share that allows neither a replay nor a view is refused.
func TestSharesThatAreGoodForNothing(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	shares := "/api/v1/events/" + h.event("shop", rejected).String() + "/shares"
	for _, body := range []string{"", `{"view":false}`} {
		p := h.post(h.asAlice, shares, body).code(409, "event-not-replayable").problem()
		if p.Reason != "rejected" || !strings.Contains(p.Detail, `"view":true`) {
			t.Errorf("%q: %+v", body, p)
		}
	}
	h.post(h.asAlice, shares, `{"view":"yes"}`).code(422, "validation-failed")
	shown := decoded[record.Share](h.post(h.asAlice, shares, `{"view":true}`).want(201))
	h.get("", "/api/v1/shared/"+shown.Token).want(200)
	h.post("", "/api/v1/events/shared/"+shown.Token+"/replay", "").code(409, "event-not-replayable")
}
