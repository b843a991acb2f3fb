package conformance

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestSSHLimits: login links, shares and tokens that an account makes over SSH, and its shares by the API,
// count against one limit. Replays have the configured limit.
func TestSSHLimits(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "", "RELAY_REPLAY_LIMIT=2/min")
	r.tunnel("mine", says(t, "x"))
	r.call("mine", "/", "x")
	id := r.latest("mine").ID
	c := r.dials(t, r.key)
	// refused runs a line until it is refused. More calls become allowed during the test, so a few calls may
	// pass. If the line had a limit of its own, all 30 calls would pass.
	refused := func(line string) (out, bad string, code int) {
		t.Helper()
		for range 30 {
			if out, bad, code = asks(t, c, line); code != 0 {
				return out, bad, code
			}
		}
		t.Errorf("%s is not refused", line)
		return out, bad, code
	}
	limited := func(line string) {
		t.Helper()
		if _, bad, code := refused(line); code != 1 || !strings.Contains(bad, "too many of these calls") {
			t.Errorf("%s: exit %d: %s", line, code, bad)
		}
		out, bad, code := refused(line + " --json")
		var problem struct {
			Code   string
			Status int
		}
		if err := json.Unmarshal([]byte(bad), &problem); err != nil || code != 1 || out != "" || problem.Code != "rate-limited" || problem.Status != 429 {
			t.Errorf("%s --json: exit %d, %v: %s%s", line, code, err, out, bad)
		}
	}
	for range 2 {
		if _, bad, code := asks(t, c, "replay "+id); code != 0 {
			t.Fatalf("replay: exit %d: %s", code, bad)
		}
	}
	limited("replay " + id)
	limited("replay-queued mine")
	r.must(200, "POST", "/events/"+id+"/replay", nil) // replays with a token are counted separately from those over SSH
	made, begun := 0, time.Now()
	for ; made < 1000; made++ {
		if _, _, code := asks(t, c, "login"); code != 0 {
			break
		}
	}
	if most := 120 + int(2*time.Since(begun).Seconds()) + 1; made < 100 || made > most {
		t.Errorf("%d links were made, at most %d are allowed", made, most)
	}
	limited("login")
	limited("share " + id)
	limited("token --name x")
	status := 0
	for i := 0; i < 30 && status != 429; i++ {
		status, _ = r.api("POST", "/events/"+id+"/shares", []byte(`{}`))
	}
	if status != 429 {
		t.Errorf("a share by the API: %d", status)
	}
}
