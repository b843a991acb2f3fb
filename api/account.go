package api

import (
	"context"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"relay"
	"relay/record"
)

// auditInput is the query of GET /audit: the number of entries to list.
type auditInput struct {
	Limit int `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

// userBody describes a new account.
type userBody struct {
	Name  string `json:"name"`
	Admin bool   `json:"admin,omitempty"`
}

// userChangeBody holds the fields of an account that can be changed.
type userChangeBody struct {
	MaxAccountStorage *int64 `json:"maxAccountStorage,omitempty" minimum:"0" nullable:"true" doc:"bytes that all aliases of the account may store; 0 = no limit, null = the server's limit"`
	MaxAccountQueue   *int64 `json:"maxAccountQueue,omitempty" minimum:"0" nullable:"true" doc:"attempts that may be queued at all aliases of the account; 0 = no limit, null = the server's limit"`
}

// userChange is a body that was checked against userChangeBody. Unlike userChangeBody, it distinguishes
// absent keys from null.
type userChange map[string]*int64

// Schema returns the schema of userChangeBody.
func (userChange) Schema(r huma.Registry) *huma.Schema {
	return r.Schema(reflect.TypeFor[userChangeBody](), true, "")
}

func (s *server) addAccountRoutes() {
	account := route{tag: "account", scope: relay.ScopeAccount, unlimitedOnly: true}
	addJSON(s, route{tag: "account"}.on("GET /me", "get-me", "The account and scopes of the credential"),
		func(_ context.Context, c *requestInfo, _ *noInput) (*record.Me, error) {
			return record.OfActor(c.who), nil
		})
	addJSON(s, account.on("GET /audit", "list-audit", "Audit log, newest first: your own entries, or all for admins"),
		func(ctx context.Context, c *requestInfo, in *auditInput) (record.List[record.AuditEntry], error) {
			entries, err := s.Accounts.Audit(ctx, c.who, in.Limit)
			return listOf(entries, record.OfAudit), err
		})
	addJSON(s, account.on("GET /sessions", "list-sessions", "Dashboard sessions"),
		func(ctx context.Context, c *requestInfo, _ *noInput) (record.List[record.Session], error) {
			sessions, err := s.Accounts.Sessions(ctx, c.who)
			return listOf(sessions, func(x relay.Session) record.Session { return record.OfSession(x, c.who) }), err
		})
	session := found(account, "id", func(x relay.Session) string { return x.ID }, func(ctx context.Context, c *requestInfo) ([]relay.Session, error) {
		return s.Accounts.Sessions(ctx, c.who)
	})
	addAction(s, session.on("DELETE /sessions/{id}", "delete-session", "Log a dashboard session out", 404),
		func(ctx context.Context, c *requestInfo) error {
			return s.Accounts.RemoveSession(ctx, c.who, c.path("id"))
		})
	s.addUserRoutes()
}

func (s *server) addUserRoutes() {
	users := route{tag: "users", scope: relay.ScopeAccount, admin: true, unlimitedOnly: true}
	list := func(ctx context.Context, c *requestInfo) ([]relay.Account, error) {
		return s.Accounts.Accounts(ctx, c.who)
	}
	addJSON(s, users.on("GET /users", "list-users", "All accounts, with what each has stored and queued"),
		func(ctx context.Context, c *requestInfo, _ *noInput) (out record.List[record.User], err error) {
			accounts, err := list(ctx, c)
			if err != nil {
				return out, err
			}
			usage, err := s.Accounts.AccountUsage(ctx, c.who)
			if err != nil { // the accounts are listed even if their usage cannot be read
				return listOf(accounts, record.OfAccount), nil
			}
			return listOf(accounts, func(a relay.Account) record.User { return record.OfAccountUsage(a, usage[a.ID]) }), nil
		})
	addJSON(s, users.on("POST /users", "create-user", "Create an account", 201, 409),
		func(ctx context.Context, c *requestInfo, in *jsonBody[userBody]) (record.User, error) {
			account, err := s.Accounts.CreateAccount(ctx, c.who, in.Body.Name, in.Body.Admin)
			return record.OfAccount(account), err
		})
	user := found(users, "user", func(x relay.Account) string { return x.Name }, list)
	addJSON(s, user.on("PATCH /users/{user}", "update-user", "Change the limits of an account", 404),
		func(ctx context.Context, c *requestInfo, in *jsonBody[userChange]) (record.User, error) {
			account, err := s.Accounts.SetAccount(ctx, c.who, c.path("user"), in.Body)
			return record.OfAccount(account), err
		})
	addAction(s, user.on("DELETE /users/{user}", "delete-user",
		"Remove an account: its tunnels are closed and its tokens revoked; its aliases stay, for an admin to transfer", 404, 409),
		func(ctx context.Context, c *requestInfo) error {
			if c.path("user") == c.who.AccountName { // no API call can restore the last admin, so admins cannot remove themselves
				return relay.Errorf(relay.CodeConflict, "your own account cannot be removed here; another admin can do it, or: relayd user rm")
			}
			return s.Accounts.RemoveAccount(ctx, c.who, c.path("user"))
		})
	addJSON(s, user.on("POST /users/{user}/invite", "create-invite", "Create a one-time registration link", 201, 404),
		func(ctx context.Context, c *requestInfo, _ *noInput) (*record.Invite, error) {
			secret, expires, err := s.grants().CreateInvite(ctx, c.who, c.path("user"))
			return record.OfInvite(secret, expires, s.Site), err
		})
}
