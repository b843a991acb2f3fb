package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"relay/relaytest"
)

// revoked is the time within which a revoked credential must stop working, and within which the server must
// obey a command of the operator.
const revoked = 2 * time.Second

// inTime fails the test if more than the time revoked has passed since began.
func inTime(t *testing.T, began time.Time, what string) {
	t.Helper()
	took := time.Since(began)
	t.Logf("figure: %s after %s", what, took.Round(time.Millisecond))
	if took > bound(revoked) {
		t.Errorf("%s only after %s, %s are promised", what, took.Round(time.Millisecond), revoked)
	}
}

// cutSoon waits until every connection in the map what has ended; the keys of the map name the connections. All
// must end within the time revoked after began.
func cutSoon(t *testing.T, began time.Time, how string, what map[string]<-chan error) {
	t.Helper()
	late := time.NewTimer(relaytest.Patience(10 * time.Second))
	defer late.Stop()
	for name, ended := range what {
		select {
		case err := <-ended:
			inTime(t, began, fmt.Sprintf("%s: %s ended (%v)", how, name, err))
		case <-late.C:
			t.Fatalf("%s: %s goes on", how, name)
		}
	}
}

// TestSecurityRevocation: a revocation by the API takes effect at once, and a revocation by a command of relayd, which
// runs in another process, within the time revoked.
func TestSecurityRevocation(t *testing.T) {
	stores(t, func(t *testing.T, databaseURL string) {
		r := startRelay(t, databaseURL)
		target := localServer(t)
		t.Run("key", func(t *testing.T) { testRevokedKey(t, r, target) })
		t.Run("token", func(t *testing.T) { testRevokedToken(t, r) })
		t.Run("user", func(t *testing.T) { testRevokedUser(t, r, target) })
		t.Run("member", func(t *testing.T) { testRevokedMember(t, r, target) })
		t.Run("share", func(t *testing.T) { testRevokedShare(t, r) })
		t.Run("session", func(t *testing.T) { testRevokedSession(t, r) })
	})
}

// on returns a copy of r that reports failures to the subtest t.
func (r *relayServer) on(t *testing.T) *relayServer {
	return &relayServer{
		t: t, owner: r.owner, dir: r.dir, http: r.http, ssh: r.ssh, admin: r.admin, key: r.key, token: r.token,
		database: r.database, extra: r.extra, log: r.log, process: r.process,
	}
}

func testRevokedKey(t *testing.T, r *relayServer, target string) {
	r = r.on(t)
	carol := r.person("carol")
	ended := carol.tunnel("carols", target)
	began := time.Now()
	carol.do("DELETE", "/keys/"+carol.keyID(), "", 204)
	cutSoon(t, began, "key by API", map[string]<-chan error{"the tunnel": ended})
	r.relayd("key", "add", "--user", "carol", carol.key+".pub")
	ended = carol.tunnel("carols", target)
	r.relayd("key", "rm", carol.fingerprint)
	began = time.Now() // only the time after the call or command is measured
	cutSoon(t, began, "key by command", map[string]<-chan error{"the tunnel": ended})
}

func (p *person) keyID() string {
	p.r.t.Helper()
	var list struct{ Data []struct{ ID string } }
	p.r.decode(p.do("GET", "/keys", "", 200), &list)
	return list.Data[0].ID
}

func testRevokedToken(t *testing.T, r *relayServer) {
	r = r.on(t)
	dave := r.person("dave")
	dave.do("POST", "/aliases", `{"name":"daves"}`, 201)
	for how, revoke := range map[string]func(){
		"token by API":     func() { dave.do("DELETE", "/tokens/"+dave.id, "", 204) },
		"token by command": func() { r.relayd("token", "rm", dave.id) },
	} {
		open := map[string]<-chan error{
			"the stream": dave.stream(""), "the stream of an alias": dave.stream("?alias=daves"), "the wait": dave.wait(""),
		}
		revoke()
		began := time.Now() // only the time after the call or command is measured
		cutSoon(t, began, how, open)
		r.waitFor(10*time.Second, "the token to be refused", func() bool {
			return bytes.Contains(dave.do("GET", "/me", "", 0), []byte("unauthorized"))
		})
		inTime(t, began, how+": refused")
		dave.renew()
	}
}

func testRevokedUser(t *testing.T, r *relayServer, target string) {
	r = r.on(t)
	for i, how := range []string{"user by API", "user by command"} {
		name := fmt.Sprintf("erin%d", i)
		erin := r.person(name)
		open := map[string]<-chan error{"the tunnel": erin.tunnel(name+"s", target), "the stream": erin.stream(""), "the wait": erin.wait("&alias=" + name + "s")}
		if i == 0 {
			r.must(204, "DELETE", "/users/"+name, nil)
		} else {
			r.relayd("user", "rm", name)
		}
		began := time.Now() // only the time after the call or command is measured
		cutSoon(t, began, how, open)
		if got := erin.do("GET", "/me", "", 0); !bytes.Contains(got, []byte("unauthorized")) {
			t.Errorf("%s: the token is still good: %s", how, got)
		}
		// The alias of the removed account still exists, and only an admin can transfer it.
		moved := r.must(200, "POST", "/aliases/"+name+"s/transfer", []byte(`{"user":"admin"}`))
		if !bytes.Contains(moved, []byte(`"owner":"admin"`)) {
			t.Errorf("handed on: %s", moved)
		}
	}
}

func testRevokedMember(t *testing.T, r *relayServer, target string) {
	r = r.on(t)
	frank := r.person("frank")
	r.alias("ours")
	r.must(204, "PUT", "/aliases/ours/members/frank", nil)
	open := map[string]<-chan error{"the tunnel": frank.tunnel("ours", target), "the stream": frank.stream("?alias=ours"), "the wait": frank.wait("&alias=ours")}
	began := time.Now()
	r.must(204, "DELETE", "/aliases/ours/members/frank", nil)
	cutSoon(t, began, "member by API", open)
	if got := frank.do("GET", "/aliases/ours", "", 404); !bytes.Contains(got, []byte("not-found")) {
		t.Errorf("%s", got)
	}
}

func testRevokedShare(t *testing.T, r *relayServer) {
	r = r.on(t)
	r.alias("shared")
	if status, body, _ := r.call("shared", "/hook", "hello"); status != 202 {
		t.Fatalf("%d %s", status, body)
	}
	id := r.events("shared", "")[0].ID
	var share struct{ ID, Token, ReplayURL string }
	r.decode(r.must(201, "POST", "/events/"+id+"/shares", []byte(`{"view":true}`)), &share)
	address := "http://" + r.http + "/api/v1/shared/" + share.Token
	if got := r.fetch(address); !strings.Contains(got, `"method":"POST"`) {
		t.Fatalf("the share shows %s", got)
	}
	began := time.Now()
	r.must(204, "DELETE", "/events/"+id+"/shares/"+share.ID, nil)
	r.waitFor(10*time.Second, "the share to end", func() bool { return strings.Contains(r.fetch(address), "not-found") })
	inTime(t, began, "share by API: ended")
	res, err := http.Post(r.local(share.ReplayURL), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 404 {
		t.Errorf("a revoked share replays: %d", res.StatusCode)
	}
}

func testRevokedSession(t *testing.T, r *relayServer) {
	r = r.on(t)
	r.alias("watched")
	c, _ := r.browser("admin")
	withCookie := func(path string) *http.Request {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+r.http+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.AddCookie(r.cookie(c))
		return req
	}
	var list struct {
		Data []struct {
			ID      string
			Current bool
		}
	}
	res, err := c.Get("http://" + r.http + "/api/v1/sessions")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	open := map[string]<-chan error{
		"the stream": r.follow(withCookie("/api/v1/stream")), "the page's stream": r.follow(withCookie("/aliases/watched/live")),
	}
	began := time.Now()
	for _, s := range list.Data {
		if s.Current {
			r.must(204, "DELETE", "/sessions/"+s.ID, nil)
		}
	}
	cutSoon(t, began, "session by API", open)
	r.waitFor(10*time.Second, "the cookie to be refused", func() bool {
		res, err := http.DefaultClient.Do(withCookie("/api/v1/me"))
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == 401
	})
	inTime(t, began, "session by API: the cookie was refused")
}
