package dashboard_test

import (
	"context"
	"strings"
	"testing"

	"relay"
)

// TestDrainIsShown: the page and the live updates show the progress of a released queue. If the parameter
// released in the address of the page is not a valid number, the page shows no progress.
func TestDrainIsShown(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	for range 3 {
		r.send(post("/late", "{}"))
	}
	page := r.submit("/aliases/hook/replay-queued", nil, 200)
	contains(t, "offline", page, `data-waiting="3"`, "3 queued deliveries: sent when the tunnel is back online", `max="3" value="0"`, "0 of 3", "/aliases/hook/live?after=", "&amp;released=3")
	live := r.listen(liveOf(t, page))
	r.hear(live, ": connected")
	asked, goOn := make(chan struct{}, 3), make(chan struct{})
	r.answers(func([]byte, []byte) string {
		asked <- struct{}{}
		<-goOn
		return ok
	})
	r.online()
	<-asked
	r.await("the first is under way", func() bool {
		page = r.get("/aliases/hook?released=3", 200)
		return strings.Contains(page, `data-waiting="2"`)
	})
	contains(t, "draining", page, "2 queued deliveries: sent one at a time", "now <a href=", "/late", "1 of 3")
	goOn <- struct{}{}
	<-asked
	r.hear(live, "event: region", `data-waiting="1"`, "2 of 3")
	goOn <- struct{}{}
	<-asked
	goOn <- struct{}{}
	r.hear(live, "event: region", `data-waiting="0"`, "The queue is empty", "3 of 3")
	contains(t, "afterwards", r.get("/aliases/hook?released=3", 200), "3 of 3", "3 events were released")
	for _, odd := range []string{"-1", "x", "99999999999", "1e3"} {
		if strings.Contains(r.get("/aliases/hook?released="+odd, 200), "<progress") {
			t.Errorf("released=%s is believed", odd)
		}
	}
}

func TestMembersAreNotOfferedToShare(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	id := r.send(post("/hook", "{}")).String()
	contains(t, "owner", r.get("/events/"+id, 200), `action="/events/`+id+`/share"`)
	ctx, sys := context.Background(), relay.System()
	_, err := r.s.CreateAccount(ctx, sys, "bob", false)
	must(t, err)
	must(t, r.s.AddMember(ctx, sys, "hook", "bob"))
	r.login("bob")
	page := r.get("/events/"+id, 200)
	contains(t, "member", page, "Only alice, the owner of the alias, may share its events", ">Replay</button>")
	if strings.Contains(page, `/share"`) || strings.Contains(page, ">Share</button>") {
		t.Error("a member is offered what answers 403")
	}
	r.submit("/events/"+id+"/shares", nil, 403)
	r.get("/events/"+id+"/share", 403)
}
