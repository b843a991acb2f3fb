package dashboard_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"relay"
	"relay/budget"
	"relay/dashboard"
)

// TestEveryPageIsInTheBudget: while the budget has no memory left for the account, each page of over 64 KiB
// is refused with 503. With memory left, pages are sent and nothing stays reserved. The routes are read from
// the source.
func TestEveryPageIsInTheBudget(t *testing.T) {
	t.Parallel()
	shared := budget.New(256 << 20)
	r := newFixture(t, func(o *dashboard.Options) { o.Budget = shared })
	r.online()
	long := "X-Long: " + strings.Repeat("h", 60<<10)
	body := `["` + strings.Repeat(`<line>","`, 30<<10) + `"]`
	r.answers(func(head, _ []byte) string {
		answer := fmt.Sprintf("%q", head[:20]) + strings.Repeat("<answer>\n", 30<<10)
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n%s\r\nContent-Length: %d\r\n\r\n%s", long, len(answer), answer)
	})
	id, other := r.send(post("/one", body, long)).String(), r.send(post("/two", "["+body+"]", long)).String()
	for i := range 100 {
		r.send(post(fmt.Sprintf("/%d/%s", i, strings.Repeat("p", 300)), "{}"))
	}
	who, err := r.s.SessionOwner(t.Context(), r.session)
	must(t, err)
	parsed, err := relay.ParseID(id)
	must(t, err)
	_, secret, err := r.s.CreateShare(context.Background(), who, parsed, relay.Share{View: true, ExpiresAt: time.Now().Add(time.Hour)})
	must(t, err)
	queries := map[string][]string{
		"/events/{id}": {"", "?attempt=1"}, "/diff": {"?left=" + id + "&right=" + other, "?left=" + id + "/1&right=" + other + "/1"},
		"/aliases/{alias}": {"", "?find=path%3A%2F1"}, "/aliases/{alias}/replay": {"?id=" + id + "&id=" + other},
	}
	place := strings.NewReplacer("{$}", "", "{id}", id, "{alias}", "hook", "{token}", url.PathEscape(secret), "{code}", "none")
	get := func(path string) (status int, page string) {
		res, err := r.client.Get(r.base + path)
		must(t, err)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		must(t, err)
		return res.StatusCode, string(text)
	}
	refused := map[string]bool{}
	for _, route := range pageRoutes(t) {
		if strings.HasSuffix(route, "/live") || route == "/assets/" {
			// Streams have no end, and assets do not count in the budget.
			continue
		}
		paths := []string{""}
		if queries[route] != nil {
			paths = queries[route]
		}
		for _, query := range paths {
			for _, n := range []string{"0", "1"}[:1+strings.Count(route, "{n}")] {
				path := strings.ReplaceAll(place.Replace(route), "{n}", n) + query
				before, whole := get(path)
				held := []*budget.Hold{{Budget: shared, Account: who.Account}, {Budget: shared}}
				for _, h := range held {
					must(t, h.Set(shared.Share()))
				}
				status, page := get(path)
				for _, h := range held {
					h.Release()
				}
				switch {
				case len(whole) <= 64<<10:
					if status != before && status != http.StatusServiceUnavailable {
						t.Errorf("%s: %d, want %d", path, status, before)
					}
				case status != http.StatusServiceUnavailable || len(page) > 64<<10:
					t.Errorf("%s: %d bytes, and while the account holds all that it may: %d, %d bytes", path, len(whole), status, len(page))
				default:
					refused[route] = true
				}
				if used := shared.Stats().Used; used != 0 {
					t.Fatalf("%s: %d bytes stay reserved", path, used)
				}
			}
		}
	}
	for _, route := range []string{"/events/{id}", "/events/{id}/json/{n}", "/diff", "/s/{token}", "/aliases/{alias}"} {
		if !refused[route] {
			t.Errorf("%s had no large page: %v", route, refused)
		}
	}
}

// pageRoutes reads the GET routes of the dashboard from its source.
func pageRoutes(t *testing.T) (routes []string) {
	files, err := filepath.Glob("*/routes.go")
	must(t, err)
	for _, name := range append(files, "dashboard.go") {
		text, err := os.ReadFile(name)
		must(t, err)
		for _, m := range regexp.MustCompile(`"GET (/[^"]*)"`).FindAllStringSubmatch(string(text), -1) {
			routes = append(routes, m[1])
		}
	}
	if len(routes) < 15 {
		t.Fatalf("%d routes were found", len(routes))
	}
	return routes
}
