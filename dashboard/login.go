package dashboard

import (
	"errors"
	"net/http"

	"github.com/a-h/templ"

	"relay"
)

const sessionAge = 30 * 24 * 3600 // seconds

// cookieName is bound to the host by its prefix where the base site is https, so
// that a page on an alias host cannot set it (RFC 6265bis, section 4.1.3.2).
func (p *pages) cookieName() string {
	if p.secure() {
		return "__Host-relay_session"
	}
	return "relay_session"
}

func (p *pages) secure() bool { return p.Site.Base.Scheme == "https" }

// login shows whose link it is; only the button uses it up, so that previews of
// the link do not.
func (p *pages) login(_ http.ResponseWriter, r *http.Request) (templ.Component, error) {
	acc, err := p.Accounts.LoginLink(r.Context(), r.PathValue("token"))
	if errors.Is(err, relay.ErrNotFound) {
		return nil, p.deadLink()
	}
	if err != nil {
		return nil, err
	}
	return login(acc.Name), nil
}

func (p *pages) useLogin(w http.ResponseWriter, r *http.Request) (templ.Component, error) {
	session, _, err := p.Accounts.UseLoginLink(r.Context(), r.PathValue("token"), r.RemoteAddr, r.UserAgent())
	if errors.Is(err, relay.ErrNotFound) {
		return nil, p.deadLink()
	}
	if err != nil {
		return nil, err
	}
	http.SetCookie(w, p.cookie(session, sessionAge))
	http.Redirect(w, r, "/", http.StatusSeeOther)
	return nil, nil
}

func (p *pages) logout(w http.ResponseWriter, r *http.Request) (templ.Component, error) {
	if c, err := r.Cookie(p.cookieName()); err == nil {
		if err := p.Accounts.EndSession(r.Context(), c.Value); err != nil && !errors.Is(err, relay.ErrNotFound) {
			return nil, err
		}
	}
	http.SetCookie(w, p.cookie("", -1))
	http.Redirect(w, r, "/", http.StatusSeeOther)
	return nil, nil
}

func (p *pages) cookie(value string, age int) *http.Cookie {
	return &http.Cookie{
		Name: p.cookieName(), Value: value, Path: "/", MaxAge: age,
		HttpOnly: true, Secure: p.secure(), SameSite: http.SameSiteLaxMode,
	}
}

func (p *pages) deadLink() error {
	return relay.Errorf(relay.CodeNotFound, "this login link was used, has run out, or never was; get a new one with: %s", p.loginCommand())
}
