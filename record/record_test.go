package record_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"relay"
	"relay/record"
)

var update = flag.Bool("update", false, "write the golden files anew")

var site = relay.Site{
	Base:        url.URL{Scheme: "https", Host: "example.com"},
	AliasDomain: "example.com",
	SSHAddr:     "example.com:2222",
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 123_987_654, time.UTC)

func golden(t *testing.T, name string, v any) {
	t.Helper()
	got, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got), -update writes it anew:\n%s", name, diff)
	}
}

func id(t *testing.T) relay.ID {
	t.Helper()
	v, err := relay.ParseID("evt_01k00000000000000000000001")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func ptr[T any](v T) *T { return &v }

// replayed returns an event whose original got status 500 and whose replay got 200.
func replayed(t *testing.T) *relay.Event {
	t.Helper()
	return &relay.Event{
		ID: id(t), AliasID: 1, Alias: "stripe-dev",
		ReceivedAt: noon, LastReceivedAt: noon.Add(time.Minute),
		Remote: netip.MustParseAddrPort("203.0.113.9:52011"), TLS: true,
		Method: "POST", Target: []byte("/hook?x=1"), HTTPMinor: 1, Host: "stripe-dev.example.com",
		Provider: relay.Provider{Name: "stripe", EventType: "invoice.paid", DeliveryID: "evt_1N", SignedAt: noon, Tolerance: 5 * time.Minute},
		State:    relay.StateDelivered, Status: 200, Latency: 12 * time.Millisecond, HasLatency: true, AttemptCount: 2,
		Request: relay.Message{
			Head:    []byte("POST /hook?x=1 HTTP/1.1\r\nHost: stripe-dev.example.com\r\nX-Bin:  caf\xe9 \r\nContent-Length: 8\r\n\r\n"),
			Framing: relay.FramingLength,
			Body:    relay.Body{Data: []byte(`{"a": 1}`), Stored: 8, Size: 8, SHA256: [32]byte{0xab}, State: relay.BodyComplete},
		},
		Attempts: []relay.Attempt{
			{
				N: 1, Kind: relay.KindOriginal, State: relay.StateDelivered, ReceivedAt: noon, StartedAt: noon, EndedAt: noon.Add(time.Second),
				Connection: relay.ConnectionNew, Identical: ptr(true), HasTiming: true,
				Timing:      relay.Timing{Blocked: 100 * time.Microsecond, Connect: 400 * time.Microsecond, Send: 100_999, Wait: 11_200_999, Receive: 500_999},
				HasResponse: true, Status: 500, ResponseState: relay.ResponseComplete,
				Interim: [][]byte{[]byte("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")},
				Response: relay.Message{
					Head:    []byte("HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"),
					Lines:   []byte("4\r\n0\r\nX-Sum: 1\r\n\r\n"),
					Framing: relay.FramingChunked,
					Body:    relay.Body{Data: []byte("oops"), Stored: 4, Size: 4, State: relay.BodyComplete},
				},
			},
			{
				N: 2, Kind: relay.KindReplay, State: relay.StateDelivered, ReceivedAt: noon.Add(time.Minute), StartedAt: noon.Add(time.Minute),
				Actor: "token:ci", Connection: relay.ConnectionReused, Identical: ptr(true), HasTiming: true,
				Timing:      relay.Timing{Wait: 12 * time.Millisecond},
				HasResponse: true, Status: 200, ResponseState: relay.ResponseComplete,
				Response: relay.Message{
					Head:    []byte("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"),
					Framing: relay.FramingLength,
					Body:    relay.Body{Data: []byte{0, 1, 2}, Stored: 3, Size: 3, State: relay.BodyComplete},
				},
			},
		},
	}
}

func TestEventJSON(t *testing.T) {
	t.Parallel()
	golden(t, "event.json", record.Of(replayed(t), site, noon.Add(time.Hour)))
}

func TestQueuedReplayBesideAnEarlierAnswerJSON(t *testing.T) {
	t.Parallel()
	e := replayed(t)
	e.State, e.Attempts[1] = relay.StateQueued, relay.Attempt{
		N: 2, Kind: relay.KindReplay, State: relay.StateQueued, ReceivedAt: noon.Add(time.Minute), Actor: "user:alice", Position: 3,
	}
	e.Provider = relay.Provider{}
	golden(t, "event_queued.json", record.Of(e, site, noon))
}

func TestSummaryIsTheRecordWithoutFour(t *testing.T) {
	t.Parallel()
	e := replayed(t)
	e.Latency = 12 * time.Millisecond
	full, short := keys(t, record.Of(e, site, noon)), keys(t, record.Summarise(e, site, noon))
	for _, key := range []string{"request", "response", "timing", "attempts"} {
		if _, ok := full[key]; !ok {
			t.Errorf("the record lacks %s", key)
		}
		delete(full, key)
	}
	if diff := cmp.Diff(full, short); diff != "" {
		t.Errorf("record without the four (-) and summary (+):\n%s", diff)
	}
}

func keys(t *testing.T, v any) map[string]any {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]any{}
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestRejectedEventJSON(t *testing.T) {
	t.Parallel()
	e := &relay.Event{
		ID: id(t), Alias: "a", ReceivedAt: noon, LastReceivedAt: noon, Method: "GET", Target: []byte("/caf\xe9"), HTTPMinor: 1,
		State: relay.StateRejected, Error: &relay.Fault{Code: relay.CodeRequestMalformed, Message: "two lengths"},
		Blocker: relay.BlockedRejected,
		Request: relay.Message{Body: relay.Body{State: relay.BodyNotSent}},
	}
	golden(t, "event_rejected.json", record.Of(e, site, noon))
}

func TestRecordIsReadBackByTheClient(t *testing.T) {
	t.Parallel()
	want := record.Of(replayed(t), site, noon)
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got record.Event
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(&got)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, again) {
		t.Errorf("read back and written again:\n%s\n%s", b, again)
	}
}

func TestSumsOfTimingHoldAsShown(t *testing.T) {
	t.Parallel()
	a := record.OfAttempt(&replayed(t).Attempts[0], false)
	us := func(ms float64) int64 { return int64(ms*1000 + 0.5) }
	latency := us(a.Timing.Connect) + us(a.Timing.Send) + us(a.Timing.Wait) + us(a.Timing.Receive)
	if got := us(*a.LatencyMs); got != latency {
		t.Errorf("latency %d µs, its phases %d", got, latency)
	}
	if got, want := us(a.Timing.Total), latency+us(a.Timing.Blocked); got != want {
		t.Errorf("total %d µs, want %d", got, want)
	}
}

func TestAttemptOfTheFeedHasNoResponseBody(t *testing.T) {
	t.Parallel()
	m := record.AttemptMessage{EventID: id(t).String(), Alias: "a", Attempt: record.OfAttempt(&replayed(t).Attempts[0], false)}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), `"body"`) {
		t.Errorf("there is a body in %s", b)
	}
}

func TestBody(t *testing.T) {
	t.Parallel()
	big := func(unit string) []byte { return bytes.Repeat([]byte(unit), 2<<20/len(unit)) }
	tests := map[string]struct {
		body      relay.Body
		encoding  string
		data      string
		truncated bool
	}{
		"text":      {relay.Body{Data: []byte("héllo"), Size: 6}, "utf8", "héllo", false},
		"empty":     {relay.Body{}, "utf8", "", false},
		"nul":       {relay.Body{Data: []byte("a\x00b"), Size: 3}, "base64", "YQBi", false},
		"not utf-8": {relay.Body{Data: []byte{0xff, 0xfe}, Size: 2}, "base64", "//4=", false},
		"ends inside a rune, whole": {
			relay.Body{Data: []byte("ab\xe2\x82"), Size: 4}, "base64", base64.StdEncoding.EncodeToString([]byte("ab\xe2\x82")), false,
		},
		"read in part, inside a rune": {relay.Body{Data: []byte("ab\xe2\x82"), Parts: 2, Size: 500_000}, "utf8", "ab", true},
		"over the limit":              {relay.Body{Data: []byte("ab"), Stored: 2, Size: 3, State: relay.BodyOverLimit}, "utf8", "ab", true},
		"cut at 1 MiB":                {relay.Body{Data: big("x"), Size: 2 << 20}, "utf8", strings.Repeat("x", 1<<20), true},
		"cut before a rune":           {relay.Body{Data: big("€"), Size: int64(len(big("€")))}, "utf8", strings.Repeat("€", 1<<20/3), true},
		"cut binary": {
			relay.Body{Data: big("\xff"), Size: 2 << 20}, "base64", base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xff}, 1<<20)), true,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := replayed(t)
			e.Request.Body = tt.body
			got := record.Of(e, site, noon).Request.Body
			if got.Encoding != tt.encoding || got.Data != tt.data || got.Truncated != tt.truncated || got.Size != tt.body.Size {
				t.Errorf("got %s, %d bytes of data, truncated %t, size %d", got.Encoding, len(got.Data), got.Truncated, got.Size)
			}
			data, err := got.Bytes()
			if err != nil || !bytes.HasPrefix(tt.body.Data, data) {
				t.Errorf("Bytes gives no start of the body: %v", err)
			}
		})
	}
}

func TestWarningOnlyWhenTheToleranceHasPassed(t *testing.T) {
	t.Parallel()
	e := replayed(t)
	for _, tt := range []struct {
		now  time.Time
		want int
	}{{noon, 0}, {noon.Add(5 * time.Minute), 0}, {noon.Add(5*time.Minute + 1), 1}} {
		got := record.Summarise(e, site, tt.now).Warnings
		if len(got) != tt.want {
			t.Errorf("after %s: %v", tt.now.Sub(noon), got)
		}
		for _, w := range got {
			if w.Code != "signature-timestamp-expired" {
				t.Errorf("code %s", w.Code)
			}
		}
	}
	e.Provider.Tolerance = 0
	if got := record.Summarise(e, site, noon.Add(time.Hour)).Warnings; len(got) != 0 {
		t.Errorf("without a tolerance: %v", got)
	}
}

// The record has the time of the sender's signature and the tolerance of its libraries.
func TestProviderSaysWhenItSigned(t *testing.T) {
	t.Parallel()
	e := replayed(t)
	for tolerance, want := range map[time.Duration]string{
		5 * time.Minute: `"signedAt":"` + noon.Format(record.TimeFormat) + `","toleranceSeconds":300`,
		0:               `"signedAt":"` + noon.Format(record.TimeFormat) + `","toleranceSeconds":null`,
	} {
		e.Provider.Tolerance = tolerance
		got, err := json.Marshal(record.Summarise(e, site, noon).Provider)
		if err != nil || !strings.Contains(string(got), want) {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
}

func TestAliasJSON(t *testing.T) {
	t.Parallel()
	a := &relay.Alias{ID: 1, Name: "stripe-dev", OwnerName: "alice", Settings: relay.DefaultSettings()}
	golden(t, "alias.json", record.OfAlias(a, relay.AliasStatus{
		State: relay.TunnelOnline, Since: noon,
		Tunnel:     &relay.TunnelInfo{Client: "OpenSSH_9.2p1", Remote: netip.MustParseAddrPort("[2001:db8::1]:22"), User: "alice", Since: noon},
		QueueStats: relay.QueueStats{Queued: 5, QueuedEvents: 3}, LastEventAt: noon,
	}, site))
	a.Settings.Retention, a.Settings.ResponseTimeout = ptr(30*24*time.Hour), ptr(90*time.Second)
	golden(t, "alias_never.json", record.OfAlias(a, relay.AliasStatus{State: relay.TunnelNever}, site))
}

func TestProblemJSON(t *testing.T) {
	t.Parallel()
	golden(t, "problem.json", record.ProblemOf(&relay.Error{
		Code: relay.CodeEventNotReplayable, Detail: "it was refused", Reason: relay.BlockedRejected,
		Fields: []relay.FieldError{{Location: "body.name", Message: "too long", Value: 3}},
	}, "req_1"))
}

func TestProblemKeepsCausesInside(t *testing.T) {
	t.Parallel()
	for _, err := range []error{os.ErrPermission, relay.ErrFenced, relay.ErrNotSent, &relay.Error{Code: relay.CodeSuperseded, Detail: "secret"}, nil} {
		p := record.ProblemOf(err, "r")
		if p.Code != relay.CodeInternal || p.Status != 500 || strings.Contains(p.Detail, "permission") || strings.Contains(p.Detail, "secret") {
			t.Errorf("%v gives %+v", err, p)
		}
	}
	p := record.ProblemOf(&relay.Error{Code: relay.CodeStoreUnavailable, Cause: os.ErrPermission}, "r")
	if b, _ := json.Marshal(p); p.Status != 503 || strings.Contains(string(b), "permission") {
		t.Errorf("%s", b)
	}
}

// TestPathBase64: a path that is not UTF-8 is lossy as text and exact in base64; any other path has no
// base64 form.
func TestPathBase64(t *testing.T) {
	t.Parallel()
	e := replayed(t)
	e.Target = []byte("/caf\xe9?q=\xff")
	out := record.Summarise(e, site, noon)
	if raw, err := base64.StdEncoding.DecodeString(out.PathBase64); err != nil || string(raw) != "/caf\xe9?q=\xff" || out.Path != "/caf\ufffd?q=\ufffd" {
		t.Errorf("path %q, base64 %q (%q, %v)", out.Path, out.PathBase64, raw, err)
	}
	e.Target = []byte("/café")
	if out := record.Summarise(e, site, noon); out.Path != "/café" || out.PathBase64 != "" || keys(t, out)["pathBase64"] != nil {
		t.Errorf("path %q, base64 %q", out.Path, out.PathBase64)
	}
}
