package dashboard_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"relay"
	"relay/dashboard"
)

// away is a store whose database does not answer while down is set.
type away struct {
	accounts
	down *atomic.Bool
}

func (a away) SessionOwner(ctx context.Context, secret string) (relay.Actor, error) {
	if a.down.Load() {
		e := relay.Errorf(relay.CodeStoreUnavailable, "the database does not answer")
		e.RetryAfter = 2 * time.Second
		return relay.Actor{}, e
	}
	return a.accounts.SessionOwner(ctx, secret)
}

func TestOutageShowsWhatIsKnown(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	r := newRig(t, func(o *dashboard.Options) { o.Accounts = away{o.Accounts, &down} })
	id := r.send(post("/hook", "{}")).String()
	r.get("/", 200)
	down.Store(true)
	for _, path := range []string{"/", "/aliases/hook?q=a", "/events/" + id, "/account"} {
		page := r.get(path, 503)
		contains(t, path, page, "The database does not answer", "still forwarded and kept", `href="`+path+`"`, "Try again",
			"Your aliases as they were at", "http://hook.localhost", "was never")
	}
	r.submit("/events/"+id+"/replay", nil, 503)
	part := r.do("GET", "/events/"+id, nil, http.Header{"X-Partial": {"1"}}, 200)
	contains(t, "the script's part", part, `data-status="503"`, "does not answer")
	req, _ := http.NewRequest("GET", r.base+"/", nil)
	req.Header.Set("Cookie", "relay_session=guessed")
	res, err := http.DefaultClient.Do(req)
	must(t, err)
	_ = res.Body.Close()
	if res.StatusCode != 503 || res.Header.Get("Retry-After") != "2" {
		t.Errorf("%d, Retry-After %q", res.StatusCode, res.Header.Get("Retry-After"))
	}
	jar := r.client.Jar
	r.client = &http.Client{}
	if page := r.get("/", 200); strings.Contains(page, "hook.localhost") {
		t.Error("a stranger sees aliases")
	}
	r.client.Jar = jar
	down.Store(false)
	contains(t, "afterwards", r.get("/events/"+id, 200), `data-event-id="`+id+`"`)

	// Whoever is logged out leaves nothing to show.
	r.submit("/logout", nil, 200)
	down.Store(true)
	r.client = &http.Client{}
	r.do("GET", "/", nil, http.Header{"Cookie": {"relay_session=" + r.session}}, 503)
	if page := r.do("GET", "/", nil, http.Header{"Cookie": {"relay_session=" + r.session}}, 503); strings.Contains(page, "hook.localhost") {
		t.Error("an ended session still sees aliases")
	}
}
