// Package dashboard is the living room: the pages for people, rendered on the
// server with templ. Every page works without a script.
package dashboard

import (
	"bytes"
	"embed"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/a-h/templ"

	"relay"
)

//go:embed assets
var assets embed.FS

// Options are what the pages need.
type Options struct {
	Accounts Accounts
	Deliver  Deliverer
	Site     relay.Site
	Log      *slog.Logger
}

type pages struct {
	Options
}

// New makes the handler of everything on the base site that is not under /api/.
func New(o Options) http.Handler {
	p := &pages{o}
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", p.page(p.home))
	mux.Handle("GET /login/{token}", p.page(p.login))
	mux.Handle("POST /login/{token}", p.page(p.useLogin))
	mux.Handle("POST /logout", p.page(p.logout))
	mux.Handle("GET /assets/", cached(http.FileServerFS(assets)))
	mux.Handle("/", p.page(func(http.ResponseWriter, *http.Request) (templ.Component, error) {
		return nil, relay.ErrNotFound
	}))
	return walls(http.NewCrossOriginProtection().Handler(mux))
}

// walls puts the headers on that keep a page from being framed, sniffed or scripted
// by anything but itself.
func walls(next http.Handler) http.Handler {
	const csp = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", csp)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

func cached(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/") {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Cache-Control", "public, max-age=3600")
		next.ServeHTTP(w, r)
	})
}

// page renders what a handler returns. A nil component without an error means that
// the handler has answered by itself.
func (p *pages) page(handle func(http.ResponseWriter, *http.Request) (templ.Component, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := http.StatusOK
		body, err := handle(w, r)
		if err != nil {
			e := relay.AsError(err)
			if status = relay.Status(e.Code); status == http.StatusInternalServerError {
				p.Log.Error("page failed", "path", r.Pattern, "error", err)
			}
			body = failure(status, http.StatusText(status), e.Detail)
		}
		if body == nil {
			return
		}
		var buf bytes.Buffer
		if err := body.Render(r.Context(), &buf); err != nil {
			p.Log.Error("render page", "path", r.Pattern, "error", err)
			http.Error(w, "the page could not be rendered; the log has the reason", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(status)
		_, _ = w.Write(buf.Bytes())
	})
}

// visitor is the signed-in actor; ok is false for anybody else.
func (p *pages) visitor(r *http.Request) (who relay.Actor, ok bool, err error) {
	c, err := r.Cookie(p.cookieName())
	if err != nil {
		return relay.Actor{}, false, nil
	}
	who, err = p.Accounts.SessionOwner(r.Context(), c.Value)
	if errors.Is(err, relay.ErrNotFound) {
		return relay.Actor{}, false, nil
	}
	return who, err == nil, err
}
