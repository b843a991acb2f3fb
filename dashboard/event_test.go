package dashboard_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"relay"
	"relay/api"
	"relay/dashboard"
	"relay/record"
)

func TestInspectorShowsWhatCame(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.online()
	id := r.send(post("/hook?b=2&a=%41&b=%zz", `{"z":1.0,"a":"\u00e9","z":2}`, "X-lower: one", "X-LOWER: two", "X-Bin: caf\xe9\u202e",
		fmt.Sprintf("Stripe-Signature: t=%d,v1=x", time.Now().Add(-time.Hour).Unix()))).String()
	page := r.get("/events/"+id, 200)
	contains(t, "inspector", page,
		`data-event-id="`+id+`"`, `data-attempt="1"`, "POST /hook?b=2&amp;a=%41&amp;b=%zz HTTP/1.1",
		"<code>X-lower</code>", "<code>X-LOWER</code>", `caf\xe9\u202e`, // a character that reverses the direction of text is shown as an escape
		// Numbers keep their form, and members with the same name are all shown.
		"&#34;z&#34;: 1.0,\n  &#34;a&#34;: &#34;é&#34;,\n  &#34;z&#34;: 2",
		"SHA-256 ", "Identical to the original request", "Sent by Stripe", "Expired: a replay", `href="/aliases/hook?provider=stripe"`, `href="/aliases/hook?status=200"`, "(tolerance 5m)", "/request.raw", "/response.body",
		"HTTP/1.1 200 OK", "new connection",
	)
	// The local server of the fixture may answer within a microsecond after the write, and then no wait is drawn.
	if !strings.Contains(page, `<rect class="send"`) && !strings.Contains(page, `<rect class="wait"`) {
		t.Error("the time line has no phase")
	}
	if strings.Index(page, "<code>X-lower</code>") > strings.Index(page, "<code>X-LOWER</code>") {
		t.Error("header lines are not in their order")
	}
	contains(t, "hex", r.get("/events/"+id+"?body=hex", 200), "7b 22 7a 22 3a 31 2e 30")
	contains(t, "raw", r.get("/events/"+id+"?body=raw", 200), `{&#34;z&#34;:1.0,`)
	if part := r.do("GET", "/events/"+id, nil, http.Header{"X-Regions": {"detail"}}, 200); strings.Contains(part, "<html") || !strings.Contains(part, `id="event"`) {
		t.Errorf("partial: %.200s", part)
	}
	for _, other := range []string{"evt_00000000000000000000000000", "evt_x", "..%2f"} {
		r.get("/events/"+other, 404)
	}
	_, err := r.s.CreateAccount(context.Background(), relay.System(), "mallory", false)
	must(t, err)
	r.login("mallory")
	for _, path := range []string{"/events/" + id, "/aliases/hook", "/aliases/hook/live", "/api/v1/events/" + id + "/export?format=json", "/aliases/hook/replay-queued"} {
		r.get(path, 404)
	}
	for _, path := range []string{"/events/" + id + "/replay", "/events/" + id + "/cancel", "/events/" + id + "/shares", "/aliases/hook/replay-queued"} {
		r.submit(path, nil, 404)
	}
	r.client = &http.Client{}
	contains(t, "stranger", r.get("/events/"+id, 401), "login")
}

// TestRefusedHostIsShown: if the local server refused the Host header, the inspector and the list show it,
// and the inspector names two remedies.
func TestRefusedHostIsShown(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.online()
	r.answers(func(_, _ []byte) string {
		return "HTTP/1.1 403 Forbidden\r\nContent-Length: 19\r\n\r\nInvalid Host header"
	})
	id := r.send(post("/hook", `{}`)).String()
	contains(t, "inspector", r.get("/events/"+id, 200),
		"(webpack-dev-server) refused the Host header", "relay up with --host-header rewrite", "alias set hook hostHeader=")
	contains(t, "list", r.get("/aliases/hook", 200), "Host refused")
}

func TestBodies(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	body := func(kind, content string, more ...string) string {
		lines := strings.Join(append(more, ""), "\r\n")
		return r.send(fmt.Sprintf("POST / HTTP/1.1\r\nHost: hook.localhost\r\nContent-Type: %s\r\n%sContent-Length: %d\r\n\r\n%s", kind, lines, len(content), content)).String()
	}
	var zipped, bomb bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write([]byte(`{"packed":true}`))
	_ = z.Close()
	z = gzip.NewWriter(&bomb)
	zeros := bytes.Repeat([]byte("0"), 1<<20)
	for range 64 {
		_, _ = z.Write(zeros)
	}
	_ = z.Close()
	png := "\x89PNG\r\n\x1a\n" + strings.Repeat("x", 40)
	for _, c := range []struct {
		name, id string
		wants    []string
	}{
		{"broken json", body("application/json", "{\n  \"a\": tru!\n}"), []string{"Not JSON: line 2, column 11", "tru<mark>!</mark>"}},
		{"form", body("application/x-www-form-urlencoded", "a=1+2&b=%3Cb%3E&bad=%zz"), []string{"<code>1 2</code>", "&lt;b&gt;", "%zz"}},
		{"binary", body("application/octet-stream", "\x00\x01\xff"), []string{"00 01 ff"}},
		{"gzip", body("application/json", zipped.String(), "Content-Encoding: gzip"), []string{"&#34;packed&#34;: true", "Unpacked from gzip"}},
		{"not gzip", body("application/json", "{}", "Content-Encoding: gzip"), []string{"it says gzip, but is not"}},
		{"bomb", body("text/plain", bomb.String(), "Content-Encoding: gzip"), []string{"Only the first 256.0 KiB are shown"}},
		{"multipart", body("multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"up<\"; filename=\"x.txt\"\r\n\r\nhello\r\n--b--\r\n"), []string{"up&lt;", "x.txt", "hello"}},
		{"png", body("image/png", png), []string{`/image/0"`}},
		{"svg is no picture", body("image/svg+xml", "<svg onload=alert(1)>"), []string{"&lt;svg onload=alert(1)&gt;"}},
		{"empty", body("text/plain", ""), []string{"0 B"}},
	} {
		contains(t, c.name, r.get("/events/"+c.id, 200), c.wants...)
	}
	long := strings.Repeat("h", 6000)
	contains(t, "a long header", r.get("/events/"+body("text/plain", "x", "X-Long: "+long), 200), "<code>"+long+"</code>")
	res, err := r.client.Get(r.base + "/events/" + body("image/png", png) + "/image/0")
	must(t, err)
	_ = res.Body.Close()
	if res.Header.Get("Content-Type") != "image/png" || res.Header.Get("Content-Security-Policy") != "sandbox; default-src 'none'" {
		t.Errorf("image: %v", res.Header)
	}
	r.get("/events/"+body("image/svg+xml", "<svg/>")+"/image/0", 404)
}

func TestReplayAndCompare(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.online()
	r.answers(func([]byte, []byte) string {
		body := `{"error":{"code":7},"list":[1,2],"same":true}`
		return fmt.Sprintf("HTTP/1.1 500 Oops\r\nContent-Type: application/json\r\nDate: Mon\r\nX-A: 1\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	})
	id := r.send(post("/hook", "{}")).String()
	r.answers(func([]byte, []byte) string {
		body := `{"list":[1,3],"same":true,"error":{"code":7}}`
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: Tue\r\nX-A: 2\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	})
	page := r.replay(id)
	contains(t, "after a replay", page, `data-attempt="2"`, "Attempt 2 (replay)", "user:alice", "</time> by user:alice", "500 → 200")
	page = r.get("/events/"+id+"?diff=1,2", 200)
	contains(t, "diff", page, "500 → 200", "1 header line changed", "1 field changed", "list[1]", `class="removed"`,
		`<tr class="noise both"><th scope="row"><code>Date</code>`, "<code>Tue</code>", "<code>X-A</code>", "that always differ")
	contains(t, "diff in the other order", r.get("/events/"+id+"?diff=2,1", 200), "500 → 200")
	r.get("/events/"+id+"?diff=1,99", 200)

	r.offline()
	page = r.submit("/events/"+id+"/replay", nil, 200)
	contains(t, "queued", page, `data-state="queued"`, "queued until the tunnel is online, position 1", "Cancel queued", "ssh -N -R hook")
	page = r.submit("/events/"+id+"/cancel", nil, 200)
	contains(t, "canceled", page, `data-attempt="3" data-state="canceled"`)
	r.submit("/events/"+id+"/cancel", nil, 409)
	if part := r.do("POST", "/events/"+id+"/replay", nil, http.Header{"X-Regions": {"detail"}}, 200); !strings.Contains(part, "Attempt 4 is queued") || strings.Contains(part, "<html") {
		t.Errorf("partial answer: %q", part)
	}
}

// TestNothingSentIsSaidSo: the page of an event whose connection was refused says that nothing was sent.
func TestNothingSentIsSaidSo(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.online()
	r.refuse.Store(true)
	page := r.get("/events/"+r.send(post("/hook", "{}")).String(), 200)
	contains(t, "refused", page, `data-state="failed"`, "Nothing was sent.")
}

func TestManyAttemptsAreFolded(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.online()
	id := r.send(post("/hook", "{}")).String()
	for range 12 {
		r.replay(id)
	}
	page := r.get("/events/"+id, 200)
	contains(t, "folded", page, `id="attempt-1"`, `id="attempt-13"`, "All side by side", "Attempt 1 and 13:")
	if n := strings.Count(page, `class="attempt"`); n != 2 {
		t.Errorf("%d columns", n)
	}
	if n := strings.Count(page, "data-attempt="); n != 13 {
		t.Errorf("%d attempts are named", n)
	}
	contains(t, "a chosen one", r.get("/events/"+id+"?attempt=7", 200), `id="attempt-1"`, `id="attempt-7"`, "Attempt 1 and 7:")
	if n := strings.Count(r.get("/events/"+id+"?attempts=all", 200), `class="attempt"`); n != 13 {
		t.Errorf("%d columns of all", n)
	}
}

type oneReplayLimits struct {
	dashboard.Limits
	replays, shares int
}

func (s *oneReplayLimits) Replay(relay.Actor) error { s.replays++; return once(s.replays) }

func (s *oneReplayLimits) ShareReplay(id string) error                       { s.shares++; return once(s.shares) }
func (s *oneReplayLimits) Create(relay.Actor) error                          { return nil }
func (s *oneReplayLimits) LookUpSecret(_, _ string, look func() error) error { return look() }
func once(n int) error {
	if n > 1 {
		e := relay.Errorf(relay.CodeRateLimited, "too many")
		e.RetryAfter = time.Second
		return e
	}
	return nil
}

// TestSharedPicture: the page of a share shows an image as a hex dump.
func TestSharedPicture(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	const picture = "\x89PNG\r\n\x1a\n0000"
	id := r.send(fmt.Sprintf("POST / HTTP/1.1\r\nHost: hook.localhost\r\nContent-Type: image/png\r\nContent-Length: %d\r\n\r\n%s", len(picture), picture)).String()
	page := r.submit("/events/"+id+"/shares", url.Values{"view": {"on"}}, 200)
	token := regexp.MustCompile(`/s/([A-Za-z0-9_-]+)`).FindStringSubmatch(page)[1]
	contains(t, "shared picture", r.get("/s/"+token, 200), "89 50 4e 47 0d 0a 1a 0a")
}

func TestShares(t *testing.T) {
	t.Parallel()
	r := newFixture(t, func(o *dashboard.Options) { o.Limits = &oneReplayLimits{Limits: api.NewLimits(api.Rate{}, api.Rate{})} })
	r.online()
	id := r.send(post("/hook", `{"card":"4242"}`, "Authorization: Bearer topsecret", "Stripe-Signature: t=1,v1=hidden")).String()
	page := r.submit("/events/"+id+"/shares", url.Values{"expires": {"1h"}}, 200)
	token := regexp.MustCompile(`/s/([A-Za-z0-9_-]+)`).FindStringSubmatch(page)[1]
	if strings.Contains(r.get("/events/"+id, 200), token) {
		t.Error("the address is shown twice")
	}
	view := regexp.MustCompile(`/s/([A-Za-z0-9_-]+)`).FindStringSubmatch(r.submit("/events/"+id+"/shares", url.Values{"view": {"on"}, "expires": {""}}, 200))[1]
	for _, never := range []string{"soon", "0s", "-1h"} {
		r.submit("/events/"+id+"/shares", url.Values{"expires": {never}}, 422)
	}
	owner := r.client
	r.client = &http.Client{}
	page = r.get("/s/"+token, 200)
	contains(t, "shared page", page, `POST</span> <span class="path">/hook`, "exactly the same bytes", "online", "Replay</button>")
	for _, secret := range []string{"alice", "hook.localhost", "4242", "topsecret", "Log out"} {
		if strings.Contains(page, secret) {
			t.Errorf("the shared page tells %q", secret)
		}
	}
	page = r.get("/s/"+view, 200)
	// ">Host<" is the name of the first header line in the shown text.
	contains(t, "with view", page, "4242", "[masked]", ">Host<")
	if strings.Contains(page, "topsecret") || strings.Contains(page, "hidden") && strings.Contains(page, "v1=hidden") || strings.Contains(page, "hook.localhost") {
		t.Error("secrets are not masked")
	}
	res, err := r.client.Get(r.base + "/s/" + token)
	must(t, err)
	_ = res.Body.Close()
	for name, want := range map[string]string{"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Robots-Tag": "noindex, nofollow"} {
		if got := res.Header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	// Because of Referrer-Policy no-referrer, a browser sends the origin "null" with a form of this page.
	null := http.Header{"Origin": {"null"}, "Sec-Fetch-Site": {"same-origin"}}
	page = r.do("POST", "/s/"+token+"/replay", nil, null, 200)
	r.await("the end of the shared replay", func() bool {
		if strings.Contains(page, "The replay is in progress") {
			page = r.get("/s/"+token+"?attempt=2", 200)
		}
		return !strings.Contains(page, "The replay is in progress")
	})
	contains(t, "result", page, "Your replay", "The local server answered", ">200<", `data-attempt="2" data-state="delivered"`)
	r.do("POST", "/s/"+token+"/replay", nil, http.Header{"Sec-Fetch-Site": {"cross-site"}}, 403)
	r.do("POST", "/s/"+token+"/replay", nil, null, 429)
	if strings.Contains(r.get("/s/"+token+"?attempt=1", 200), "Your replay") {
		t.Error("other attempts are told")
	}
	r.get("/s/nonsense", 404)
	r.client = owner
	page = r.get("/events/"+id, 200)
	contains(t, "list", page, "1 use", "0 uses", "replay and view", "never")
	share := regexp.MustCompile(`data-share="([^"]+)"`).FindStringSubmatch(page)[1]
	r.submit("/events/"+id+"/shares/"+share+"/revoke", nil, 200)
	r.get("/s/"+token, 404)
	r.get("/s/"+view, 200)
}

// TestShareForOneUse: the page that previews a share creates no share, and masks secrets. The form of a share
// for one use returns the result of its replay, also if it is sent twice; then the address of the share is not
// found.
func TestShareForOneUse(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.online()
	id := r.send(post("/hook?token=topsecret&a=1", `{"card":"4242","password":"topsecret"}`, "Content-Type: application/json")).String()
	preview := r.get("/events/"+id+"/share?view=on&oneUse=on&expires=1h", 200)
	contains(t, "preview", preview, "replay this event once", "4242", "token=[masked]", "the link works, unless you revoke it", "It ends with its first replay.", "Create link</button>", `name="oneUse" value="on"`)
	if strings.Contains(preview, "topsecret") {
		t.Error("the preview shows a secret")
	}
	if strings.Contains(r.get("/events/"+id, 200), "data-share=") {
		t.Error("the preview created a share")
	}
	page := r.submit("/events/"+id+"/shares", url.Values{"view": {"on"}, "oneUse": {"on"}, "expires": {"1h"}}, 200)
	share := regexp.MustCompile(`/s/[A-Za-z0-9_-]+`).FindString(page)
	owner := r.client
	r.client = &http.Client{}
	page = r.get(share, 200)
	if strings.Contains(page, "topsecret") || !strings.Contains(page, "4242") {
		t.Error("the shared view is not masked as the preview was")
	}
	if strings.Contains(page, `class="tabs"`) {
		t.Error("the shared view offers other views, which only members may ask for")
	}
	form := r.formAt(share, share+"/replay")
	for _, time := range []string{"once", "by a reload or a double click"} {
		contains(t, "the one replay, sent "+time, r.send200(form), "Your replay", "The local server answered", "has been used")
	}
	r.get(share, 404)
	r.do("POST", share+"/replay", nil, nil, 404)
	r.client = owner
	contains(t, "list", r.get("/events/"+id, 200), "replay and view, once", "1 use")
}

// busyEvents returns the error overloaded for reads of whole events while busy is set.
type busyEvents struct {
	events
	busy atomic.Bool
}

func (b *busyEvents) Event(ctx context.Context, who relay.Actor, id relay.ID, most int) (*relay.Event, error) {
	if b.busy.Load() {
		return nil, relay.Overloaded("too many reads run or wait")
	}
	return b.events.Event(ctx, who, id, most)
}

// TestShareIsMadeOnceAlsoIfItsPageFails: if the page of a new share fails, the same form, sent again, shows
// the link and creates no second share.
func TestShareIsMadeOnceAlsoIfItsPageFails(t *testing.T) {
	t.Parallel()
	store := &busyEvents{}
	r := newFixture(t, func(o *dashboard.Options) { store.events, o.Events = o.Events, store })
	r.online()
	id := "/events/" + r.send(post("/hook", "{}")).String()
	form := r.formAt(id+"/share?expires=1h", id+"/shares")
	store.busy.Store(true)
	r.do("POST", form.action, form.fields, nil, 503)
	store.busy.Store(false)
	contains(t, "the form again", r.send200(form), "Share link created", "/s/")
	if n := strings.Count(r.get("/api/v1"+id+"/shares", 200), `"id":`); n != 1 {
		t.Errorf("%d shares were made", n)
	}
}

// fullQueue refuses replays with queue-full while full is set.
type fullQueue struct {
	dashboard.Deliverer
	full atomic.Bool
}

func (q *fullQueue) Replay(ctx context.Context, who relay.Actor, id relay.ID, wait time.Duration) (*relay.Event, int, error) {
	if q.full.Load() {
		return nil, 0, relay.Errorf(relay.CodeQueueFull, "full")
	}
	return q.Deliverer.Replay(ctx, who, id, wait)
}

// TestShareForOneUseOutlivesARefusal: a share for one use survives a refused replay, and ends with the next
// replay.
func TestShareForOneUseOutlivesARefusal(t *testing.T) {
	t.Parallel()
	queue := &fullQueue{}
	r := newFixture(t, func(o *dashboard.Options) { queue.Deliverer, o.Deliver = o.Deliver, queue })
	r.online()
	id := r.send(post("/hook", "{}")).String()
	page := r.submit("/events/"+id+"/shares", url.Values{"oneUse": {"on"}, "expires": {"1h"}}, 200)
	share := regexp.MustCompile(`/s/[A-Za-z0-9_-]+`).FindString(page)
	r.client = &http.Client{}
	queue.full.Store(true)
	r.do("POST", share+"/replay", nil, nil, 503)
	queue.full.Store(false)
	r.do("POST", share+"/replay", nil, nil, 200)
	r.do("POST", share+"/replay", nil, nil, 404)
}

func TestExports(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.online()
	id := r.send(post("/hook?x=1", `{"a":1}`)).String()
	contains(t, "curl", r.get("/api/v1/events/"+id+"/export?format=curl", 200), "curl ", "--data-raw '{\"a\":1}'", "/hook?x=1'")
	var h struct {
		Log struct {
			Entries []struct {
				Request  struct{ PostData struct{ Text string } }
				Response struct{ Status int }
			}
		}
	}
	must(t, json.Unmarshal([]byte(r.get("/api/v1/events/"+id+"/export?format=har", 200)), &h))
	if len(h.Log.Entries) != 1 || h.Log.Entries[0].Response.Status != 200 || h.Log.Entries[0].Request.PostData.Text != `{"a":1}` {
		t.Errorf("har: %+v", h)
	}
	var e record.Event
	must(t, json.Unmarshal([]byte(r.get("/api/v1/events/"+id+"/export?format=json", 200)), &e))
	if e.ID != id {
		t.Error("json is of another event")
	}
	r.get("/api/v1/events/"+id+"/export?format=exe", 422)

	// If a format cannot carry a request, the menu gives the reason in place of the link.
	id = r.send(post("/hook?x=1", "\x00")).String()
	page := r.get("/events/"+id, 200)
	contains(t, "menu", page, "the body of this request is binary, and HAR carries only text; export it as curl, go, js, python, or take request.raw", "export?format=go")
	if strings.Contains(page, "export?format=har") {
		t.Error("the menu offers a form that is refused")
	}
	r.get("/api/v1/events/"+id+"/export?format=har", 409)
}

// cutCaller is a caller that leaves after sending the bytes in rest.
type cutCaller struct{ caller }

func (c *cutCaller) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	return c.caller.Read(p)
}

// TestExportMenuGivesReasons: the menus offer the formats that the API exports, and give a reason for each
// format that the API refuses.
func TestExportMenuGivesReasons(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.online()
	cut := func(request string) string {
		head, rest, _ := strings.Cut(request, "\r\n\r\n")
		c := &cutCaller{caller{rest: []byte(rest), gone: make(chan struct{})}}
		defer close(c.gone)
		r.d.Capture(context.Background(), &relay.Inbound{
			Alias: r.alias, From: netip.MustParseAddrPort("203.0.113.9:52011"), Arrived: time.Now(), Head: []byte(head + "\r\n\r\n"), Caller: c,
		})
		page, err := r.s.Events(context.Background(), relay.System(), relay.Filter{Alias: "hook", Limit: 1})
		must(t, err)
		return page.Events[0].ID.String()
	}
	const incomplete, trailer, large = "this request was not stored completely", "and this request has some", "too large to stand in a test"
	for _, c := range []struct {
		name, id string
		reasons  map[string]string // part of the reason for each refused format
	}{
		{"plain", r.send(post("/hook", "{}")).String(), nil},
		{"1,500,000 bytes", r.send(post("/hook", strings.Repeat("x", 1_500_000))).String(), map[string]string{"har": "has 1500000 bytes, and a HAR file carries at most 1 MiB", "go": large, "js": large, "python": large}},
		{"binary", r.send(post("/hook", "\x00")).String(), map[string]string{"har": "is binary"}},
		{"trailers", r.send("POST / HTTP/1.1\r\nHost: hook.localhost\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n0\r\nX-Sum: 1\r\n\r\n").String(), map[string]string{"curl": trailer, "har": trailer}},
		{"target", r.send(post("/a#b", "{}")).String(), map[string]string{"har": "the target of this request is no valid part of an address"}},
		{"header line", r.send(post("/", "{}", "X-Name: Zo\u00eb")).String(), map[string]string{"har": "a header line of this request is not plain ASCII"}},
		{"31 of 60 bytes", cut("POST / HTTP/1.1\r\nHost: hook.localhost\r\nContent-Length: 60\r\n\r\n" + strings.Repeat("x", 31)), map[string]string{"curl": incomplete, "har": incomplete, "go": incomplete, "js": incomplete, "python": incomplete}},
	} {
		page := r.get("/events/"+c.id, 200)
		for _, format := range record.ExportFormats {
			address := "/api/v1/events/" + c.id + "/export?format=" + format
			offered, status := strings.Contains(page, address+`"`), 200
			if reason := c.reasons[format]; reason != "" {
				contains(t, c.name, page, reason)
				status = 409
			}
			if offered != (status == 200) {
				t.Errorf("%s as %s: offered is %v", c.name, format, offered)
			}
			r.get(address, status)
		}
		if n, all := strings.Count(page, `<li class="dim"><strong>`), len(c.reasons)+min(1, len(c.reasons["curl"])); n != all { // cURL is in both menus
			t.Errorf("%s: %d reasons in the menus, want %d", c.name, n, all)
		}
	}
}

func TestHostileBytesStayText(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.online()
	evil := `"'><script>alert(1)</script><img src=x onerror=alert(1)>javascript:`
	r.answers(func([]byte, []byte) string {
		return fmt.Sprintf("HTTP/1.1 200 %s\r\nContent-Type: text/html\r\nX-%s\r\nX-Evil: %s\r\nContent-Length: %d\r\n\r\n%s", evil, "A: b", evil, len(evil), evil)
	})
	squeezed := strings.ReplaceAll(evil, " ", "/")
	id := r.send(post("/"+squeezed+"?q="+squeezed, evil, "X-Evil: "+evil, "X-GitHub-Event: "+evil, "X-GitHub-Delivery: "+evil)).String()
	r.replay(id)
	share := regexp.MustCompile(`/s/[A-Za-z0-9_-]+`).FindString(r.submit("/events/"+id+"/shares", url.Values{"view": {"on"}}, 200))
	for _, path := range []string{
		"/aliases/hook", "/aliases/hook?q=" + url.QueryEscape(evil), "/aliases/hook?status=" + url.QueryEscape(evil), "/aliases/hook?path=" + url.QueryEscape(evil),
		"/events/" + id, "/events/" + id + "?body=raw&response=hex", "/events/" + id + "?diff=1,2", share, "/events/" + id + "?body=" + url.QueryEscape(evil),
	} {
		res, err := r.client.Get(r.base + path)
		must(t, err)
		var page bytes.Buffer
		_, _ = page.ReadFrom(res.Body)
		_ = res.Body.Close()
		for _, bad := range []string{"<script>alert", "<img src=x", `href="javascript:`} {
			if strings.Contains(page.String(), bad) {
				t.Errorf("%s: %q got through", path, bad)
			}
		}
	}
}

// TestEventWithoutAttempts: the page of a refused request without attempts says that no delivery was
// attempted.
func TestEventWithoutAttempts(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.d.Reject(&relay.Inbound{
		Alias: r.alias, From: netip.MustParseAddrPort("203.0.113.9:52011"), Arrived: time.Now(),
		Head: []byte("POST /large HTTP/1.1\r\nHost: hook.localhost\r\nContent-Length: 99999999999\r\n\r\n"),
	}, relay.Errorf(relay.CodeBodyTooLarge, "the request body is too large"))
	var page relay.Page
	r.await("the refused request", func() (found bool) {
		var err error
		page, err = r.s.Events(context.Background(), relay.System(), relay.Filter{Alias: "hook", Limit: 1})
		must(t, err)
		return len(page.Events) == 1
	})
	id := page.Events[0].ID.String()
	for _, query := range []string{"", "?attempts=all", "?attempt=1", "?diff=1,2"} {
		contains(t, "event"+query, r.get("/events/"+id+query, 200), "/large", "No delivery was attempted", "the request body is too large")
	}
	r.get("/events/"+id+"/image/1", 404)
}
