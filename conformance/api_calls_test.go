package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"
)

// api calls the API with the admin's token.
func (r *relayServer) api(method, path string, body []byte) (int, []byte) {
	r.t.Helper()
	req, err := http.NewRequest(method, "http://"+r.http+"/api/v1"+path, bytes.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, []byte(err.Error())
	}
	return res.StatusCode, b
}

func (r *relayServer) must(status int, method, path string, body []byte) []byte {
	r.t.Helper()
	got, out := r.api(method, path, body)
	if got != status {
		r.t.Fatalf("%s %s = %d, want %d: %.600s", method, path, got, status, out)
	}
	return out
}

// record is the part of an event record that the tests read.
type record struct {
	ID, State, Path string
	Status          *int
	Replayable      bool
	ReplayBlocker   *string
	Request         struct {
		Framing string
		Body    struct {
			Size   int64
			SHA256 string
			State  string
		}
	}
	Response *struct {
		State string
	}
	Error *struct {
		Code string
	}
	Attempts []struct {
		Number     int
		Kind       string
		State      string
		Connection string
		CallerGone bool
		Identical  *bool
		Response   *struct{ State string }
	}
}

func (r *relayServer) event(id string) record {
	r.t.Helper()
	var rec record
	if err := json.Unmarshal(r.must(200, "GET", "/events/"+id, nil), &rec); err != nil {
		r.t.Fatal(err)
	}
	return rec
}

// events lists an alias' events, newest first.
func (r *relayServer) events(alias, query string) (all []record) {
	r.t.Helper()
	for page := range r.pages(200, alias, query) {
		all = append(all, page...)
	}
	return all
}

// has reports whether an alias has an event that fits query. It costs less than events, in a poll while many fit.
func (r *relayServer) has(alias, query string) bool {
	r.t.Helper()
	for page := range r.pages(1, alias, query) {
		if len(page) > 0 {
			return true
		}
	}
	return false
}

// unseen lists the events of an alias that are newer than those in seen, newest first. It reads short pages, because a
// caller with hundreds of events calls it after every few new ones.
func (r *relayServer) unseen(alias string, seen map[string]bool) (all []record) {
	r.t.Helper()
	for page := range r.pages(10, alias, "") {
		for _, e := range page {
			if seen[e.ID] {
				return all
			}
			all = append(all, e)
		}
	}
	return all
}

// pages reads an alias' events in pages of the given length, newest first.
func (r *relayServer) pages(length int, alias, query string) iter.Seq[[]record] {
	return func(yield func([]record) bool) {
		r.t.Helper()
		for cursor := ""; ; {
			var page struct {
				Data       []record
				NextCursor *string
			}
			if err := json.Unmarshal(r.must(200, "GET", fmt.Sprintf("/events?limit=%d&alias=%s%s%s", length, alias, query, cursor), nil), &page); err != nil {
				r.t.Fatal(err)
			}
			if !yield(page.Data) || page.NextCursor == nil {
				return
			}
			cursor = "&cursor=" + *page.NextCursor
		}
	}
}

// latest waits until the newest event of an alias is no longer being delivered, and returns that event.
func (r *relayServer) latest(alias string) record {
	r.t.Helper()
	var rec record
	r.waitFor(10*time.Second, "the newest event of "+alias+" to end", func() bool {
		var page struct{ Data []record }
		if err := json.Unmarshal(r.must(200, "GET", "/events?limit=1&alias="+alias, nil), &page); err != nil {
			r.t.Fatal(err)
		}
		if len(page.Data) == 0 || page.Data[0].State == "delivering" {
			return false
		}
		rec = r.event(page.Data[0].ID)
		return true
	})
	return rec
}

func (r *relayServer) replay(id string) record {
	r.t.Helper()
	var rec record
	if err := json.Unmarshal(r.must(200, "POST", "/events/"+id+"/replay", nil), &rec); err != nil {
		r.t.Fatal(err)
	}
	return rec
}
