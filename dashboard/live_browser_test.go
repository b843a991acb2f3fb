package dashboard_test

import (
	"testing"

	"relay"
	"relay/api"
	"relay/dashboard"
)

// TestBrowserSaysWhyLiveUpdatesAreRefused: a page whose live updates were refused
// with 429 said only that it was reconnecting.
func TestBrowserSaysWhyLiveUpdatesAreRefused(t *testing.T) {
	limits := api.NewLimits(api.Rate{}, api.Rate{})
	r := newFixture(t, func(o *dashboard.Options) { o.Limits = limits })
	who := relay.Actor{Account: r.alias.Owner}
	var releases []func()
	for {
		release, err := limits.Stream(who)
		if err != nil {
			break
		}
		releases = append(releases, release)
	}
	b := newBrowser(t, r)
	b.expected = []int{429}
	b.open("/aliases/hook")
	b.until(`document.querySelector("#link").textContent === "too many live pages at once, trying again…"`)
	for _, release := range releases {
		release()
	}
	b.until(`document.querySelector("#link").textContent === "live"`)
}
