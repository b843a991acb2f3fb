package api

import (
	"context"
	"net/http"
	"time"

	"relay"
	"relay/record"
)

// inviteLifetime is how long an invitation is good for.
const inviteLifetime = 3 * 24 * time.Hour

// noContent is the input of routes without one, and the output of those that answer
// 204.
type noContent struct{}

// jsonBody is an output of one JSON value.
type jsonBody[T any] struct{ Body T }

// idInput names a token, key or session.
type idInput struct {
	ID string `path:"id"`
}

// userInput names an account.
type userInput struct {
	User string `path:"user"`
}

func (s *server) addAccountRoutes() {
	registerTyped(s, route{method: http.MethodGet, path: "/me", id: "get-me", tag: "account", summary: "The account and scopes of the credential"}, s.me)
	s.addTokenRoutes()
	s.addKeyRoutes()
	s.addSessionRoutes()
	s.addUserRoutes()
	registerTyped(s, route{
		method: http.MethodGet, path: "/audit", id: "list-audit", tag: "account",
		summary: "Audit log, newest first: your own entries, or all for admins", scope: relay.ScopeAccount, unlimitedOnly: true,
	}, s.audit)
}

func (s *server) me(_ context.Context, c *requestInfo, _ *noContent) (*jsonBody[*record.Me], error) {
	return &jsonBody[*record.Me]{record.OfActor(c.who)}, nil
}

type auditInput struct {
	Limit int `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

func (s *server) audit(ctx context.Context, c *requestInfo, in *auditInput) (*jsonBody[record.List[record.AuditEntry]], error) {
	return listAnswer(record.OfAudit)(s.Accounts.Audit(ctx, c.who, in.Limit))
}

// listAnswer gives a list answer, each item in its outward form.
func listAnswer[T, R any](form func(T) R) func([]T, error) (*jsonBody[record.List[R]], error) {
	return func(items []T, err error) (*jsonBody[record.List[R]], error) {
		data := make([]R, len(items))
		for i := range items {
			data[i] = form(items[i])
		}
		return &jsonBody[record.List[R]]{record.ListOf(data)}, err
	}
}

func (s *server) addSessionRoutes() {
	registerTyped(s, route{
		method: http.MethodGet, path: "/sessions", id: "list-sessions", tag: "account",
		summary: "Dashboard sessions", scope: relay.ScopeAccount, unlimitedOnly: true,
	}, func(ctx context.Context, c *requestInfo, _ *noContent) (*jsonBody[record.List[record.Session]], error) {
		return listAnswer(func(x relay.Session) record.Session { return record.OfSession(x, c.who) })(s.Accounts.Sessions(ctx, c.who))
	})
	registerTyped(s, route{
		method: http.MethodDelete, path: "/sessions/{id}", id: "delete-session", tag: "account",
		summary: "Log a dashboard session out", scope: relay.ScopeAccount, unlimitedOnly: true, errors: []int{http.StatusNotFound},
	}, func(ctx context.Context, c *requestInfo, in *idInput) (*noContent, error) {
		return nil, s.Accounts.RemoveSession(ctx, c.who, in.ID)
	})
}

type userBody struct {
	Name  string `json:"name"`
	Admin bool   `json:"admin,omitempty"`
}

func (s *server) addUserRoutes() {
	registerTyped(s, route{
		method: http.MethodGet, path: "/users", id: "list-users", tag: "users",
		summary: "All accounts", scope: relay.ScopeAccount, admin: true, unlimitedOnly: true,
	}, func(ctx context.Context, c *requestInfo, _ *noContent) (*jsonBody[record.List[record.User]], error) {
		return listAnswer(record.OfAccount)(s.Accounts.Accounts(ctx, c.who))
	})
	registerTyped(s, route{
		method: http.MethodPost, path: "/users", id: "create-user", tag: "users", status: http.StatusCreated,
		summary: "Create an account", scope: relay.ScopeAccount, admin: true, unlimitedOnly: true, errors: []int{http.StatusConflict},
	}, func(ctx context.Context, c *requestInfo, in *jsonBody[userBody]) (*jsonBody[record.User], error) {
		account, err := s.Accounts.CreateAccount(ctx, c.who, in.Body.Name, in.Body.Admin)
		return &jsonBody[record.User]{record.OfAccount(account)}, err
	})
	registerTyped(s, route{
		method: http.MethodDelete, path: "/users/{user}", id: "delete-user", tag: "users",
		summary: "Remove an account: its tunnels are closed and its tokens revoked; its aliases are kept for an admin to transfer",
		scope:   relay.ScopeAccount, admin: true, unlimitedOnly: true, errors: []int{http.StatusNotFound, http.StatusConflict},
	}, func(ctx context.Context, c *requestInfo, in *userInput) (*noContent, error) {
		if in.User == c.who.AccountName { // of the last admin nobody could bring it back
			return nil, relay.Errorf(relay.CodeConflict, "your own account cannot be removed here; another admin can do it, or: relayd user rm")
		}
		return nil, s.Accounts.RemoveAccount(ctx, c.who, in.User)
	})
	registerTyped(s, route{
		method: http.MethodPost, path: "/users/{user}/invite", id: "create-invite", tag: "users", status: http.StatusCreated,
		summary: "Create a one-time registration link", scope: relay.ScopeAccount, admin: true, unlimitedOnly: true,
		errors: []int{http.StatusNotFound},
	}, s.invite)
}

func (s *server) invite(ctx context.Context, c *requestInfo, in *userInput) (*jsonBody[*record.Invite], error) {
	if err := s.Limits.Create(c.who); err != nil {
		return nil, err
	}
	expires := time.Now().Add(inviteLifetime)
	secret, err := s.Accounts.CreateInvite(ctx, c.who, in.User, inviteLifetime)
	if err != nil {
		return nil, err
	}
	return &jsonBody[*record.Invite]{record.OfInvite(secret, expires, s.Site)}, nil
}
