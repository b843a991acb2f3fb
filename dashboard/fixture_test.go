package dashboard_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay"
	"relay/api"
	"relay/dashboard"
	"relay/delivery"
	"relay/store"
	"relay/wire"
)

// fixture is the dashboard with a real store and a real delivery; only the tunnel is in memory.
type fixture struct {
	t       *testing.T
	s       *store.Store
	d       *delivery.Delivery
	alias   *relay.Alias
	base    string
	handler http.Handler
	client  *http.Client
	session string
	hold    relay.Attachment

	refuse atomic.Bool // the local server refuses connections

	mu     sync.Mutex
	answer func(head, body []byte) string
}

const ok = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{\"ok\":true}"

func newFixture(t *testing.T, change ...func(*dashboard.Options)) *fixture {
	t.Helper()
	return newFixtureOn(t, store.Options{DataDir: t.TempDir(), AliasClaim: true, MaxAliases: 50}, change...)
}

func newFixtureOn(t *testing.T, so store.Options, change ...func(*dashboard.Options)) *fixture {
	t.Helper()
	ctx, sys := context.Background(), relay.System()
	s, err := store.Open(ctx, so)
	must(t, err)
	_, _, err = s.Migrate(ctx)
	must(t, err)
	r := &fixture{t: t, s: s, answer: func([]byte, []byte) string { return ok }}
	srv := httptest.NewUnstartedServer(nil)
	r.base = "http://" + srv.Listener.Addr().String()
	base, err := url.Parse(r.base)
	must(t, err)
	site := relay.Site{Base: *base, AliasDomain: "localhost", SSHAddr: "localhost:2222", Loopback: true}
	r.d = delivery.New(delivery.Options{
		Store: s, Site: site, MaxHead: 128 << 10, MaxBody: 32 << 20, MaxResponseCapture: 32 << 20,
		ResponseTimeout: patience, QueueLimit: 10000, QueueBytes: 1 << 30,
	})
	must(t, s.Serve(ctx, r.d.Publish))
	must(t, r.d.Start(ctx))
	o := dashboard.Options{Accounts: s, Events: s, Deliver: r.d, Limits: api.NewLimits(api.Rate{}, api.Rate{}), Site: site}
	for _, c := range change {
		c(&o)
	}
	mux := http.NewServeMux()
	mux.Handle("/", dashboard.New(o))
	// Pages link to exports and raw bytes of the API.
	mux.Handle("/api/", api.New(api.Options{Accounts: s, Events: s, Deliver: r.d, Limits: api.NewLimits(api.Rate{}, api.Rate{}), Site: site}))
	srv.Config.Handler, r.handler = mux, mux
	srv.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		srv.CloseClientConnections()
		_ = r.d.Close(ctx)
		srv.Close()
		must(t, s.Close())
	})
	_, err = s.CreateAccount(ctx, sys, "alice", false)
	must(t, err)
	r.alias, err = s.CreateAlias(ctx, sys, "hook", "alice")
	must(t, err)
	r.login("alice")
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// login logs the fixture's client in.
func (r *fixture) login(name string) {
	ctx := context.Background()
	link, err := r.s.CreateLoginLink(ctx, relay.System(), name, time.Minute)
	must(r.t, err)
	r.session, _, err = r.s.UseLoginLink(ctx, link, "127.0.0.1:1", "test")
	must(r.t, err)
	jar, err := cookiejar.New(nil)
	must(r.t, err)
	u, _ := url.Parse(r.base)
	jar.SetCookies(u, []*http.Cookie{{Name: "relay_session", Value: r.session}})
	r.client = &http.Client{Jar: jar}
}

// online attaches a tunnel to the alias.
func (r *fixture) online() {
	r.hold = r.d.Attach(r.alias, &tunnel{r: r})
}

func (r *fixture) offline() { r.hold.Detach(true) }

func (r *fixture) answers(f func(head, body []byte) string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

// send delivers a request to the alias hook, and returns the id of its event.
func (r *fixture) send(request string) relay.ID {
	r.t.Helper()
	return r.sendTo("hook", request)
}

// sendTo captures a request to an alias, and returns the id of the newest event of that alias.
func (r *fixture) sendTo(alias, request string) relay.ID {
	r.t.Helper()
	_, n, err := wire.Request([]byte(request), wire.Limits{})
	must(r.t, err)
	a, found := r.d.Alias(alias)
	if !found {
		r.t.Fatal("no alias")
	}
	c := &caller{rest: []byte(request[n:]), gone: make(chan struct{})}
	defer close(c.gone)
	r.d.Capture(context.Background(), &relay.Inbound{
		Alias: a, From: netip.MustParseAddrPort("203.0.113.9:52011"), Arrived: time.Now(), Head: []byte(request[:n]), Caller: c,
	})
	page, err := r.s.Events(context.Background(), relay.System(), relay.Filter{Alias: alias, Limit: 1})
	must(r.t, err)
	if len(page.Events) == 0 {
		r.t.Fatal("nothing was kept")
	}
	return page.Events[0].ID
}

// post returns a POST request with a JSON body.
func post(path, body string, headers ...string) string {
	lines := ""
	for _, h := range headers {
		lines += h + "\r\n"
	}
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: hook.localhost\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", path, lines, len(body), body)
}

// get fetches a page, and fails the test if it has another status.
func (r *fixture) get(path string, status int) string {
	r.t.Helper()
	return r.do("GET", path, nil, nil, status)
}

// submit posts a form, follows the redirect, and fails the test if the page has another status.
func (r *fixture) submit(path string, form url.Values, status int) string {
	r.t.Helper()
	return r.do("POST", path, form, nil, status)
}

// replay replays an event, and returns its page when the new attempt has ended.
func (r *fixture) replay(id string) (page string) {
	r.t.Helper()
	page = r.submit("/events/"+id+"/replay", nil, 200)
	r.await("the end of the replay of "+id, func() bool {
		if strings.Contains(page, `data-state="delivering"`) {
			page = r.get("/events/"+id, 200)
		}
		return !strings.Contains(page, `data-state="delivering"`)
	})
	return page
}

func (r *fixture) do(method, path string, form url.Values, header http.Header, status int) string {
	r.t.Helper()
	req, err := http.NewRequest(method, r.base+path, strings.NewReader(form.Encode()))
	must(r.t, err)
	if method == "POST" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for k, v := range header {
		req.Header[k] = v
	}
	res, err := r.client.Do(req)
	must(r.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	must(r.t, err)
	if res.StatusCode != status {
		r.t.Fatalf("%s %s = %d, want %d: %.600s", method, path, res.StatusCode, status, body)
	}
	return string(body)
}

// contains checks that a page has each of the texts.
func contains(t *testing.T, what, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("%s lacks %q", what, text)
		}
	}
}

// caller is a caller's connection in memory: its body is complete, and its answer is discarded.
type caller struct {
	rest []byte
	gone chan struct{}
}

func (c *caller) Buffered() int { return len(c.rest) }

func (c *caller) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		<-c.gone
		return 0, io.ErrClosedPipe
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *caller) Unread([]byte)               {}
func (c *caller) Write(p []byte) (int, error) { return len(p), nil }
func (c *caller) DisableWriteTimeout()        {}
func (c *caller) ResetOnCrash()               {}
func (c *caller) Presence() relay.Presence    { return relay.CallerPresent }
func (*caller) Left() bool                    { return false }
func (c *caller) CloseWrite() error           { return nil }
func (c *caller) Abort()                      {}

// tunnel is a tunnel to the fixture's answer function.
type tunnel struct{ r *fixture }

func (u *tunnel) Open(context.Context, netip.AddrPort) (relay.Conn, error) {
	if u.r.refuse.Load() {
		return nil, relay.Errorf(relay.CodeLocalRefused, "the local server could not be reached")
	}
	far, near := net.Pipe()
	go u.serve(far)
	return newChannel(near), nil
}

func (u *tunnel) Heard() time.Duration { return 0 }
func (u *tunnel) LazyDial() bool       { return false }
func (u *tunnel) Close(string)         {}

func (u *tunnel) Info() relay.TunnelInfo {
	return relay.TunnelInfo{Client: "OpenSSH_9.2p1", Remote: netip.MustParseAddrPort("127.0.0.1:4000"), User: "alice", Since: time.Now()}
}

// serve answers one request after another.
func (u *tunnel) serve(c net.Conn) {
	defer c.Close()
	var got []byte
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		got = append(got, buf[:n]...)
		h, n, err := wire.Request(got, wire.Limits{})
		if err != nil {
			continue
		}
		end := n + int(h.Length)
		if h.Framing == relay.FramingChunked {
			if end = len(got); !bytes.Contains(got[n-2:], []byte("\r\n0\r\n")) || !bytes.HasSuffix(got, []byte("\r\n\r\n")) {
				// Trailers may stand between the last chunk and the end.
				continue
			}
		}
		if len(got) < end {
			continue
		}
		u.r.mu.Lock()
		answer := u.r.answer
		u.r.mu.Unlock()
		if _, err := io.WriteString(c, answer(got[:n:n], got[n:end:end])); err != nil {
			return
		}
		got = got[end:]
	}
}

// channel is a connection to the local server, read by its own goroutine.
type channel struct {
	net.Conn
	ready chan struct{}
	mu    sync.Mutex
	came  []byte
	err   error
}

func newChannel(c net.Conn) *channel {
	h := &channel{Conn: c, ready: make(chan struct{}, 1)}
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := c.Read(buf)
			h.mu.Lock()
			h.came, h.err = append(h.came, buf[:n]...), err
			h.mu.Unlock()
			h.signal()
			if err != nil {
				return
			}
		}
	}()
	return h
}

func (c *channel) signal() {
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

func (c *channel) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := copy(p, c.came)
	c.came = c.came[n:]
	if n == 0 {
		return 0, c.err
	}
	if len(c.came) > 0 || c.err != nil {
		c.signal()
	}
	return n, nil
}

func (c *channel) Ready() <-chan struct{}              { return c.ready }
func (c *channel) End(time.Duration) (e relay.ConnEnd) { return e }
func (c *channel) CloseWrite() error                   { return nil }

// count returns how often text occurs in a page after the first occurrence of the text in the parameter from;
// the dialog of keyboard shortcuts does not count.
func count(page, from, text string) int {
	_, rest, _ := strings.Cut(page, from)
	return strings.Count(rest, text) - strings.Count(rest[max(0, strings.Index(rest, `<dialog id="keys"`)):], text)
}
