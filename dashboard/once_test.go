package dashboard_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/html"

	"relay"
	"relay/store"
)

// pageForm is a form of a page with the fields that a browser sends.
type pageForm struct {
	action, method string
	fields         url.Values
	button         string // the text of the submit button
}

// formsOf reads the forms of a page; a button with its own formaction counts as a form.
func formsOf(t *testing.T, at, page string) (forms []*pageForm) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	must(t, err)
	attr := func(n *html.Node, name string) (string, bool) {
		for _, a := range n.Attr {
			if a.Key == name {
				return a.Val, true
			}
		}
		return "", false
	}
	var walk func(n *html.Node, in *pageForm)
	walk = func(n *html.Node, in *pageForm) {
		name, hasName := attr(n, "name")
		value, _ := attr(n, "value")
		kind, _ := attr(n, "type")
		_, checked := attr(n, "checked")
		switch n.Data {
		case "form":
			action, ok := attr(n, "action")
			if !ok {
				action = at
			}
			method, _ := attr(n, "method")
			in = &pageForm{action: action, method: method, fields: url.Values{}}
			forms = append(forms, in)
		case "input":
			if in != nil && hasName && (kind != "checkbox" || checked) {
				in.fields.Add(name, value)
			}
		case "textarea":
			if in != nil && hasName {
				text := ""
				if n.FirstChild != nil {
					text = n.FirstChild.Data
				}
				in.fields.Add(name, text)
			}
		case "button":
			text := ""
			if n.FirstChild != nil {
				text = n.FirstChild.Data
			}
			if to, ok := attr(n, "formaction"); ok {
				f := &pageForm{action: to, method: "post", fields: url.Values{}, button: text}
				if hasName {
					f.fields.Add(name, value)
				}
				forms = append(forms, f)
			} else if in != nil && in.button == "" {
				in.button = text
			}
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			walk(c, in)
		}
	}
	walk(root, nil)
	return forms
}

// formAt returns the POST form of a page that is sent to an address which matches the regular expression
// action.
func (r *fixture) formAt(page, action string) *pageForm {
	r.t.Helper()
	for _, f := range formsOf(r.t, page, r.get(page, 200)) {
		if f.method == "post" && regexp.MustCompile("^"+action+"$").MatchString(f.action) {
			return f
		}
	}
	r.t.Fatalf("%s has no form for %s", page, action)
	return nil
}

// routePattern matches the routes in the source of the dashboard.
var routePattern = regexp.MustCompile(`(?:Handle|Data)\("((?:GET|POST) /[^"]*)"`)

func routesOf(t *testing.T, method string) (list []string) {
	t.Helper()
	for _, file := range []string{"dashboard.go", "alias/routes.go", "event/routes.go", "people/routes.go"} {
		source, err := os.ReadFile(file)
		must(t, err)
		for _, m := range routePattern.FindAllStringSubmatch(string(source), -1) {
			if path, ok := strings.CutPrefix(m[1], method+" "); ok && path != "/assets/" {
				list = append(list, strings.TrimSuffix(path, "{$}"))
			}
		}
	}
	if len(list) < 15 {
		t.Fatalf("only %d routes of %s were found", len(list), method)
	}
	return list
}

// filled replaces the placeholders in the pattern of a route by names and ids from the data of allPages.
func (g *allPages) filled(pattern string) string {
	return strings.NewReplacer("{alias}", "stripe-dev", "{id}", g.paid.String(), "{n}", "0", "{share}", "x", "{user}", "bob", "{code}", "k3yl1nk",
		"/diff", "/diff?left="+g.paid.String(), "/s/{token}", g.share, "/invite/{token}", "/invite/"+g.invite, "/login/{token}", "/login/"+g.loginLink).Replace(pattern)
}

// TestOnlyPagesAreRemembered: a request without a session may set a cookie with the address to which the next
// login leads. For every route, that address is one of a page. Requests of scripts set no such cookie.
func TestOnlyPagesAreRemembered(t *testing.T) {
	t.Parallel()
	g := newAllPages(t)
	base, _ := url.Parse(g.base)
	next := func(path, mode string) string {
		jar, _ := cookiejar.New(nil)
		req, err := http.NewRequest("GET", g.base+path, nil)
		must(t, err)
		if mode != "" {
			req.Header.Set("Sec-Fetch-Mode", mode)
		}
		res, err := (&http.Client{Jar: jar}).Do(req)
		must(t, err)
		res.Body.Close()
		for _, c := range jar.Cookies(base) {
			if strings.HasSuffix(c.Name, "_next") {
				to, err := url.QueryUnescape(c.Value)
				must(t, err)
				return to
			}
		}
		return ""
	}
	paths := []string{"/favicon.ico", "/nothing", "/api/v1/events/" + g.paid.String() + "/request.raw", "/live?after=x", "/aliases/stripe-dev/live?after=x-1"}
	for _, pattern := range append(routesOf(t, "GET"), routesOf(t, "POST")...) {
		paths = append(paths, g.filled(pattern))
	}
	remembered := 0
	for _, path := range paths {
		for _, mode := range []string{"cors", "no-cors", "same-origin"} {
			if to := next(path, mode); to != "" {
				t.Errorf("%s, fetched by a page (%s): %s is remembered", path, mode, to)
			}
		}
		for _, mode := range []string{"", "navigate"} {
			to := next(path, mode)
			if to == "" {
				continue
			}
			remembered++
			g.login(map[bool]string{true: "root", false: "alice"}[strings.HasPrefix(to, "/admin")])
			contains(t, path, g.get(to, 200), "<!doctype html>")
		}
	}
	if remembered < 20 {
		t.Errorf("only %d addresses are remembered", remembered)
	}
	if to := next("/aliases/stripe-dev?status=5xx", "navigate"); to != "/aliases/stripe-dev?status=5xx" {
		t.Errorf("remembered %q", to)
	}
}

// TestLoginLeadsToAPage: after a login, a remembered address that is no page leads to the page above it or to
// the home page.
func TestLoginLeadsToAPage(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	for next, want := range map[string]string{
		"/aliases/hook/live?after=x-1": "/aliases/hook", "/aliases/hook/qr.svg": "/aliases/hook", "/account/tokens": "/account", "/favicon.ico": "/",
		"/aliases/hook?status=5xx": "/aliases/hook?status=5xx", "/api/v1/me": "/", "/assets/stream.js": "/", "//evil.test/": "/", "/aliases/hook/../hook/live": "/aliases/hook",
	} {
		link, err := r.s.CreateLoginLink(t.Context(), relay.System(), "alice", patience)
		must(t, err)
		req, err := http.NewRequest("POST", r.base+"/login/"+link, nil)
		must(t, err)
		req.AddCookie(&http.Cookie{Name: "relay_next", Value: url.QueryEscape(next)})
		res, err := http.DefaultTransport.RoundTrip(req)
		must(t, err)
		res.Body.Close()
		if got := res.Header.Get("Location"); got != want {
			t.Errorf("%s leads to %s, want %s", next, got, want)
		}
	}
}

// TestAddressesOfFormsAreNoDeadEnds: a GET of the address of each form leads to a page. Unknown addresses are
// not found.
func TestAddressesOfFormsAreNoDeadEnds(t *testing.T) {
	t.Parallel()
	g := newAllPages(t)
	g.login("root")
	must(t, g.s.AddMember(t.Context(), relay.System(), "stripe-dev", "root"))
	for _, pattern := range routesOf(t, "POST") {
		path := g.filled(pattern)
		contains(t, path, g.get(path, 200), "<!doctype html>")
	}
	g.get("/nothing", 404)
	g.get("/aliases/stripe-dev/nothing", 404)
	g.do("DELETE", "/account/tokens", nil, nil, 404)
}

// TestFormsActOnce: a form that is sent twice, one after the other or both at the same time, acts once and
// returns the same answer twice. If the page is loaded again, its form acts again.
func TestFormsActOnce(t *testing.T) {
	t.Parallel()
	type count = func(g *allPages) int
	list := func(api string) count {
		return func(g *allPages) int { return strings.Count(g.get("/api/v1/"+api, 200), `"id":`) }
	}
	paid := func(g *allPages) string { return "/events/" + g.paid.String() }
	attempts := func(g *allPages) int { return g.attempts(g.paid) }
	for _, c := range []struct {
		name, page, action string
		fields             url.Values
		counted            count
		adds               int // how much a sent form adds to the result of counted
		same               string
	}{
		{"replay", "EVENT", "EVENT/replay", nil, attempts, 1, ""},
		{"replay of a row", "/aliases/stripe-dev?pinned=true", `EVENT/replay\?once=[0-9]*`, nil, attempts, 1, ""},
		{"replay of several", "/aliases/stripe-dev/replay?id=ID", "/aliases/stripe-dev/replay", nil, attempts, 1, "1 event is being replayed"},
		{"replay queued", "/aliases/github-dev/replay-queued", "/aliases/github-dev/replay-queued", nil, func(g *allPages) int {
			e, err := g.s.Event(context.Background(), relay.System(), g.queued, 0)
			must(g.t, err)
			return map[bool]int{true: 1}[e.Attempts[0].Released]
		}, 1, "2 "},
		{"cancel", "QUEUED", "QUEUED/cancel", nil, func(g *allPages) int {
			return map[bool]int{true: 1}[strings.Contains(g.get("/events/"+g.queued.String(), 200), `data-state="canceled"`)]
		}, 1, `data-state="canceled"`},
		{"share", "EVENT/share?expires=7d", "EVENT/shares", nil, func(g *allPages) int { return list(paid(g)[1:] + "/shares")(g) }, 1, `/s/[A-Za-z0-9_-]{20,}`},
		{"share that is gone", "EVENT", "EVENT/shares/[^/]*/revoke", nil, func(g *allPages) int { return list(paid(g)[1:] + "/shares")(g) }, -1, ""},
		{"delete", "EVENT/delete", "EVENT/delete", nil, func(g *allPages) int { return strings.Count(g.get("/aliases/stripe-dev?pinned=true", 200), "<li id=") }, -1, "Events"},
		{"token", "/account", "/account/tokens", url.Values{"name": {"ci"}, "scopes": {"events:read"}, "expiresIn": {"30d"}}, list("tokens"), 1, `rly_[A-Za-z0-9_-]{20,}`},
		{"session", "/account", "/account/sessions/[^/]*/remove", nil, list("sessions"), -1, "The session was revoked"},
		{"alias", "/", "/aliases", url.Values{"name": {"brand-new"}}, func(g *allPages) int { return strings.Count(g.get("/api/v1/aliases", 200), `"name":`) }, 1, "brand-new"},
		{"test event", "/aliases/shop-staging", "/aliases/shop-staging/test", nil, func(g *allPages) int { return list("events?alias=shop-staging")(g) }, 1, ""},
		{"member", "/aliases/stripe-dev/settings", "/aliases/stripe-dev/settings/members", url.Values{"user": {"root"}}, func(g *allPages) int {
			return strings.Count(g.get("/api/v1/aliases/stripe-dev/members", 200), `"user":`)
		}, 1, "The member was added"},
		{"alias that is gone", "/aliases/shop-staging/settings", "/aliases/shop-staging/settings/remove", url.Values{"confirm": {"shop-staging"}}, func(g *allPages) int {
			return strings.Count(g.get("/api/v1/aliases", 200), `"name":`)
		}, -1, "The alias was deleted"},
		{"shared replay", "SHARE", "SHARE/replay", nil, attempts, 1, ""},
	} {
		for _, atOnce := range []bool{false, true} {
			t.Run(c.name+map[bool]string{true: ", at once"}[atOnce], func(t *testing.T) {
				t.Parallel()
				g := newAllPages(t)
				link, err := g.s.CreateLoginLink(t.Context(), relay.System(), "alice", patience)
				must(t, err)
				// This makes a second session. It comes first in the list, because it is the newest, so that
				// the case "session" revokes it and not the session of the test.
				_, _, err = g.s.UseLoginLink(t.Context(), link, "127.0.0.1:2", "other browser")
				must(t, err)
				fill := strings.NewReplacer("EVENT", paid(g), "QUEUED", "/events/"+g.queued.String(), "ID", g.paid.String(), "SHARE", g.share)
				form := g.formAt(fill.Replace(c.page), fill.Replace(c.action))
				for name, values := range c.fields {
					form.fields[name] = values
				}
				before := c.counted(g)
				answers := make([]string, 2)
				var both sync.WaitGroup
				for i := range answers {
					send := func() { answers[i] = g.send200(form) }
					if atOnce {
						both.Go(send)
					} else {
						send()
					}
				}
				both.Wait()
				if after := c.counted(g); after != before+c.adds {
					t.Errorf("counted %d, want %d", after, before+c.adds)
				}
				if c.same != "" {
					if one, two := regexp.MustCompile(c.same).FindString(answers[0]), regexp.MustCompile(c.same).FindString(answers[1]); one == "" || one != two {
						t.Errorf("answers %q and %q", one, two)
					}
				}
				if c.adds != 1 || strings.Contains(c.name, "queued") || c.name == "cancel" || c.name == "alias" || c.name == "member" || c.name == "test event" {
					return
				}
				// This form comes from a page that was loaded after the first form had acted, so it acts again.
				again := g.formAt(fill.Replace(c.page), fill.Replace(c.action))
				for name, values := range c.fields {
					again.fields[name] = values
				}
				g.send200(again)
				if after := c.counted(g); after != before+2*c.adds {
					t.Errorf("counted %d after another one, want %d", after, before+2*c.adds)
				}
			})
		}
	}
}

// send200 sends a form, follows its redirect, and returns the page. Another status than 200 fails the test.
// send200 may be called concurrently.
func (r *fixture) send200(f *pageForm) string {
	res, err := r.client.PostForm(r.base+f.action, f.fields)
	if err != nil {
		r.t.Error(err)
		return ""
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 {
		r.t.Errorf("POST %s = %d, %v: %.400s", f.action, res.StatusCode, err, body)
	}
	return string(body)
}

// TestEveryActingFormIsTold: each form of a POST has a value for OnceField, unless it may be sent twice
// without harm.
func TestEveryActingFormIsTold(t *testing.T) {
	t.Parallel()
	g := newAllPages(t)
	sets := regexp.MustCompile(`^/(theme|logout|login/.*|invite/.*|link/.*|events/[^/]*/mark|aliases/[^/]*/searches|aliases/[^/]*/send|aliases/[^/]*/settings)$`)
	seen := map[string]bool{}
	look := func(paths []string) {
		for _, path := range paths {
			res, err := g.client.Get(g.base + path)
			must(t, err)
			page, err := io.ReadAll(res.Body)
			must(t, err)
			res.Body.Close()
			for _, f := range formsOf(t, path, string(page)) {
				if f.method != "post" || f.action == path && f.button == "" {
					continue
				}
				seen[f.action] = true
				if told := f.fields.Get("once") != "" || strings.Contains(f.action, "?once="); !told && !sets.MatchString(f.action) {
					t.Errorf("%s: the form for %s (%s) can act twice", path, f.action, f.button)
				}
			}
		}
	}
	own, admin := g.pages()
	look(own)
	g.login("root")
	look(admin)
	if len(seen) < 25 {
		t.Errorf("only %d forms were looked at", len(seen))
	}
}

// TestFormSecretsAreNotStored: the files of the database contain neither the secret of a new token or share,
// nor the text that identifies the form of the token.
func TestFormSecretsAreNotStored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := newFixtureOn(t, store.Options{DataDir: dir, AliasClaim: true, MaxAliases: 50})
	id := r.send(post("/hook", "{}")).String()
	token := r.formAt("/account", "/account/tokens")
	token.fields["name"], token.fields["scopes"], token.fields["expiresIn"] = []string{"ci"}, []string{"events:read"}, []string{"30d"}
	secrets := []string{
		regexp.MustCompile(`rly_[A-Za-z0-9_-]{20,}`).FindString(r.send200(token)), token.fields.Get("once"),
		regexp.MustCompile(`/s/([A-Za-z0-9_-]{20,})`).FindString(r.send200(r.formAt("/events/"+id+"/share", "/events/"+id+"/shares")))[3:],
	}
	files, err := filepath.Glob(filepath.Join(dir, "relay.db*"))
	must(t, err)
	if len(files) == 0 {
		t.Fatal("no database")
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		must(t, err)
		for _, secret := range secrets {
			if secret == "" || bytes.Contains(content, []byte(secret)) {
				t.Errorf("%s holds %q", filepath.Base(file), secret)
			}
		}
	}
}
