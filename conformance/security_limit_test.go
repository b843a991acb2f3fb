package conformance

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestSecurityLimits: replays, replays of a share and new tokens get 429 with the headers of their limit. 500
// lists of events in a row succeed. The metrics count a refused replay.
func TestSecurityLimits(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "", "RELAY_REPLAY_LIMIT=3/min")
	r.alias("hook")
	r.call("hook", "/x", "hello")
	id := r.events("hook", "")[0].ID
	var share struct{ Token string }
	r.decode(r.must(201, "POST", "/events/"+id+"/shares", []byte(`{}`)), &share)
	for name, c := range map[string]struct {
		free, most   int // bounds of the number of calls that are allowed at once
		path, body   string
		token, limit string
	}{
		"replays":        {3, 3, "/events/" + id + "/replay?wait=0s", "", r.token, `"replays";q=3;w=60`},
		"shared replays": {10, 10, "/events/shared/" + share.Token + "/replay?wait=0s", "", "", `"shared-replays";q=10;w=60`},
		// The limit "account" also counts the share above, and more calls are allowed as time passes, so the
		// number of tokens is not exact.
		"tokens": {100, 120, "/tokens", `{"expiresIn":"1h"}`, r.token, `"account";q=120;w=60`},
	} {
		header, passed, begun := http.Header{}, 0, time.Now()
		for ; passed < 10*c.free+1000; passed++ {
			res, err := http.DefaultClient.Do(r.bearer(t.Context(), c.token, "POST", c.path, c.body))
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode == http.StatusTooManyRequests {
				header = res.Header
				break
			}
			if res.StatusCode >= 300 {
				t.Fatalf("%s: %s", name, res.Status)
			}
		}
		after, err := strconv.Atoi(header.Get("Retry-After"))
		// During the calls, more calls become allowed at an even rate.
		most := c.most + int(time.Since(begun).Seconds()*float64(c.most)/60) + 1
		if passed < c.free || passed > most || err != nil || after < 1 || after > 60 || header.Get("RateLimit-Policy") != c.limit || header.Get("RateLimit") == "" {
			t.Errorf("%s: after %d calls: %v", name, passed, header)
		}
	}
	for range 500 {
		r.must(200, "GET", "/events?limit=1", nil)
	}
	stats := r.fetch("http://" + r.admin + "/debug/stats")
	for _, want := range []string{`"limits"`, `"shared-replays"`, `"waits"`} {
		if !strings.Contains(stats, want) {
			t.Errorf("/debug/stats lacks %s: %s", want, stats)
		}
	}
	if metrics := r.fetch("http://" + r.admin + "/metrics"); !strings.Contains(metrics, `relay_api_rate_limited_total{kind="replays"} 1`) {
		t.Error("the metrics do not count a refused replay")
	}
}
