package client

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"relay"
)

func TestSkewIsTheLeastThatExplains(t *testing.T) {
	asked := time.Date(2026, 11, 21, 12, 0, 0, 500e6, time.UTC)
	answered := asked.Add(200 * time.Millisecond)
	for theirs, want := range map[time.Time]time.Duration{
		asked.Truncate(time.Second):                    0,
		asked.Truncate(time.Second).Add(time.Second):   300 * time.Millisecond,
		asked.Truncate(time.Second).Add(-time.Second):  500 * time.Millisecond,
		asked.Truncate(time.Second).Add(2 * time.Hour): 2*time.Hour - 700*time.Millisecond,
		asked.Truncate(time.Second).Add(-time.Hour):    time.Hour - 500*time.Millisecond,
	} {
		if got := clockSkew(theirs, asked, answered); got != want {
			t.Errorf("%s: %s, want %s", theirs, got, want)
		}
	}
}

// verdicts returns the findings of a doctor by check.
func verdicts(t *testing.T, d *Doctor) map[string]relay.Finding {
	d.timeout = testTimeout
	found := map[string]relay.Finding{}
	for _, f := range d.Examine(context.Background()) {
		found[f.Check] = f
		if f.Verdict == relay.VerdictFail && f.Fix == "" {
			t.Errorf("%s: nothing to do about %q", f.Check, f.Reason)
		}
	}
	return found
}

func TestDoctorLooksAtEverything(t *testing.T) {
	relayd := newFakeRelay(t)
	relayd.api.HandleFunc("GET /api/v1/me", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"user":"alice"}`) })
	relayd.api.HandleFunc("GET /api/v1/aliases", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"data":[{"name":"a","state":"online","online":true,"url":"https://a.test","since":"2026-11-21T05:17:53.123Z"},
			{"name":"b","state":"offline","queuedEvents":3,"url":"https://b.test"}]}`)
	})
	_, target := newListener(t)
	_, gone := refusingAddr(t)
	dialer, _ := newDialer(t, relayd.listen())
	found := verdicts(t, &Doctor{
		Dialer: dialer, API: NewSSHAPI(dialer), BaseURL: "http://127.0.0.1:1",
		Forwards: []Forward{{Alias: "a", Target: target}, {Alias: "b", Target: gone}, {Alias: "c", Target: target}},
	})
	for check, want := range map[string]string{
		"name resolution": relay.VerdictOK, "port": relay.VerdictOK, "host key": relay.VerdictOK, "login": relay.VerdictOK,
		"alias a": relay.VerdictOK, "alias b": relay.VerdictWarn, "alias c": relay.VerdictWarn,
		"local server of a": relay.VerdictOK, "local server of b": relay.VerdictFail, "clock": relay.VerdictOK,
	} {
		if found[check].Verdict != want {
			t.Errorf("%s: %+v, want %s", check, found[check], want)
		}
	}
	if s := found["alias b"]; !strings.Contains(s.Reason, "3 events queued") || !strings.Contains(s.Fix, "relay up b") {
		t.Errorf("%+v", s)
	}
}

// TestDoctorTellsTheHTTPPort: if the port belongs to an HTTP server, doctor says so and skips the other
// checks.
func TestDoctorTellsTheHTTPPort(t *testing.T) {
	for greeting, want := range map[string]string{"HTTP/1.1 400 Bad Request\r\n\r\n": "does not speak SSH", "": "says nothing"} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Write([]byte(greeting))
				conn.Close()
			}
		}()
		dialer, _ := newDialer(t, ln.Addr().String())
		found := verdicts(t, &Doctor{Dialer: dialer, API: NewSSHAPI(dialer), BaseURL: "http://127.0.0.1:1"})
		ln.Close()
		if f := found["port"]; f.Verdict != relay.VerdictFail || !strings.Contains(f.Reason, want) {
			t.Errorf("%+v", f)
		}
		for _, check := range []string{"host key", "login", "alias"} {
			if found[check].Verdict != relay.VerdictSkip {
				t.Errorf("%s: %+v", check, found[check])
			}
		}
	}
}
