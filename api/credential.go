package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/record"
)

type tokenBody struct {
	Name      string   `json:"name,omitempty" maxLength:"100"`
	Scopes    []string `json:"scopes,omitempty" doc:"if empty, all scopes of the creator"`
	Alias     string   `json:"alias,omitempty" nullable:"true" doc:"limits the token to one alias"`
	ExpiresIn *string  `json:"expiresIn,omitempty" nullable:"true" doc:"such as 30d; null = never"`
	Renew     bool     `json:"renew,omitempty" doc:"expiresIn counts from the last use of the token"`
}

func (s *server) addTokenRoutes() {
	registerTyped(s, route{
		method: http.MethodGet, path: "/tokens", id: "list-tokens", tag: "tokens",
		summary: "API tokens, without their secrets", scope: relay.ScopeAccount, unlimitedOnly: true,
	}, func(ctx context.Context, c *requestInfo, _ *noContent) (*jsonBody[record.List[record.Token]], error) {
		return listAnswer(func(t relay.Token) record.Token { return record.OfToken(t, "") })(s.Accounts.Tokens(ctx, c.who, c.who.AccountName))
	})
	registerTyped(s, route{
		method: http.MethodPost, path: "/tokens", id: "create-token", tag: "tokens", status: http.StatusCreated,
		summary: "Create an API token; the secret is shown once", scope: relay.ScopeAccount, unlimitedOnly: true,
		errors: []int{http.StatusNotFound},
	}, s.createToken)
	registerTyped(s, route{
		method: http.MethodDelete, path: "/tokens/{id}", id: "delete-token", tag: "tokens",
		summary: "Revoke an API token", scope: relay.ScopeAccount, unlimitedOnly: true, errors: []int{http.StatusNotFound},
	}, func(ctx context.Context, c *requestInfo, in *idInput) (*noContent, error) {
		return nil, s.Accounts.RemoveToken(ctx, c.who, in.ID)
	})
}

func (s *server) createToken(ctx context.Context, c *requestInfo, in *jsonBody[tokenBody]) (*jsonBody[record.Token], error) {
	b := in.Body
	if fault := record.NameFault(b.Name); fault != "" {
		return nil, invalid("body.name", fault, nil)
	}
	scopes := c.who.Scopes
	if len(b.Scopes) > 0 {
		var err error
		if scopes, err = relay.ParseScopes(b.Scopes); err != nil {
			return nil, invalid("body.scopes", relay.AsError(err).Detail, nil)
		}
	}
	expires, err := parseExpiry(b.ExpiresIn)
	if err != nil {
		return nil, err
	}
	if err := checkTokenLimits(c.who, scopes, expires); err != nil {
		return nil, err
	}
	var renewal time.Duration
	switch {
	case b.Renew && expires.IsZero():
		return nil, invalid("body.renew", "needs an expiresIn", nil)
	case b.Renew && !c.who.ExpiresAt.IsZero():
		return nil, relay.Errorf(relay.CodeForbidden, "a login or token that expires cannot make a token that is renewed")
	case b.Renew:
		renewal = time.Until(expires).Round(time.Second)
	}
	if err := s.Limits.Create(c.who); err != nil {
		return nil, err
	}
	token, secret, err := s.Accounts.CreateToken(ctx, c.who, relay.Token{
		Account: c.who.Account, AccountName: c.who.AccountName, Name: b.Name, Scopes: scopes, Alias: b.Alias, ExpiresAt: expires, Renewal: renewal,
	})
	if err != nil {
		return nil, err
	}
	return &jsonBody[record.Token]{record.OfToken(token, secret)}, nil
}

// checkTokenLimits keeps a new token within the limits of the token that creates it. The
// store checks the same; this check explains what would be accepted.
func checkTokenLimits(who relay.Actor, scopes relay.Scope, expires time.Time) error {
	if who.Kind != relay.ActorToken {
		return nil
	}
	if more := scopes &^ who.Scopes; more != 0 {
		return relay.Errorf(relay.CodeForbidden, "a token cannot make one with more scopes than its own; leave out %s", strings.Join(more.Names(), " "))
	}
	if end := who.ExpiresAt; !end.IsZero() && (expires.IsZero() || expires.After(end)) {
		return relay.Errorf(relay.CodeForbidden, "a token cannot make one that lasts longer than itself; give an expiresIn below %s",
			relay.FormatDuration(max(time.Until(end).Truncate(time.Second), time.Second)))
	}
	return nil
}

type keyBody struct {
	Name string `json:"name,omitempty" maxLength:"100"`
	Key  string `json:"key" maxLength:"20000" doc:"a line as in authorized_keys"`
}

// checkName refuses a name that cannot be shown; without one the comment of the line is it.
func (b *keyBody) checkName() error {
	if fault := record.NameFault(b.Name); fault != "" {
		return invalid("body.name", fault, nil)
	}
	if b.Name != "" {
		return nil
	}
	_, comment, _, _, err := ssh.ParseAuthorizedKey([]byte(b.Key))
	if fault := record.NameFault(comment); err == nil && fault != "" {
		return invalid("body.key", "the comment of the line "+fault+", or give a name", nil)
	}
	return nil // what is wrong with the key itself is said by the store
}

func (s *server) addKeyRoutes() {
	registerTyped(s, route{
		method: http.MethodGet, path: "/keys", id: "list-keys", tag: "keys",
		summary: "SSH keys", scope: relay.ScopeAccount, unlimitedOnly: true,
	}, func(ctx context.Context, c *requestInfo, _ *noContent) (*jsonBody[record.List[record.Key]], error) {
		return listAnswer(record.OfKey)(s.Accounts.Keys(ctx, c.who, c.who.AccountName))
	})
	registerTyped(s, route{
		method: http.MethodPost, path: "/keys", id: "create-key", tag: "keys", status: http.StatusCreated,
		summary: "Register an SSH key", scope: relay.ScopeAccount, unlimitedOnly: true,
		errors: []int{http.StatusConflict},
	}, func(ctx context.Context, c *requestInfo, in *jsonBody[keyBody]) (*jsonBody[record.Key], error) {
		if err := in.Body.checkName(); err != nil {
			return nil, err
		}
		if err := s.Limits.Create(c.who); err != nil {
			return nil, err
		}
		key, err := s.Accounts.AddKey(ctx, c.who, c.who.AccountName, in.Body.Name, in.Body.Key)
		return &jsonBody[record.Key]{record.OfKey(key)}, err
	})
	registerTyped(s, route{
		method: http.MethodDelete, path: "/keys/{id}", id: "delete-key", tag: "keys",
		summary: "Remove an SSH key", scope: relay.ScopeAccount, unlimitedOnly: true, errors: []int{http.StatusNotFound},
	}, func(ctx context.Context, c *requestInfo, in *idInput) (*noContent, error) {
		return nil, s.Accounts.RemoveKey(ctx, c.who, in.ID)
	})
}
