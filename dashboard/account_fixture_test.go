package dashboard_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/api"
	"relay/dashboard"
	"relay/store"
)

// offlineDeliverer is a Deliverer that reports every alias as offline.
type offlineDeliverer struct{ dashboard.Deliverer }

func (offlineDeliverer) Status(_ context.Context, aliases []relay.Alias) ([]relay.AliasStatus, error) {
	return make([]relay.AliasStatus, len(aliases)), nil
}

func (offlineDeliverer) FeedID() string { return "" }

// accountFixture is the dashboard on a real store, with the developers alice and bob and the admin root.
// cookies holds a session of each.
type accountFixture struct {
	*testing.T
	*store.Store
	pages   http.Handler
	cookies map[string]*http.Cookie
}

func newAccountFixture(t *testing.T, edit ...func(*dashboard.Options)) *accountFixture {
	t.Helper()
	return newAccountFixtureOn(t, store.Options{DataDir: t.TempDir(), AliasClaim: true, MaxAliases: 3}, edit...)
}

func newAccountFixtureOn(t *testing.T, so store.Options, edit ...func(*dashboard.Options)) *accountFixture {
	t.Helper()
	s, err := store.Open(t.Context(), so)
	o := &accountFixture{T: t, Store: s, cookies: map[string]*http.Cookie{}}
	o.must(err)
	t.Cleanup(func() { _ = s.Close() })
	_, _, err = s.Migrate(t.Context())
	o.must(err)
	o.must(s.Serve(t.Context(), func([]relay.Change) {}))
	base, _ := url.Parse("http://localhost:8080")
	opt := dashboard.Options{
		Accounts: s, Events: s, Deliver: offlineDeliverer{}, Limits: api.NewLimits(api.Rate{}, api.Rate{}), Log: slog.New(slog.DiscardHandler), HostKey: "SHA256:hostkey",
		Site: relay.Site{Base: *base, AliasDomain: "localhost", SSHAddr: "localhost:2222", Loopback: true},
	}
	for _, e := range edit {
		e(&opt)
	}
	o.pages = dashboard.New(opt)
	for _, name := range []string{"alice", "bob", "root"} {
		_, err := s.CreateAccount(t.Context(), relay.System(), name, name == "root")
		o.must(err)
		o.cookies[name] = o.login(name)
	}
	return o
}

func (o *accountFixture) login(name string) *http.Cookie {
	o.Helper()
	link, err := o.CreateLoginLink(o.Context(), relay.System(), name, 0)
	o.must(err)
	secret, _, err := o.UseLoginLink(o.Context(), link, "192.0.2.7:1234", "Test/1 <b>")
	o.must(err)
	return &http.Cookie{Name: "relay_session", Value: secret}
}

func (o *accountFixture) must(err error) {
	o.Helper()
	if err != nil {
		o.Fatal(err)
	}
}

// answer is the response that a browser receives.
type answer struct {
	t      *testing.T
	status int
	to     string // target of a redirect
	body   string
	head   http.Header
}

var inline = regexp.MustCompile(`(?i)<style|<script>|\sstyle=|\son[a-z]+=|javascript:`)

// send sends a request as a user: a POST if form is not nil, else a GET.
func (o *accountFixture) send(user, path string, form url.Values) answer {
	o.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	if form != nil {
		r = httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if c := o.cookies[user]; c != nil {
		r.AddCookie(c)
	}
	w := httptest.NewRecorder()
	o.pages.ServeHTTP(w, r)
	body := w.Body.String()
	if found := inline.FindString(body); found != "" {
		o.Errorf("%s has %q, which the content security policy stops", path, found)
	}
	return answer{o.T, w.Code, w.Header().Get("Location"), body, w.Header()}
}

func (o *accountFixture) get(user, path string) answer {
	o.Helper()
	return o.send(user, path, nil)
}

// post posts fields given as name, value, name, value.
func (o *accountFixture) post(user, path string, fields ...string) answer {
	o.Helper()
	form := url.Values{}
	for i := 0; i+1 < len(fields); i += 2 {
		form.Add(fields[i], fields[i+1])
	}
	return o.send(user, path, form)
}

// want checks the status and that the page contains all texts.
func (a answer) want(status int, texts ...string) answer {
	a.t.Helper()
	if a.status != status {
		a.t.Errorf("status %d, want %d: %s", a.status, status, a.body)
	}
	for _, text := range texts {
		if !strings.Contains(a.body, text) {
			a.t.Errorf("the page lacks %q:\n%s", text, a.body)
		}
	}
	return a
}

// lacks checks that the page contains none of the texts.
func (a answer) lacks(texts ...string) answer {
	a.t.Helper()
	for _, text := range texts {
		if strings.Contains(a.body, text) {
			a.t.Errorf("the page has %q:\n%s", text, a.body)
		}
	}
	return a
}

// redirectsTo checks a redirect after a form.
func (a answer) redirectsTo(to string) {
	a.t.Helper()
	if a.status != http.StatusSeeOther || a.to != to {
		a.t.Errorf("status %d to %q, want 303 to %q: %s", a.status, a.to, to, a.body)
	}
}

// actor returns the actor that a browser is logged in as.
func (o *accountFixture) actor(user string) relay.Actor {
	o.Helper()
	who, err := o.SessionOwner(o.Context(), o.cookies[user].Value)
	o.must(err)
	return who
}

// alias makes an alias.
func (o *accountFixture) alias(user, name string) *relay.Alias {
	o.Helper()
	a, err := o.CreateAlias(o.Context(), o.actor(user), name, "")
	o.must(err)
	return a
}

// publicKey returns the authorized_keys line of a new key.
func (o *accountFixture) publicKey() string {
	o.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	o.must(err)
	key, err := ssh.NewPublicKey(public)
	o.must(err)
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

// event stores an event. Its response has the given status, and came after the time in the parameter took. With
// status 0 there is no response, because the local server refused the connection.
func (o *accountFixture) event(a *relay.Alias, status int, took time.Duration) {
	o.Helper()
	now := time.Now().UTC()
	e := &relay.Event{
		ID: o.NewID(), AliasID: a.ID, Alias: a.Name, ReceivedAt: now, LastReceivedAt: now, Remote: netip.MustParseAddrPort("192.0.2.7:1"),
		Method: "POST", Target: []byte("/hook"), HTTPMinor: 1, Host: a.Name + ".localhost", State: relay.StateDelivering,
		Request:  relay.Message{Head: []byte("POST /hook HTTP/1.1\r\n\r\n"), Body: relay.Body{State: relay.BodyComplete}},
		Attempts: []relay.Attempt{{N: 1, Kind: relay.KindOriginal, State: relay.StateDelivering, ReceivedAt: now}},
	}
	end := &relay.Attempt{N: 1, State: relay.StateFailed, StartedAt: now, EndedAt: now, Error: &relay.Fault{Code: relay.CodeLocalRefused}}
	if status != 0 {
		end = &relay.Attempt{
			N: 1, State: relay.StateDelivered, StartedAt: now, EndedAt: now, HasTiming: true, Timing: relay.Timing{Wait: took},
			HasResponse: true, Status: status, ResponseState: relay.ResponseComplete,
			Response: relay.Message{Head: []byte("HTTP/1.1 200 OK\r\n\r\n"), Body: relay.Body{State: relay.BodyComplete}},
		}
	}
	for _, t := range []*relay.Ticket{o.Accept(e), o.Finish(e.ID, end, "")} {
		<-t.Done()
		o.must(t.Err())
	}
}
