package page

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/a-h/templ"

	"relay"
	"relay/record"
)

// Viewer holds the facts about the logged-in user for the header and the sidebar of a page.
type Viewer struct {
	User  string
	Admin bool
	Path  string // path of the page
	Theme string // one of the values in themes
	Rows  string // one of the values in densities
	// FeedID is the id of the last item of the live feed before any data of the page was read. The live
	// updates of the page begin after this item, so that no change is missed.
	FeedID string

	// aliases lists all aliases of the user, which are read once for a page.
	aliases func() ([]relay.Alias, error)
	// sidebar lists the aliases in the sidebar; only whole pages call it.
	sidebar func(ctx context.Context, current string) (list []record.Alias, more int)
}

type viewerKey struct{}

// Aliases lists the aliases of the logged-in user. They are read once for a page; the returned list is a
// copy, which may be changed.
func Aliases(ctx context.Context) ([]relay.Alias, error) {
	list, err := ViewerOf(ctx).aliases()
	return slices.Clone(list), err
}

// ViewerOf returns the viewer of a page, or the zero Viewer if no user is logged in.
func ViewerOf(ctx context.Context) Viewer {
	f, _ := ctx.Value(viewerKey{}).(Viewer)
	return f
}

// themes are the choices of the theme switch; auto follows the system.
var themes = []string{"auto", "light", "dark"}

// themeCookie holds the theme, so that the server can send the page in the right colors: inline
// scripts are not allowed, and other scripts run after the first paint.
const themeCookie = "relay_theme"

// densities are the choices for the rows of events: one line for each row, or a second line with the
// error message or the path.
var densities = []string{"compact", "comfortable"}

// rowsCookie holds the chosen density, which the server needs when it makes the rows of a page.
const rowsCookie = "relay_rows"

// SetTheme stores the theme or the density in this browser, and redirects back to the page.
func (p *Pages) SetTheme(w http.ResponseWriter, r *http.Request) (templ.Component, error) {
	for _, c := range []struct {
		field, cookie string
		values        []string
	}{{"theme", themeCookie, themes}, {"rows", rowsCookie, densities}} {
		if value := Field(r, c.field); slices.Contains(c.values, value) {
			http.SetCookie(w, &http.Cookie{Name: c.cookie, Value: value, Path: "/", MaxAge: 365 * 24 * 3600, Secure: p.Secure(), SameSite: http.SameSiteLaxMode})
		}
	}
	return SeeOther(w, r, nil, referer(r))
}

// cookieChoice returns the value of a cookie if it is one of values, else the first value.
func cookieChoice(r *http.Request, cookie string, values []string) string {
	if c, err := r.Cookie(cookie); err == nil && slices.Contains(values, c.Value) {
		return c.Value
	}
	return values[0]
}

// Comfortable reports whether rows of events have two lines.
func (f Viewer) Comfortable() bool { return f.Rows == densities[1] }

// current returns the aria-current value of a link in the header.
func (f Viewer) current(path string) string {
	switch {
	case f.Path == path:
		return "page"
	case path != "/" && strings.HasPrefix(f.Path, path+"/"), path == "/" && (strings.HasPrefix(f.Path, "/aliases/") || strings.HasPrefix(f.Path, "/events/")):
		return "true"
	}
	return "false"
}
