// Package dashboard serves the HTML pages, rendered on the server with templ. Every page works without
// a script; the script adds live rows, replays without leaving the page, keyboard shortcuts and
// copying.
//
// Its inner packages have the pages: alias for aliases and lists of events, event for one event, people for
// accounts. Package page has the shared parts of all pages, and package body shows HTTP messages.
package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"

	"relay/dashboard/alias"
	"relay/dashboard/event"
	"relay/dashboard/page"
	"relay/dashboard/people"
	"relay/wire"
)

//go:embed assets
var files embed.FS

// asset is a file that pages load, in its plain and in its compressed form.
type asset struct {
	content, packed []byte
	tag             string // hash of the content
}

// assets returns the assets by path. The scripts that every page loads after page.js are one asset, because
// one response loads faster than several and compresses better.
var assets = sync.OnceValue(func() map[string]asset {
	all := map[string]asset{page.Scripts: packAsset(scripts...)}
	list, _ := files.ReadDir("assets")
	for _, f := range list {
		if !slices.Contains(scripts, f.Name()) {
			all["/assets/"+f.Name()] = packAsset(f.Name())
		}
	}
	return all
})

// scripts are in order: each one may use those before it, and the last one starts the page.
var scripts = []string{"json.js", "regions.js", "list.js", "keyboard.js", "dialogs.js", "palette.js", "stream.js"}

// unread matches the parts of our files that browsers do not need: comments and indents. It takes a space that
// is followed by two slashes and a space for the beginning of a comment, so no text in our scripts may contain
// these.
var unread = regexp.MustCompile(`(?m)^[ \t]*//.*\n|[ \t]+// .*|^[ \t]+|[ \t]*/\*[^*]*\*/`)

// packAsset joins files without their comments. Each asset is compressed once, at the best level,
// because assets are few and small.
func packAsset(names ...string) asset {
	var a asset
	for _, name := range names {
		text, err := files.ReadFile("assets/" + name)
		if err != nil {
			// Every name is in scripts or was read from the directory of the embedded files, so the file
			// exists.
			panic(err)
		}
		a.content = append(a.content, unread.ReplaceAll(text, nil)...)
	}
	sum := sha256.Sum256(a.content)
	a.tag = hex.EncodeToString(sum[:8])
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	_, _ = z.Write(a.content)
	_ = z.Close()
	a.packed = packed.Bytes()
	return a
}

// Options configure the pages, see page.Options.
type Options = page.Options

// Interfaces of other packages that the pages use.
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
	a, ok := assets()[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h, content, tag := w.Header(), a.content, a.tag
	if wire.AcceptsCoding(r.Header.Values("Accept-Encoding"), "gzip") && len(a.packed) < len(a.content) {
		h.Set("Content-Encoding", "gzip")
		content, tag = a.packed, a.tag+"-gzip"
	}
	h.Set("Vary", "Accept-Encoding")
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", `"`+tag+`"`)
	http.ServeContent(w, r, r.URL.Path, time.Time{}, bytes.NewReader(content))
}
