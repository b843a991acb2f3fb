package main

import (
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"testing"
)

// The page about metrics names exactly those that a running relay shows.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, map[string]string{
		"tls": "acme", "https-addr": "127.0.0.1:0", "base-url": "https://relay.test", "alias-domain": "relay.test",
		"acme-ca": "https://127.0.0.1:9/directory", "trusted-proxies": "192.0.2.1",
	})
	get := func(url string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	have := names(`(?m)^# TYPE (relay_\w+) `, get("http://"+h.app.listenAddrs.Admin+"/metrics"))
	told := names("(?m)^\\| `(relay_\\w+)`", string(page))
	for _, name := range have {
		if !slices.Contains(told, name) {
			t.Errorf("docs/metrics.md does not tell of %s", name)
		}
	}
	for _, name := range told {
		if !slices.Contains(have, name) {
			t.Errorf("docs/metrics.md tells of %s, which is not there", name)
		}
	}
	for _, name := range names(`\b(relay_\w+?)(?:_bucket)?\b`, string(page)) { // of the alerts and the advice
		if !slices.Contains(have, name) {
			t.Errorf("docs/metrics.md speaks of %s, which is not there", name)
		}
	}
}

func names(pattern, text string) (list []string) {
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		list = append(list, m[1])
	}
	slices.Sort(list)
	return slices.Compact(list)
}
