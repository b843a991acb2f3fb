// Package page has the parts that the pages of the dashboard share: the shell around them, the
// logged-in user, forms that act once, errors, and common texts and addresses.
//
// A handler returns a component or an error; Page renders either. Pages for logged-in users go through
// SignedIn. A request with the header X-Regions comes from the script. The answer contains only the
// regions that the header names, without the shell: see Regions. Forms are answered by a redirect (303)
// to the page that shows the result.
package page

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"

	"github.com/a-h/templ"

	"relay"
	"relay/budget"
	"relay/compose"
	"relay/cookie"
	"relay/grant"
	"relay/sockets"
)

// Options configure the pages. Accounts, Events, Deliver and Limits are required.
type Options struct {
	Accounts Accounts
	Events   Events
	Deliver  Deliverer
	Limits   Limits
	// Enrolments holds the keys that wait for approval; nil = there is no page for them.
	Enrolments Enrolments
	Site       relay.Site
	Sending    compose.Limits // limits of a new event, the same as on the listener for aliases
	Version    string         // version of the program, which exported files name as their maker
	HostKey    string         // fingerprint of the SSH host key, SHA256:…; "" = not shown
	// SSHFlags returns the flags that ssh needs on this machine to log in as an account, such as "-i
	// KEY -o IdentitiesOnly=yes". user "" stands for a visitor without an account; nil = no flags.
	SSHFlags func(user string) string
	Log      *slog.Logger // nil = nothing is logged
	// Budget bounds the bytes of pages that wait until their clients read them; nil = no bound.
	Budget *budget.Budget
}

// Pages are the pages of the base site. The inner packages of the dashboard embed this type and add their
// routes with Handle and Data.
type Pages struct {
	Options
	mux  *http.ServeMux
	data map[string]bool // patterns of GET routes that return no page, such as live streams
}

// New returns Pages without routes.
func New(o Options) *Pages {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Pages{Options: o, mux: http.NewServeMux(), data: map[string]bool{}}
}

// Handle adds the route of a page or a form.
func (p *Pages) Handle(pattern string, h http.Handler) { p.mux.Handle(pattern, h) }

// Data adds a GET route that returns data instead of a page. Only pages of this site may read it.
func (p *Pages) Data(pattern string, h http.Handler) {
	p.data[pattern] = true
	p.mux.Handle(pattern, ownPages(h))
}

// Handler returns the handler of all routes that were added. It sets headers that keep other sites
// from framing a page and foreign scripts from running in it.
func (p *Pages) Handler() http.Handler {
	p.mux.Handle("/", p.nowhere())
	routes := http.NewCrossOriginProtection().Handler(p.mux)
	const csp = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
	// The header Cross-Origin-Opener-Policy is set only with https and on loopback. On other addresses,
	// browsers ignore it and report an error in the console.
	isolates := p.Secure() || sockets.IsLoopback(p.Site.Base.Hostname())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", csp)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
		if isolates {
			h.Set("Cross-Origin-Opener-Policy", "same-origin")
		}
		h.Set("Cache-Control", "no-store")
		answer := &budget.Writer{ResponseWriter: w, Budget: p.Budget, Refuse: func(w http.ResponseWriter, err *relay.Error) {
			page := p.explain(w, r, err)
			h.Set("Content-Type", "text/html; charset=utf-8")
			w.WriteHeader(page.Status)
			_ = page.Render(r.Context(), w)
		}}
		defer answer.Abandon()
		if r.Method == http.MethodGet {
			// Only GET requests reserve memory in the budget: the result of a form is always shown.
			r = r.WithContext(answer.WithReads(r.Context()))
		}
		routes.ServeHTTP(answer, r)
		answer.Close()
	})
}

// nowhere returns the handler for requests that match no route. It redirects a GET for the address of a
// form, from a reload or a sent link, to the page of the form.
func (p *Pages) nowhere() http.Handler {
	nothing := p.SignedInOrElse(
		func(http.ResponseWriter, *http.Request, relay.Actor) (templ.Component, error) {
			return nil, relay.ErrNotFound
		},
		func(http.ResponseWriter, *http.Request) (templ.Component, error) { return nil, relay.ErrNotFound },
	)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isRead := r.Method == http.MethodGet || r.Method == http.MethodHead
		if isRead && p.pattern(http.MethodPost, r.URL.Path) != "/" {
			http.Redirect(w, r, p.pageAbove(r.URL.Path), http.StatusSeeOther)
			return
		}
		nothing.ServeHTTP(w, r)
	})
}

// Grants returns the rules by which the API and the dashboard create and use shares, tokens and
// invitations.
func (p *Pages) Grants() grant.Grants {
	return grant.Grants{Accounts: p.Accounts, Events: p.Events, Limits: p.Limits}
}

// pattern returns the pattern of the route for a path, "/" = no route matches.
func (p *Pages) pattern(method, path string) string {
	_, pattern := p.mux.Handler(&http.Request{Method: method, URL: &url.URL{Path: path}})
	return pattern
}

// isPage reports whether a pattern is that of a page for users, not of a live stream, an image or a
// part of a page.
func (p *Pages) isPage(pattern string) bool {
	return strings.HasPrefix(pattern, "GET /") && !p.data[pattern]
}

// pageAbove returns the address if it is that of a page. Otherwise it removes parts at the end of the address
// until it is that of a page: for the address of a form, that page contains the form.
func (p *Pages) pageAbove(address string) string {
	for address = path.Clean("/" + address); address != "/"; address = path.Dir(address) {
		if p.isPage(p.pattern(http.MethodGet, address)) {
			return (&url.URL{Path: address}).EscapedPath()
		}
	}
	return "/"
}

// ownPages refuses requests that a page of another site made. It protects addresses that return data
// instead of a page: a page of another site cannot read the data, but could make the server produce it
// again and again. The check uses a header that browsers send; other clients do not send it and are
// allowed.
func ownPages(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Sec-Fetch-Site") {
		case "", "same-origin", "none":
			next.ServeHTTP(w, r)
		default:
			http.Error(w, "only pages of this site may request this address", http.StatusForbidden)
		}
	})
}

// Handler answers a request with the component that Page renders, or with an error.
type Handler func(http.ResponseWriter, *http.Request) (templ.Component, error)

// Page reads the form of a POST and renders the component that a handler returns. A nil component
// without an error means that the handler has answered by itself.
func (p *Pages) Page(handle Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = withWanted(r)
		var body templ.Component
		var err error
		if r.Method == http.MethodPost {
			err = readForm(w, r)
		}
		if err == nil {
			body, err = handle(w, r)
		}
		if err != nil {
			body = p.explain(w, r, err)
		}
		if body == nil {
			return
		}
		var buf bytes.Buffer
		if err := body.Render(r.Context(), &buf); err != nil {
			// This error may come from reading a region, because Render of a page with regions also reads them.
			buf.Reset()
			body = p.explain(w, r, err)
			if err := body.Render(r.Context(), &buf); err != nil {
				http.Error(w, "the page could not be rendered; the log has the reason", http.StatusInternalServerError)
				return
			}
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Add("Vary", regionsHeader)
		w.WriteHeader(statusOf(body))
		_, _ = w.Write(buf.Bytes())
	})
}

// SignedInHandler is a handler of a page for logged-in users; it gets the user as an actor.
type SignedInHandler func(http.ResponseWriter, *http.Request, relay.Actor) (templ.Component, error)

// SignedIn calls handle for logged-in users, and shows all others how to log in.
func (p *Pages) SignedIn(handle SignedInHandler) http.Handler {
	return p.SignedInOrElse(handle, p.loginRequired)
}

// OfEvent is SignedIn for paths below an event; it reads the event's id from the path.
func (p *Pages) OfEvent(handle func(http.ResponseWriter, *http.Request, relay.Actor, relay.ID) (templ.Component, error)) http.Handler {
	return p.SignedIn(func(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
		id, err := relay.ParseID(r.PathValue("id"))
		if err != nil {
			return nil, err
		}
		return handle(w, r, who, id)
	})
}

// AliasHandler handles a path below an alias that the actor may see.
type AliasHandler func(http.ResponseWriter, *http.Request, relay.Actor, *relay.Alias) (templ.Component, error)

// OfAlias is SignedIn for paths below an alias; it reads the alias before it calls handle.
func (p *Pages) OfAlias(handle AliasHandler) http.Handler {
	return p.SignedIn(func(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
		a, err := p.Accounts.Alias(r.Context(), who, r.PathValue("alias"))
		if err != nil {
			return nil, err
		}
		return handle(w, r, who, a)
	})
}

// OfOwnAlias is OfAlias for pages that only the owner of the alias may use.
func (p *Pages) OfOwnAlias(handle AliasHandler) http.Handler {
	return p.OfAlias(func(w http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
		if a.Owner != who.Account {
			return nil, relay.Errorf(relay.CodeForbidden, "only %s, the owner of %s, may do this", a.OwnerName, a.Name)
		}
		return handle(w, r, who, a)
	})
}

// SignedInOrElse is SignedIn with another handler, stranger, for users who are not logged in.
func (p *Pages) SignedInOrElse(handle SignedInHandler, stranger Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := cookie.Actor(cookie.Secrets(p.Site, r), func(secret string) (relay.Actor, error) {
			return LookUpSecret(p, r, secret, p.Accounts.SessionOwner)
		})
		p.Sweep(w, r)
		if answer, ok := w.(*budget.Writer); ok && err == nil {
			answer.Account = who.BufferAccount()
		}
		if err == nil {
			view := Viewer{
				User: who.AccountName, Admin: who.Admin, Path: r.URL.Path, FeedID: p.Deliver.FeedID(), sidebar: p.sidebar,
				Theme: cookieChoice(r, themeCookie, themes), Rows: cookieChoice(r, rowsCookie, densities),
			}
			view.aliases = sync.OnceValues(func() ([]relay.Alias, error) { return p.Accounts.Aliases(r.Context(), who) })
			r = r.WithContext(context.WithValue(r.Context(), viewerKey{}, view))
		}
		p.Page(func(w http.ResponseWriter, r *http.Request) (templ.Component, error) {
			switch {
			case errors.Is(err, relay.ErrNotFound):
				return stranger(w, r)
			case err != nil:
				return nil, err
			}
			return p.Once(handle)(w, r, who)
		}).ServeHTTP(w, r)
	})
}
