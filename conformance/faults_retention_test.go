package conformance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestFaultRetentionByAge lets events expire. They are removed at most 5 s late. Queued and shared events
// stay, with their bodies.
func TestFaultRetentionByAge(t *testing.T) {
	t.Parallel()
	storesInFull(t, func(t *testing.T, databaseURL string) {
		const age, old = 10 * time.Second, 60
		r := startRelay(t, databaseURL, "RELAY_RETENTION="+age.String())
		tunnel := r.tunnel("old", localServer(t))
		body := strings.Repeat("x", 300<<10) // the body is large enough to be stored in parts
		sent := map[string]time.Time{}       // the time of each request, by its path
		var shared []string
		for i := range old {
			path := fmt.Sprintf("/%d", i)
			sent[path] = time.Now()
			if status, answer, _ := r.through("old", path, body[:i*len(body)/old]); status != 200 {
				t.Fatalf("answered %d %s", status, answer)
			}
			if i == 2 {
				// The events are shared long before they expire.
				shared = r.share(t, "old", 3)
			}
		}
		last := time.Now()
		early := tooEarly(t, sent, r, age) // counted at once, while the last events are younger than age
		tunnel.Kill()
		r.waitFor(10*time.Second, "the alias to be offline", func() bool { return !r.online("old") })
		for range 5 {
			if status, answer, _ := r.call("old", "/queued", body); status != 202 {
				t.Fatalf("answered %d %s", status, answer)
			}
		}
		count := func() int { return len(r.events("old", "")) }
		r.waitFor(age+30*time.Second, "the old events to go", func() bool { return count() <= 8 })
		late := time.Since(last) - age
		<-time.After(age / 2) // in this time, no further event may be removed
		queued := len(r.events("old", "&state=queued"))
		intact := 0
		for _, id := range shared {
			if status, _ := r.api("GET", "/events/"+id+"/request.body", nil); status == 200 {
				intact++
			}
		}
		r.tunnel("old", localServer(t))
		r.must(202, "POST", "/aliases/old/replay-queued", nil)
		r.waitFor(20*time.Second, "the queued events to be delivered", func() bool { return !r.has("old", "&state=queued") })
		figure(t, "retention %v: %d events went, the last %v after its time; kept: queued %d of 5, shared %d of 3", age, old-3, late.Round(100*time.Millisecond), queued, intact)
		if early > 0 || late > bound(5*time.Second) || queued != 5 || intact != 3 {
			t.Errorf("gone early %d, late %v, queued %d, shared %d", early, late, queued, intact)
		}
	})
}

// tooEarly counts the events that were removed although they are younger than age.
func tooEarly(t *testing.T, sent map[string]time.Time, r *relayServer, age time.Duration) (early int) {
	t.Helper()
	there := map[string]bool{}
	for _, e := range r.events("old", "") {
		there[e.Path] = true
	}
	now, young := time.Now(), 0
	for path, at := range sent {
		if now.Sub(at) < age {
			young++
			if !there[path] {
				early++
			}
		}
	}
	if young == 0 {
		t.Errorf("all events were older than %v before they could be counted: this machine is too slow to tell", age)
	}
	return early
}

// share shares the n oldest events of an alias and returns their ids.
func (r *relayServer) share(t *testing.T, alias string, n int) (ids []string) {
	t.Helper()
	all := r.events(alias, "")
	slices.Reverse(all)
	for _, e := range all[:n] {
		r.must(201, "POST", "/events/"+e.ID+"/shares", []byte(`{"expiresIn":"7d","view":false}`))
		ids = append(ids, e.ID)
	}
	return ids
}

// TestFaultRetentionBySize sends more than an alias may store. The oldest events are removed, but never
// events that are queued or shared. If only queued and shared events are left, callers are refused.
func TestFaultRetentionBySize(t *testing.T) {
	t.Parallel()
	storesInFull(t, func(t *testing.T, databaseURL string) {
		const limit, body = 2 << 20, 100 << 10
		r := startRelay(t, databaseURL, "RELAY_MAX_ALIAS_STORAGE=2MiB")
		tunnel := r.tunnel("fat", localServer(t))
		send := func() (int, string) {
			status, _, header := r.call("fat", "/fat", strings.Repeat("x", body))
			return status, header.Get("Relay-Error")
		}
		for range 5 {
			send()
		}
		shared := r.share(t, "fat", 2)
		told := 0 // number of callers that were told to retry
		for sent := 0; sent < 60; {
			switch status, code := send(); {
			case status == 200:
				sent++
			case code == "storage-full" && told < 5:
				told++
				<-time.After(time.Second)
			default:
				t.Fatalf("answered %d %s although older events can go", status, code)
			}
		}
		r.waitFor(30*time.Second, "the oldest events to go", func() bool { return r.stored("fat") <= limit })
		tunnel.Kill()
		r.waitFor(10*time.Second, "the alias to be offline", func() bool { return !r.online("fat") })
		codes := map[string]int{}
		queued := 0
		for range 40 {
			status, code := send()
			codes[fmt.Sprint(status, code)]++
			if status == 202 {
				queued++
			}
			<-time.After(50 * time.Millisecond)
		}
		found := 0
		for _, id := range shared {
			if status, _ := r.api("GET", "/events/"+id, nil); status == 200 {
				found++
			}
		}
		waiting := len(r.events("fat", "&state=queued"))
		figure(t, "2 MiB for an alias: %d KiB stored at the end, told to come back although older events could go %d, shared kept %d of 2, queued kept %d of %d, answers when only such are left %v",
			r.stored("fat")>>10, told, found, waiting, queued, codes)
		if told > size(5, 0) || found != 2 || waiting != queued || codes["503storage-full"] == 0 {
			t.Errorf("shared %d, queued %d of %d, answers %v", found, waiting, queued, codes)
		}
	})
}

// stored returns the total size of the payloads of an alias' events.
func (r *relayServer) stored(alias string) (n int64) {
	r.t.Helper()
	var page struct {
		Data []struct{ PayloadSize int64 }
	}
	if err := json.Unmarshal(r.must(200, "GET", "/events?limit=200&alias="+alias, nil), &page); err != nil {
		r.t.Fatal(err)
	}
	for _, e := range page.Data {
		n += e.PayloadSize
	}
	return n
}
