// Package dashboard serves the HTML pages, rendered on the server with templ. Every page works without
// a script; the script adds live rows, replays without leaving the page, keyboard shortcuts and
// copying.
//
// Its inner packages have the pages: alias for aliases and lists of events, event for one event, people
// for accounts. page has their shared parts, and body shows messages.
package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	"relay/dashboard/alias"
	"relay/dashboard/event"
	"relay/dashboard/page"
	"relay/dashboard/people"
)

//go:embed assets
var assets embed.FS

// Options configure the pages, see page.Options.
type Options = page.Options

// Interfaces that the pages need of other packages.
type (
	Accounts   = page.Accounts
	Events     = page.Events
	Deliverer  = page.Deliverer
	Enrolments = page.Enrolments
	Limits     = page.Limits
)

// New returns the handler of everything on the base site that is not under /api/. It is safe for
// concurrent use and starts no goroutines.
func New(o Options) http.Handler {
	p := page.New(o)
	aliases := alias.Routes(p)
	event.Routes(aliases)
	people.Routes(p)
	p.Handle("POST /theme", p.Page(p.SetTheme))
	p.Data("GET /assets/", http.HandlerFunc(serveAsset))
	return p.Handler()
}

// serveAsset serves an asset with headers that let browsers keep it and check that it is unchanged, so
// that a new version of a page never runs an old script.
func serveAsset(w http.ResponseWriter, r *http.Request) {
	content, err := assets.ReadFile(strings.TrimPrefix(r.URL.Path, "/"))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	sum := sha256.Sum256(content)
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:8])+`"`)
	http.ServeContent(w, r, r.URL.Path, time.Time{}, bytes.NewReader(content))
}
