// Package dashboard serves the HTML pages, rendered on the server with templ. Every
// page works without a script; the script adds live rows, replays without leaving the
// page, keyboard shortcuts and copying.
//
// A handler gives a component or an error; page renders either. Pages of signed-in
// people go through signedIn. A request with the header X-Partial: 1 comes from the
// script and is answered by the part of the page that changed, without the shell.
// Forms are answered by a redirect (303) to the page that shows the outcome.
package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"relay"
	"relay/budget"
	"relay/cookie"
	"relay/record"
	"relay/sockets"
)

//go:embed assets
var assets embed.FS

// Options are what the pages need. Accounts, Events, Deliver and Limits are needed.
type Options struct {
	Accounts Accounts
	Events   Events
	Deliver  Deliverer
	Limits   Limits
	// Enrolments are keys that wait to be let in; nil = there is no such page.
	Enrolments Enrolments
	Site       relay.Site
	Version    string // of the program, named as the maker of exported files
	HostKey    string // fingerprint of the SSH host key, SHA256:…; "" = not shown
	// SSHFlags gives what ssh must be told on this machine for an account to get in,
	// such as "-i KEY -o IdentitiesOnly=yes"; user "" is a stranger; nil = nothing.
	SSHFlags func(user string) string
	Log      *slog.Logger // nil = nothing is logged
	// Budget has the bytes of pages that nobody takes; nil = they have no bound.
	Budget *budget.Budget
}

type pages struct {
	Options
	mux  *http.ServeMux
	data map[string]bool // patterns of GET routes that are no pages, such as live streams
}

// New makes the handler of everything on the base site that is not under /api/. It
// is safe for concurrent use and starts no goroutines. Its headers keep other sites from
// framing a page and foreign scripts from running in it.
func New(o Options) http.Handler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &pages{Options: o, data: map[string]bool{}}
	routes := http.NewCrossOriginProtection().Handler(p.routes())
	const csp = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
	// Elsewhere browsers ignore that header, and say so in the console as an error.
	isolates := p.secure() || sockets.IsLoopback(p.Site.Base.Hostname())
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
			w.WriteHeader(page.status)
			_ = page.Render(r.Context(), w)
		}}
		defer answer.Abandon()
		if r.Method == http.MethodGet { // what a form has done is told, whatever it takes
			r = r.WithContext(budget.WithReserve(r.Context(), answer.HoldMore))
		}
		routes.ServeHTTP(answer, r)
		answer.Close()
	})
}

// routes are the addresses of everything.
func (p *pages) routes() *http.ServeMux {
	mux := http.NewServeMux()
	p.mux = mux
	data := func(pattern string, h http.Handler) {
		p.data[pattern] = true
		mux.Handle(pattern, ownPages(h))
	}
	mux.Handle("GET /{$}", p.signedIn(formPage(p.home).empty))
	mux.Handle("GET /aliases/{alias}", p.ofAlias(p.stream))
	data("GET /aliases/{alias}/live", p.ofAlias(p.live))
	data("GET /aliases/{alias}/qr.svg", p.ofAlias(p.qrCode))
	mux.Handle("POST /aliases/{alias}/test", p.ofAlias(p.sendSample))
	mux.Handle("GET /aliases/{alias}/replay", p.ofAlias(p.confirmReplays))
	mux.Handle("POST /aliases/{alias}/replay", p.ofAlias(p.replayMany))
	data("GET /aliases/{alias}/complete", p.signedIn(p.completeFilter))
	data("GET /live", p.signedIn(p.sidebarLive))
	mux.Handle("POST /theme", p.page(p.setTheme))
	mux.Handle("GET /aliases/{alias}/replay-queued", p.ofAlias(p.confirmRelease))
	mux.Handle("POST /aliases/{alias}/replay-queued", p.ofAlias(p.release))
	mux.Handle("GET /events/{id}", p.ofEvent(p.event))
	data("GET /events/{id}/image/{n}", p.ofEvent(p.image))
	data("GET /events/{id}/json/{n}", p.ofEvent(p.wholeText))
	mux.Handle("POST /events/{id}/replay", p.ofEvent(p.replay))
	mux.Handle("POST /events/{id}/cancel", p.ofEvent(p.cancel))
	mux.Handle("GET /events/{id}/share", p.ofEvent(p.previewShare))
	mux.Handle("POST /events/{id}/shares", p.ofEvent(p.createShare))
	mux.Handle("POST /events/{id}/shares/{share}/revoke", p.ofEvent(p.revokeShare))
	mux.Handle("POST /events/{id}/mark", p.ofEvent(p.mark))
	mux.Handle("GET /events/{id}/delete", p.ofEvent(p.confirmDelete))
	mux.Handle("POST /events/{id}/delete", p.ofEvent(p.deleteEvent))
	mux.Handle("POST /aliases/{alias}/searches", p.signedIn(p.saveSearch))
	mux.Handle("GET /diff", p.signedIn(p.compare))
	mux.Handle("GET /s/{token}", p.page(p.sharedEvent))
	mux.Handle("POST /s/{token}/replay", p.page(p.sharedReplay))
	mux.Handle("POST /aliases", p.signedIn(p.createAlias))
	mux.Handle("GET /aliases/{alias}/settings", p.ofAlias(p.settings))
	mux.Handle("POST /aliases/{alias}/settings", p.ofOwnAlias(p.saveSettings))
	mux.Handle("POST /aliases/{alias}/settings/members", p.ofOwnAlias(p.addMember))
	mux.Handle("POST /aliases/{alias}/settings/members/{user}/remove", p.ofAlias(p.removeMember))
	mux.Handle("POST /aliases/{alias}/settings/transfer", p.ofOwnAlias(p.transferAlias))
	mux.Handle("POST /aliases/{alias}/settings/remove", p.ofOwnAlias(p.removeAlias))
	mux.Handle("GET /account", p.signedIn(formPage(p.account).empty))
	mux.Handle("GET /account/audit", p.signedIn(p.audit(false)))
	mux.Handle("POST /account/keys", p.signedIn(p.addKey))
	mux.Handle("POST /account/keys/{id}/remove", p.signedIn(removal(p.Accounts.RemoveKey, "key-removed")))
	mux.Handle("POST /account/tokens", p.signedIn(p.createToken))
	mux.Handle("POST /account/tokens/{id}/remove", p.signedIn(removal(p.Accounts.RemoveToken, "token-removed")))
	mux.Handle("POST /account/sessions/{id}/remove", p.signedIn(removal(p.Accounts.RemoveSession, "logged-out")))
	mux.Handle("GET /admin", p.onlyAdmin(formPage(p.admin).empty))
	mux.Handle("GET /admin/audit", p.onlyAdmin(p.audit(true)))
	mux.Handle("POST /admin/users", p.onlyAdmin(p.addUser))
	mux.Handle("POST /admin/users/{user}/invite", p.onlyAdmin(p.inviteUser))
	mux.Handle("POST /admin/users/{user}/remove", p.onlyAdmin(p.removeUser))
	mux.Handle("POST /admin/aliases/{alias}/transfer", p.onlyAdmin(p.transferUnowned))
	mux.Handle("GET /invite/{token}", p.page(p.invite))
	mux.Handle("POST /invite/{token}", p.page(p.useInvite))
	if p.Enrolments != nil {
		mux.Handle("GET /link/{code}", p.signedInOrElse(formPage(p.enrolment).empty, p.enrolmentLogin))
		mux.Handle("POST /link/{code}", p.signedInOrElse(p.approve, p.enrolmentLogin))
	}
	mux.Handle("GET /login/{token}", p.page(p.login))
	mux.Handle("POST /login/{token}", p.page(p.useLogin))
	mux.Handle("POST /logout", p.page(p.logout))
	mux.Handle(assetsPattern, http.HandlerFunc(serveAsset))
	nothing := p.signedInOrElse(
		func(http.ResponseWriter, *http.Request, relay.Actor) (templ.Component, error) {
			return nil, relay.ErrNotFound
		},
		func(http.ResponseWriter, *http.Request) (templ.Component, error) { return nil, relay.ErrNotFound },
	)
	mux.Handle("/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isRead := r.Method == http.MethodGet || r.Method == http.MethodHead
		if isRead && p.pattern(http.MethodPost, r.URL.Path) != "/" { // the address of a form, reloaded or sent to somebody
			http.Redirect(w, r, p.pageAbove(r.URL.Path), http.StatusSeeOther)
			return
		}
		nothing.ServeHTTP(w, r)
	}))
	return mux
}

// pattern is the pattern of the route of a path, "/" where there is none.
func (p *pages) pattern(method, path string) string {
	_, pattern := p.mux.Handler(&http.Request{Method: method, URL: &url.URL{Path: path}})
	return pattern
}

// isPage tells whether a pattern is that of a page, which people look at: no live stream, no
// picture, no part of a page.
func (p *pages) isPage(pattern string) bool {
	return strings.HasPrefix(pattern, "GET /") && !p.data[pattern] && pattern != assetsPattern
}

const assetsPattern = "GET /assets/"

// pageAbove is the address of the page that a path is of, or else that of the nearest page
// above it: a form without a page of its own stands on that.
func (p *pages) pageAbove(address string) string {
	for address = path.Clean("/" + address); address != "/"; address = path.Dir(address) {
		if p.isPage(p.pattern(http.MethodGet, address)) {
			return (&url.URL{Path: address}).EscapedPath()
		}
	}
	return "/"
}

// ownPages refuses requests that a page of another site made. It is for addresses that
// are no page but carry data: a page elsewhere cannot read them, but could make the
// server produce them again and again. Browsers send the header; other clients do not.
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

// serveAsset lets browsers keep assets and ask whether they are still the same ones, so
// that a new version never meets an old script.
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

// handler is what page renders the outcome of.
type handler func(http.ResponseWriter, *http.Request) (templ.Component, error)

// page reads the form of a POST and renders what a handler returns. A nil component without
// an error means that the handler has answered by itself.
func (p *pages) page(handle handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
		status := http.StatusOK
		if s, ok := body.(withStatus); ok {
			status = s.status
		}
		var buf bytes.Buffer
		if err := body.Render(r.Context(), &buf); err != nil {
			if r.Context().Err() == nil {
				p.Log.Error("render page", "path", r.Pattern, "error", err)
			}
			http.Error(w, "the page could not be rendered; the log has the reason", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Add("Vary", "X-Partial")
		w.WriteHeader(status)
		_, _ = w.Write(buf.Bytes())
	})
}

// explain gives the page about an error, or for the script what to announce.
func (p *pages) explain(w http.ResponseWriter, r *http.Request, err error) withStatus {
	e := relay.AsError(err)
	status := relay.Status(e.Code)
	if status == http.StatusInternalServerError && r.Context().Err() == nil { // else nobody is there for the page
		p.Log.Error("page failed", "path", r.Pattern, "error", err)
	}
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	if e.Code == relay.CodeLoginTooOld {
		http.SetCookie(w, p.nextCookie(p.pageOf(referer(r)), nextAge)) // of the form that was refused
	}
	body := errorPage(status, cmp.Or(statusTitles[status], "Something went wrong"), e.Detail)
	switch {
	case partial(r):
		body = errorFragment(status, e.Detail)
	case e.Code == relay.CodeStoreUnavailable && r.Method == http.MethodGet:
		body = outagePage(e.Detail, localPath(url.QueryEscape(r.URL.RequestURI())))
	case e.Code == relay.CodeStoreUnavailable: // something was to be changed
		body = outagePage(e.Detail, "/")
	case e.Code == relay.CodeLoginTooOld:
		body = loginAgainPage(e.Detail, p.loginCommand())
	}
	return withStatus{body, status}
}

// withStatus is a component that is sent with a status other than 200, such as a
// form that is shown again with what was wrong.
type withStatus struct {
	templ.Component
	status int
}

// partial tells whether the script asks for the changed part of a page only.
func partial(r *http.Request) bool { return r.Header.Get("X-Partial") == "1" }

// seeOther answers a form that ended with err: without an error the browser goes on to path,
// and reloading it sends nothing again.
func seeOther(w http.ResponseWriter, r *http.Request, err error, path string) (templ.Component, error) {
	if err == nil {
		http.Redirect(w, r, path, http.StatusSeeOther)
	}
	return nil, err
}

// acted answers a form about the page at path that ended with err: the script announces what
// was done, and reads by itself what has changed.
func acted(w http.ResponseWriter, r *http.Request, err error, said, path string) (templ.Component, error) {
	if err == nil && partial(r) {
		return noticeFragment(said), nil
	}
	return seeOther(w, r, err, path)
}

// maxForm bounds the body of a form, in bytes.
const maxForm = 1 << 20

// readForm reads the fields of a posted form into r.PostForm.
func readForm(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	err := r.ParseForm()
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return relay.Errorf(relay.CodeBodyTooLarge, "the form is too large; at most 1 MiB is taken")
	}
	if err != nil {
		return relay.Errorf(relay.CodeBadRequest, "the form could not be read; go back and send it again")
	}
	return nil
}

// statusTitles are what a page says of a status in people's words.
var statusTitles = map[int]string{
	http.StatusBadRequest:            "Invalid input",
	http.StatusUnauthorized:          "Not logged in",
	http.StatusForbidden:             "Not allowed",
	http.StatusNotFound:              "Not found",
	http.StatusConflict:              "Conflict",
	http.StatusRequestEntityTooLarge: "Too large",
	http.StatusUnprocessableEntity:   "Invalid input",
	http.StatusTooManyRequests:       "Too many requests",
	http.StatusServiceUnavailable:    "Unavailable",
}

// signedInHandler is a handler of a page for signed-in people; who asks is given.
type signedInHandler func(http.ResponseWriter, *http.Request, relay.Actor) (templ.Component, error)

// signedIn lets signed-in people through and shows everybody else how to log in.
func (p *pages) signedIn(handle signedInHandler) http.Handler {
	return p.signedInOrElse(handle, p.loginRequired)
}

// ofEvent is signedIn for what is below an event, whose id it reads.
func (p *pages) ofEvent(handle func(http.ResponseWriter, *http.Request, relay.Actor, relay.ID) (templ.Component, error)) http.Handler {
	return p.signedIn(func(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
		id, err := relay.ParseID(r.PathValue("id"))
		if err != nil {
			return nil, err
		}
		return handle(w, r, who, id)
	})
}

// aliasHandler is a handler of what is below an alias that the actor may see.
type aliasHandler func(http.ResponseWriter, *http.Request, relay.Actor, *relay.Alias) (templ.Component, error)

// ofAlias is signedIn for what is below an alias, which it reads.
func (p *pages) ofAlias(handle aliasHandler) http.Handler {
	return p.signedIn(func(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
		a, err := p.Accounts.Alias(r.Context(), who, r.PathValue("alias"))
		if err != nil {
			return nil, err
		}
		return handle(w, r, who, a)
	})
}

// ofOwnAlias is ofAlias for what only the owner of the alias may do.
func (p *pages) ofOwnAlias(handle aliasHandler) http.Handler {
	return p.ofAlias(func(w http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
		if a.Owner != who.Account {
			return nil, relay.Errorf(relay.CodeForbidden, "only %s, the owner of %s, may do this", a.OwnerName, a.Name)
		}
		return handle(w, r, who, a)
	})
}

// signedInOrElse is signedIn with a page of its own for everybody else.
func (p *pages) signedInOrElse(handle signedInHandler, stranger handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := cookie.Actor(cookie.Secrets(p.Site, r), func(secret string) (relay.Actor, error) {
			return lookUpSecret(p, r, secret, p.Accounts.SessionOwner)
		})
		p.sweep(w, r)
		if answer, ok := w.(*budget.Writer); ok && err == nil {
			answer.Account = who.BufferAccount()
		}
		if err == nil {
			view := viewer{
				User: who.AccountName, Admin: who.Admin, Path: r.URL.Path, Theme: themes[0], FeedID: p.Deliver.FeedID(),
				sidebar: func(ctx context.Context, current string) ([]record.Alias, int) { return p.sidebar(ctx, who, current) },
			}
			if c, err := r.Cookie(themeCookie); err == nil && slices.Contains(themes, c.Value) {
				view.Theme = c.Value
			}
			r = r.WithContext(context.WithValue(r.Context(), viewerKey{}, view))
		}
		p.page(func(w http.ResponseWriter, r *http.Request) (templ.Component, error) {
			switch {
			case errors.Is(err, relay.ErrNotFound):
				return stranger(w, r)
			case err != nil:
				return nil, err
			}
			return p.once(handle)(w, r, who)
		}).ServeHTTP(w, r)
	})
}

// loginRequired shows how to log in, and notes where the person wanted to go.
func (p *pages) loginRequired(w http.ResponseWriter, r *http.Request) (templ.Component, error) {
	if partial(r) || p.data[r.Pattern] {
		return withStatus{errorFragment(http.StatusUnauthorized, "you are logged out; log in again"), http.StatusUnauthorized}, nil
	}
	status := http.StatusOK
	if r.URL.Path != "/" {
		status = http.StatusUnauthorized
		p.rememberPage(w, r)
	}
	return withStatus{loginHelpPage(p.loginCommand()), status}, nil
}

// rememberPage notes where somebody wanted to go before logging in: a page, and no address that a
// page reads by itself.
func (p *pages) rememberPage(w http.ResponseWriter, r *http.Request) {
	mode := r.Header.Get("Sec-Fetch-Mode") // not every client sends it
	if r.Method == http.MethodGet && !partial(r) && p.isPage(r.Pattern) && (mode == "" || mode == "navigate") {
		http.SetCookie(w, p.nextCookie(r.URL.RequestURI(), nextAge))
	}
}

// referer is the page of this site that a request comes from, or else the home page.
func referer(r *http.Request) string {
	if from, err := url.Parse(r.Referer()); err == nil && from.Host == r.Host {
		return localPath(url.QueryEscape(from.RequestURI()))
	}
	return "/"
}

// pageOf is an address of this site if it is that of a page, or else that of the page above.
func (p *pages) pageOf(address string) string {
	if u, err := url.Parse(address); err == nil && !p.isPage(p.pattern(http.MethodGet, u.Path)) {
		return p.pageAbove(u.Path)
	}
	return address
}

// viewer is what the header and the sidebar of a page say about the signed-in person.
type viewer struct {
	User  string
	Admin bool
	Path  string // of the page shown
	Theme string // one of themes
	// FeedID is where the live feed was before anything of the page was read.
	FeedID string

	// sidebar lists the aliases beside the page; only whole pages ask for it.
	sidebar func(ctx context.Context, current string) (list []record.Alias, more int)
}

type viewerKey struct{}

// viewerOf returns the zero viewer if nobody is signed in.
func viewerOf(ctx context.Context) viewer {
	f, _ := ctx.Value(viewerKey{}).(viewer)
	return f
}

// themes are the choices of the theme switch; auto follows the system.
var themes = []string{"auto", "light", "dark"}

// themeCookie holds the theme, so that the server can send the page in the right colours: an
// inline script is not allowed, and any other comes after the first paint.
const themeCookie = "relay_theme"

// setTheme stores the theme in this browser, and goes back to the page.
func (p *pages) setTheme(w http.ResponseWriter, r *http.Request) (templ.Component, error) {
	if theme := field(r, "theme"); slices.Contains(themes, theme) {
		http.SetCookie(w, &http.Cookie{Name: themeCookie, Value: theme, Path: "/", MaxAge: 365 * 24 * 3600, Secure: p.secure(), SameSite: http.SameSiteLaxMode})
	}
	return seeOther(w, r, nil, referer(r))
}

// current is the aria-current value of a link in the header.
func (f viewer) current(path string) string {
	switch {
	case f.Path == path:
		return "page"
	case path != "/" && strings.HasPrefix(f.Path, path+"/"), path == "/" && (strings.HasPrefix(f.Path, "/aliases/") || strings.HasPrefix(f.Path, "/events/")):
		return "true"
	}
	return "false"
}
