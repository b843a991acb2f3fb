package api

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"relay"
	"relay/cookie"
	"relay/record"
)

// actorKey is the context key of WithActor.
type actorKey struct{}

// WithActor returns a context for requests whose connection has already authenticated the user, as
// the SSH server does by key. Nothing in the request can set or change the actor: the Authorization
// header and cookies of such a request are ignored.
func WithActor(ctx context.Context, who relay.Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, who)
}

// authenticate identifies the user by the actor that WithActor has set, else by bearer token, else by the
// dashboard's cookie. If a request has a token, the cookie is ignored.
func (s *server) authenticate(r *http.Request, c *requestInfo) error {
	if c.who.Kind != "" {
		return nil
	}
	if who, ok := r.Context().Value(actorKey{}).(relay.Actor); ok {
		c.who = who
		return nil
	}
	lines, ok := r.Header["Authorization"]
	if !ok {
		return s.authenticateSession(r, c)
	}
	scheme, secret, _ := strings.Cut(lines[0], " ")
	secret = strings.TrimSpace(secret)
	if len(lines) != 1 || !strings.EqualFold(scheme, "Bearer") || secret == "" {
		return relay.Errorf(relay.CodeUnauthorized, "send one line: Authorization: Bearer rly_…")
	}
	who, err := s.lookUpSecret(r, secret, s.Accounts.TokenOwner)
	if errors.Is(err, relay.ErrNotFound) {
		return relay.Errorf(relay.CodeUnauthorized, "this token is unknown, expired or revoked; make a new one")
	}
	c.who = who
	return err
}

// maxVia bounds the stored name of the program that a client of the API acts for, in characters.
const maxVia = 80

// viaOf returns the name of the program that the client claims to act for; "" = none. The name is recorded
// beside the actor and grants no rights.
func viaOf(r *http.Request) string {
	via := r.Header.Get(record.ViaHeader)
	if name, _, _ := strings.Cut(via, " "); name != "mcp" {
		return ""
	}
	return record.SafeTextMax(via, maxVia)
}

// lookUpSecret looks up a secret, unless too many wrong secrets have come from the client's address.
func (s *server) lookUpSecret(r *http.Request, secret string, owner func(context.Context, string) (relay.Actor, error)) (who relay.Actor, err error) {
	err = s.Limits.LookUpSecret(r.RemoteAddr, secret, func() (err error) {
		who, err = owner(r.Context(), secret)
		return err
	})
	return who, err
}

func (s *server) authenticateSession(r *http.Request, c *requestInfo) error {
	secrets := cookie.Secrets(s.Site, r)
	if len(secrets) == 0 {
		return relay.Errorf(relay.CodeUnauthorized, "send an API token as Authorization: Bearer rly_…")
	}
	who, err := cookie.Actor(secrets, func(secret string) (relay.Actor, error) { return s.lookUpSecret(r, secret, s.Accounts.SessionOwner) })
	if errors.Is(err, relay.ErrNotFound) {
		return relay.Errorf(relay.CodeUnauthorized, "this session is over; log in again")
	}
	if err != nil {
		return err
	}
	// Browsers regard the hosts of aliases and the dashboard as one site, so they add the session cookie to
	// the requests of pages on alias hosts. Their header Sec-Fetch-Site or Origin shows this.
	if s.origin.Check(r) != nil {
		return relay.Errorf(relay.CodeForbidden, "a page of another origin may not do this with your session; use an API token")
	}
	// The check above passes every GET. A page of another site cannot read the answer to a GET, but could
	// make the server produce that answer again and again.
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
	default:
		return relay.Errorf(relay.CodeForbidden, "a page of another site may not read this with your session; use an API token")
	}
	c.who = who
	return nil
}
