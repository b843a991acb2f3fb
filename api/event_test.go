package api_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/api"
	"relay/record"
)

func (h *fixture) list(query string) record.Page {
	h.t.Helper()
	return decoded[record.Page](h.get(h.asAlice, "/api/v1/events?"+query).want(200))
}

func (h *fixture) ids(query string) (ids []string) {
	h.t.Helper()
	for _, e := range h.list(query).Data {
		ids = append(ids, e.ID)
	}
	return ids
}

func TestListFilters(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.alias(h.alice, "second")
	hook := h.event("shop", nil).String()
	get := h.event("shop", func(e *relay.Event) { e.Method, e.Target = "GET", []byte("/health?needle") }).String()
	failed := h.event("shop", func(e *relay.Event) {
		e.Attempts[0].Status, e.Attempts[0].Response = 503, message("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "")
	}).String()
	waits := h.event("second", queued).String()
	h.event("other", nil) // an event of bob's account
	for query, want := range map[string][]string{
		"":                                  {waits, failed, get, hook},
		"alias=shop":                        {failed, get, hook},
		"method=GET":                        {get},
		"status=503":                        {failed},
		"status=5xx":                        {failed},
		"status=2xx&alias=shop":             {get, hook},
		"path=/health":                      {get},
		"path=/health%3Fneedle":             {get},
		"path=/nope":                        nil,
		"state=queued":                      {waits},
		"state=delivered&alias=second":      nil,
		"q=needle":                          {get},
		"since=2199-01-01T00:00:00Z":        nil,
		"until=2001-01-01T00:00:00%2B01:00": nil,
		"since=2001-01-01T00:00:00.5Z":      {waits, failed, get, hook},
	} {
		if got := h.ids(query); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, want %v", query, got, want)
		}
	}
}

// TestListFiltersByContent: filters by sender, type, status, replay, JSON field and text select the matching
// events and no others. A mistyped filter is refused with a suggestion.
func TestListFiltersByContent(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	paid := h.event("shop", func(e *relay.Event) {
		e.Provider = relay.Provider{Name: "stripe", EventType: "invoice.paid"}
		e.Request = message("POST /hook HTTP/1.1\r\nHost: shop.localhost\r\n\r\n", `{"data":{"object":{"id":"pi_1","name":"Caf\u00e9 \/ Bar"}},"n":7}`)
	}).String()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write([]byte(`{"data":{"object":{"id":"pi_2"}},"n":7,"note":"100% of a_b"}`))
	must(t, errors.Join(err, z.Close()))
	zipped := h.event("shop", func(e *relay.Event) {
		e.Provider = relay.Provider{Name: "github", EventType: "push"}
		e.Request = message("POST /hook HTTP/1.1\r\nContent-Encoding: gzip\r\n\r\n", packed.String())
		e.Attempts[0].Response = message("HTTP/1.1 200 OK\r\nX-Trace: Abc\r\n\r\n", "Answered")
	}).String()
	failed := h.event("shop", func(e *relay.Event) {
		a := &e.Attempts[0]
		a.State, a.HasResponse, a.Status, a.Error = relay.StateFailed, false, 0, &relay.Fault{Code: relay.CodeLocalRefused}
	}).String()
	for query, want := range map[string][]string{
		"provider=stripe":                   {paid},
		"provider=gitlab":                   nil,
		"type=invoice.paid":                 {paid},
		"type=invoice.*":                    {paid},
		"type=*":                            {zipped, paid},
		"type=%25":                          nil,
		"type=invoice_paid":                 nil,
		"type=Invoice.paid":                 nil,
		"status=error":                      {failed},
		"replayed=true":                     nil,
		"replayed=false":                    {failed, zipped, paid},
		"json=data.object.id=pi_1":          {paid},
		"json=data.object.id=pi_2":          {zipped},
		"json=data.object.id=pi_2&json=n=7": {zipped},
		"json=data.object.id=pi_2&json=n=8": nil,
		"json=n=7":                          {zipped, paid},
		"q=caf%C3%89":                       {paid},
		"q=%22CAF%C3%89%22":                 nil,
		"q=caf%C3%A9+/+bar":                 {paid},
		"q=100%25+of+a_b":                   {zipped},
		"q=100%25of":                        nil,
		"q=answered":                        {zipped},
		"q=%22answered%22":                  nil,
		"q=x-trace:+ABC":                    {zipped},
		"q=answered&q=PI_2":                 {zipped},
		"q=answered&q=pi_1":                 nil,
		"q=%00":                             nil,
		"q=%FF%FE":                          nil,
		"q=answered&json=n=7":               {zipped},
		"path=%00":                          nil,
		"path=/%25":                         nil,
		"method=%FF":                        nil,
		"type=%00%FF":                       nil,
		"json=a%00=%FF":                     nil,
	} {
		if got := h.ids(query); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, want %v", query, got, want)
		}
	}
	for query, want := range map[string]string{
		"stauts=404":                     "did you mean status?",
		"Status=404":                     "did you mean status?",
		"status=5x":                      "did you mean 5xx?",
		"state=deliverd":                 "did you mean delivered?",
		"provider=strip":                 "did you mean stripe?",
		"replayed=yes":                   "expected true or false",
		"type=*.paid":                    "at the end only",
		"json=novalue":                   "expected a field and its value",
		"since=tomorrow":                 "expected a time",
		"status=404&status=500":          "more than once",
		"q=" + strings.Repeat("x", 1001): "longer than 1000 bytes",
	} {
		p := h.get(h.asAlice, "/api/v1/events?"+query).code(422, relay.CodeValidationFailed).problem()
		if len(p.Errors) != 1 || !strings.Contains(p.Errors[0].Message, want) || !strings.Contains(p.Detail, want) {
			t.Errorf("%.60s: %+v, want %s", query, p, want)
		}
	}
}

func TestListPages(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	var want []string
	for range 5 {
		want = append([]string{h.event("shop", nil).String()}, want...)
	}
	var got []string
	for query, pages := "limit=2", 0; ; pages++ {
		page := h.list(query)
		for _, e := range page.Data {
			got = append(got, e.ID)
		}
		if page.NextCursor == nil {
			break
		}
		if pages > 3 {
			t.Fatal("the list does not end")
		}
		query = "limit=2&cursor=" + url.QueryEscape(*page.NextCursor)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	empty := h.get(h.asBob, "/api/v1/events").want(200).body
	if !strings.Contains(empty, `"data":[]`) || !strings.Contains(empty, `"nextCursor":null`) {
		t.Errorf("an empty list is %s", empty)
	}
}

func TestListWaitsForWhatArrives(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.event("shop", nil)
	h.deliver.feed = newFeed()
	first := make(chan *answer, 1)
	go func() { first <- h.get(h.asAlice, "/api/v1/events?alias=shop&path=/new&wait=60s") }()
	select {
	case h.deliver.feed.items <- []relay.FeedItem{{Name: "event", Data: []byte("{}")}}: // the call takes an item only after its first search has found nothing
	case a := <-first:
		t.Fatalf("it did not wait: %d %s", a.status, a.body)
	}
	id := h.event("shop", func(e *relay.Event) { e.Target = []byte("/new") })
	var found *answer
	select { // the second search may already have found the event
	case h.deliver.feed.items <- []relay.FeedItem{{Name: "event", Data: []byte("{}")}}:
		found = <-first
	case found = <-first:
	}
	page := decoded[record.Page](found.want(200))
	if len(page.Data) != 1 || page.Data[0].ID != id.String() {
		t.Errorf("got %+v, want %s", page.Data, id)
	}
	<-h.deliver.feed.closed
	if h.deliver.feed.who.Account != h.alice.Account || h.deliver.feed.alias == 0 {
		t.Errorf("subscribed as %+v to %d", h.deliver.feed.who, h.deliver.feed.alias)
	}
	h.deliver.feed = newFeed()
	waitUntilAfter(id)
	if page := h.list("alias=shop&wait=10ms"); len(page.Data) != 0 {
		t.Errorf("nothing arrived, and the list has %v", page.Data)
	}
}

func TestGetEvent(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	id := h.event("shop", nil)
	e := decoded[record.Event](h.get(h.asAlice, "/api/v1/events/"+id.String()).want(200))
	if e.ID != id.String() || e.Alias != "shop" || e.URL != "http://shop.localhost:8080/hook?x=1" || e.Request.Body.Data != "hello" ||
		e.Response.Body.Data != "ok" || *e.Status != 200 || len(e.Attempts) != 1 || e.Request.Headers[2].Value() != "s3cret" {
		t.Errorf("got %+v", e)
	}
	for _, bad := range []string{"evt_", "evt_" + strings.Repeat("z", 26), strings.ToUpper(id.String()), "x", id.String() + "0", "%00", "%ff"} {
		h.get(h.asAlice, "/api/v1/events/"+bad).code(404, "not-found")
	}
}

func TestDeleteEvent(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	busy := h.event("shop", func(e *relay.Event) { e.State, e.Attempts[0].State = relay.StateDelivering, relay.StateDelivering })
	h.call("DELETE", h.asAlice, "/api/v1/events/"+busy.String(), "").code(409, "conflict")
	id := h.event("shop", queued)
	a := h.call("DELETE", h.asAlice, "/api/v1/events/"+id.String(), "").want(204)
	if a.body != "" {
		t.Errorf("204 with %q", a.body)
	}
	h.call("DELETE", h.asAlice, "/api/v1/events/"+id.String(), "").code(404, "not-found")
}

// TestMarkEvent pins, labels and annotates an event, and finds it by these marks.
func TestMarkEvent(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	id, other := h.event("shop", queued).String(), h.event("shop", queued).String()
	patch := func(body string) *answer {
		return h.call("PATCH", h.asAlice, "/api/v1/events/"+id, body)
	}
	e := decoded[record.Event](patch(`{"pinned":true,"label":"bug-17","note":"a\nb"}`).want(200))
	if !e.Pinned || *e.Label != "bug-17" || *e.Note != "a\nb" || len(e.Attempts) != 1 {
		t.Errorf("marked: %+v", e.Summary)
	}
	if e = decoded[record.Event](patch(`{"label":null}`).want(200)); !e.Pinned || e.Label != nil || *e.Note != "a\nb" {
		t.Errorf("one key changed others: %+v", e.Summary)
	}
	patch(`{"label":"bug-17"}`).want(200)
	for query, want := range map[string]string{"pinned=true": id, "pinned=false": other, "label=bug-17": id, "label=bug-*&pinned=true": id} {
		if got := h.ids(query); fmt.Sprint(got) != fmt.Sprint([]string{want}) {
			t.Errorf("%s: got %v", query, got)
		}
	}
	patch(`{"label":"*"}`).code(422, "validation-failed")
	patch(`{"colour":"red"}`).code(422, "validation-failed")
	patch(`[`).code(400, "bad-request")
	h.call("PATCH", h.asAlice, "/api/v1/events/evt_"+strings.Repeat("0", 26), "{}").code(404, "not-found")
	h.call("PATCH", "", "/api/v1/events/"+id, "{}").code(401, "unauthorized")
	if e = decoded[record.Event](patch(`{"pinned":false,"label":"","note":null}`).want(200)); e.Pinned || e.Label != nil || e.Note != nil {
		t.Errorf("marks stay: %+v", e.Summary)
	}
}

func TestCancelIgnoresTheBody(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	id := h.event("shop", queued)
	h.deliver.cancel = func(who relay.Actor, id relay.ID) error { return h.store.Cancel(t.Context(), who, id) }
	r := h.request("POST", h.asAlice, "/api/v1/events/"+id.String()+"/cancel", "{not json")
	r.Header.Set("Content-Type", "text/plain")
	e := decoded[record.Event](h.do(r).want(200))
	if e.State != "canceled" || e.Attempts[0].State != "canceled" {
		t.Errorf("state %s, attempt %s", e.State, e.Attempts[0].State)
	}
	h.post(h.asAlice, "/api/v1/events/"+id.String()+"/cancel", "").code(409, "conflict")
	shown := decoded[record.Event](h.get(h.asAlice, "/api/v1/events/"+id.String()).want(200))
	listed := h.list("").Data[0]
	if fmt.Sprint(shown.Status) != fmt.Sprint(listed.Status) || shown.Error.Code != "canceled" {
		t.Errorf("shown with %v, listed with %v, error %+v", shown.Status, listed.Status, shown.Error)
	}
}

func (a *answer) bytes(want string) {
	a.t.Helper()
	a.want(http.StatusOK)
	if a.body != want {
		a.t.Errorf("%s: got %q, want %q", a.what, a.body, want)
	}
	h := a.header
	if h.Get("Content-Type") != "application/octet-stream" || !strings.HasPrefix(h.Get("Content-Disposition"), "attachment; filename=\"evt_") ||
		h.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(h.Get("Content-Security-Policy"), "sandbox") {
		a.t.Errorf("%s: header %v", a.what, h)
	}
}

func TestRawAndBody(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	var wireForm, sent string
	id := h.event("shop", func(e *relay.Event) {
		wireForm = string(e.Request.Head) + "hello"
		e.Attempts[0].SentHead = bytes.Replace(e.Request.Head, []byte("shop.localhost"), []byte("localhost:3000"), 1)
		sent = string(e.Attempts[0].SentHead) + "hello"
		e.Attempts[0].Interim = [][]byte{[]byte("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"), []byte("HTTP/1.1 102 Processing\r\n\r\n")}
		e.Attempts[0].Response = relay.Message{
			Head:  []byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
			Lines: []byte("2;x=y\r\n0\r\nX-Sum: 1\r\n\r\n"), Framing: relay.FramingChunked, Body: wholeBody("ok"),
		}
	})
	e := "/api/v1/events/" + id.String()
	h.get(h.asAlice, e+"/request.raw").bytes(wireForm)
	h.get(h.asAlice, e+"/request.body").bytes("hello")
	h.get(h.asAlice, e+"/attempts/1/request.raw").bytes(sent)
	h.get(h.asAlice, e+"/attempts/1/response.raw").bytes("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" +
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n")
	h.get(h.asAlice, e+"/attempts/1/response.body").bytes("ok")
	for _, n := range []string{"0", "2", "01", "-1", "x", "99999999999999999999"} {
		h.get(h.asAlice, e+"/attempts/"+n+"/response.raw").code(404, "not-found")
	}
	head := h.call("HEAD", h.asAlice, e+"/request.body", "")
	if head.status != 200 || head.body != "" || head.header.Get("Content-Length") != "5" {
		t.Errorf("HEAD: %d %q %v", head.status, head.body, head.header)
	}
	never := "/api/v1/events/" + h.event("shop", queued).String()
	h.get(h.asAlice, never+"/request.raw").want(200)
	h.get(h.asAlice, never+"/attempts/1/request.raw").code(404, "not-found")
	h.get(h.asAlice, never+"/attempts/1/response.raw").code(404, "not-found")
	h.get(h.asAlice, never+"/attempts/1/response.body").code(404, "not-found")
}

func TestRawOfALargeBody(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 40_000) // 640 000 bytes, three parts
	id := h.event("shop", func(e *relay.Event) {
		parts := 0
		for at := 0; at < len(data); at += relay.BodyPart {
			h.wait(h.store.Chunk(e.ID, 0, parts, data[at:min(at+relay.BodyPart, len(data))]))
			parts++
		}
		size := int64(len(data))
		e.Request.Head = []byte(fmt.Sprintf("POST / HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: %d\r\n\r\n", size))
		e.Request.Body = relay.Body{Parts: parts, Stored: size, Size: size, SHA256: sha256.Sum256(data), State: relay.BodyComplete}
	})
	e := "/api/v1/events/" + id.String()
	h.get(h.asAlice, e+"/request.body").bytes(string(data))
	if raw := h.get(h.asAlice, e+"/request.raw").want(200).body; !strings.HasSuffix(raw, "\r\n\r\n"+string(data)) {
		t.Errorf("raw has %d bytes", len(raw))
	}
	got := decoded[record.Event](h.get(h.asAlice, e).want(200)).Request.Body
	if got.Truncated || got.Size != int64(len(data)) || got.Data != string(data) {
		t.Errorf("the record has %d of %d bytes, truncated %t", len(got.Data), got.Size, got.Truncated)
	}
}

func TestReplay(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	id := h.event("shop", nil)
	target := "/api/v1/events/" + id.String() + "/replay"
	for state, want := range map[string]int{
		relay.StateDelivered: 200, relay.StateFailed: 200, relay.StateInterrupted: 200, relay.StateCanceled: 200,
		relay.StateQueued: 202, relay.StateDelivering: 202,
	} {
		h.setDeliveryState(state)
		r := h.request("POST", h.asAlice, target, "\x00 any body")
		r.Header.Set("Content-Type", "nonsense")
		e := decoded[record.Event](h.do(r).want(want))
		if e.ID != id.String() || len(e.Attempts) != 2 || e.Attempts[1].State != state || *e.Attempts[1].Actor != "token:alice-ci" {
			t.Errorf("%s: %+v", state, e)
		}
	}
	h.deliver.replay = func(relay.Actor, relay.ID, time.Duration) (*relay.Event, int, error) {
		return nil, 0, relay.Errorf(relay.CodeQueueFull, "full")
	}
	if a := h.post(h.asAlice, target, "").code(503, "queue-full"); a.header.Get("Retry-After") == "" {
		t.Error("503 without Retry-After")
	}
	waited := make(chan time.Duration, 3)
	h.deliver.replay = func(_ relay.Actor, _ relay.ID, wait time.Duration) (*relay.Event, int, error) {
		waited <- wait
		return nil, 0, relay.ErrNotFound
	}
	h.post(h.asAlice, target, "").want(404)
	h.post(h.asAlice, target+"?wait=0s", "").want(404)
	h.post(h.asAlice, target+"?wait=60s", "").want(404)
	if a, b, c := <-waited, <-waited, <-waited; a != 30*time.Second || b != 0 || c != time.Minute {
		t.Errorf("waited %s, %s, %s", a, b, c)
	}
	no := h.event("shop", rejected)
	if p := h.post(h.asAlice, "/api/v1/events/"+no.String()+"/replay", "").code(409, "event-not-replayable").problem(); p.Reason != "rejected" {
		t.Errorf("reason %q", p.Reason)
	}
}

func TestReplayLimit(t *testing.T) {
	t.Parallel()
	h := newFixture(t, func(o *api.Options) { o.Limits = api.NewLimits(api.Rate{N: 5, Per: time.Hour}, api.Rate{}) })
	h.setDeliveryState(relay.StateDelivered)
	target := "/api/v1/events/" + h.event("shop", nil).String() + "/replay"
	for range 5 {
		h.post(h.asAlice, target, "").want(200)
	}
	a := h.post(h.asAlice, target, "").code(429, "rate-limited")
	after := a.header.Get("Retry-After")
	if len(after) != 3 || a.header.Get("RateLimit") != `"replays";r=0;t=`+after || a.header.Get("RateLimit-Policy") != `"replays";q=5;w=3600` {
		t.Errorf("header %v", a.header)
	}
	other := h.token("alice", relay.Token{Scopes: relay.AllScopes})
	h.post(other, target, "").want(200)
	h.get(h.asAlice, "/api/v1/events").want(200)
	h.post(h.asAlice, "/api/v1/aliases/shop/replay-queued", "").code(429, "rate-limited") // a release counts as a replay
}

func TestReplayQueued(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	left := 3
	h.deliver.release = func(who relay.Actor, alias string) (int, error) {
		n := left
		left = 0
		return n, nil
	}
	for _, want := range []string{`{"alias":"shop","released":3}`, `{"alias":"shop","released":0}`} {
		if a := h.post(h.asAlice, "/api/v1/aliases/shop/replay-queued", "garbage").want(202); a.body != want {
			t.Errorf("got %s, want %s", a.body, want)
		}
	}
}

// TestReplayQueuedFailsAndIsCalledAgain: a failed release is not stored as the answer of its
// Idempotency-Key, so the same call releases again.
func TestReplayQueuedFailsAndIsCalledAgain(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	fails := true
	h.deliver.release = func(relay.Actor, string) (int, error) {
		if fails {
			return 0, relay.Errorf(relay.CodeStoreUnavailable, "the database is away")
		}
		return 2, nil
	}
	call := func() *answer {
		r := h.request("POST", h.asAlice, "/api/v1/aliases/shop/replay-queued", "")
		r.Header.Set("Idempotency-Key", "k")
		return h.do(r)
	}
	call().code(503, "store-unavailable")
	fails = false
	for range 2 {
		if a := call().want(202); a.body != `{"alias":"shop","released":2}` {
			t.Errorf("got %s", a.body)
		}
	}
}
