// Package cookie finds the session of a request in its cookies, for the API and the dashboard.
package cookie

import (
	"errors"
	"net/http"
	"slices"

	"relay"
)

// maxSessionCookies is the maximum number of session cookies that are looked up for a request.
const maxSessionCookies = 4

// errTwoSessions is the error for sessions of two accounts. Without https, a page on an alias host can
// add cookies to a request for the base site. If both sessions were accepted, that page could choose
// the account that the request acts for (ADR 0018).
var errTwoSessions = relay.Errorf(relay.CodeUnauthorized, "this request carried sessions of two accounts; a page on an alias host may have set one of them. Cookies set by other hosts were removed: try again. If this happens again, clear the cookies of this site and log in again")

// Name returns the name of the session cookie. With https the name has a prefix. Browsers then refuse
// the cookie if it lacks Secure, has a Domain, or comes from a sibling host (RFC 6265bis, section
// 4.1.3.2).
func Name(s relay.Site) string {
	if s.Base.Scheme == "https" {
		return "__Host-relay_session"
	}
	return "relay_session"
}

// Secrets returns the secrets of the first maxSessionCookies different session cookies of a request.
func Secrets(s relay.Site, r *http.Request) []string {
	var secrets []string
	for _, c := range r.CookiesNamed(Name(s)) {
		if c.Value != "" && !slices.Contains(secrets, c.Value) && len(secrets) < maxSessionCookies {
			secrets = append(secrets, c.Value)
		}
	}
	return secrets
}

// Actor returns the actor of the session whose secret a request carries; owner looks a secret up.
// Secrets of ended or unknown sessions are ignored, so that a page that can add a cookie cannot log a
// user out. If another secret belongs to a session, secrets that owner refuses after too many guesses
// are ignored, too. The error is ErrNotFound if no secret belongs to a session, and has the code
// unauthorized if the secrets belong to sessions of two accounts.
func Actor(secrets []string, owner func(secret string) (relay.Actor, error)) (who relay.Actor, err error) {
	isFound := false
	for _, secret := range secrets {
		found, e := owner(secret)
		switch {
		case errors.Is(e, relay.ErrNotFound):
		case e != nil:
			err = e
		case isFound && found.Account != who.Account:
			return relay.Actor{}, errTwoSessions
		case !isFound:
			who, isFound = found, true
		}
	}
	switch {
	case isFound && (err == nil || relay.AsError(err).Code == relay.CodeRateLimited):
		return who, nil
	case err == nil:
		err = relay.ErrNotFound
	}
	return relay.Actor{}, err
}
