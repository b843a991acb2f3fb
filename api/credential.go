package api

import (
	"context"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/grant"
	"relay/record"
)

type tokenBody struct {
	Name      string   `json:"name,omitempty" maxLength:"100"`
	Scopes    []string `json:"scopes,omitempty" doc:"if empty, all scopes of the creator"`
	Alias     *string  `json:"alias,omitempty" nullable:"true" doc:"limits the token to one alias"`
	ExpiresIn *string  `json:"expiresIn,omitempty" nullable:"true" doc:"such as 30d; null = never"`
	Renew     bool     `json:"renew,omitempty" doc:"expiresIn counts from the last use of the token"`
}

func (s *server) addTokenRoutes() {
	tokens := route{tag: "tokens", scope: relay.ScopeAccount, unlimitedOnly: true}
	list := func(ctx context.Context, c *requestInfo) ([]relay.Token, error) {
		return s.Accounts.Tokens(ctx, c.who, c.who.AccountName)
	}
	addList(s, tokens.on("GET /tokens", "list-tokens", "API tokens, without their secrets"),
		func(t relay.Token) record.Token { return record.OfToken(t, "") }, list)
	addJSON(s, tokens.on("POST /tokens", "create-token", "Create an API token; the secret is shown once", 201, 404), s.createToken)
	addJSON(s, tokens.on("POST /tokens/renew", "renew-token", "Prolong the token that asks, by the lifetime it was made with", 200, 409), s.renewToken)
	token := found(tokens, "id", func(t relay.Token) string { return t.ID }, list)
	addAction(s, token.on("DELETE /tokens/{id}", "delete-token", "Revoke an API token", 404),
		func(ctx context.Context, c *requestInfo) error {
			return s.Accounts.RemoveToken(ctx, c.who, c.path("id"))
		})
}

func (s *server) createToken(ctx context.Context, c *requestInfo, in *jsonBody[tokenBody]) (out record.Token, err error) {
	b := in.Body
	want := grant.TokenRequest{Name: b.Name, Scopes: b.Scopes, Renew: b.Renew}
	if b.Alias != nil {
		// "" probably comes from a script with an unset variable; it must not create a token for all aliases
		if want.Alias = *b.Alias; want.Alias == "" {
			return out, invalid("body.alias", "is empty; leave it out for a token of all aliases", nil)
		}
	}
	if want.ExpiresAt, err = parseExpiry(b.ExpiresIn); err != nil {
		return out, err
	}
	token, secret, err := s.grants().CreateToken(ctx, c.who, want)
	return record.OfToken(token, secret), err
}

func (s *server) renewToken(ctx context.Context, c *requestInfo, _ *noInput) (record.Token, error) {
	if err := s.Limits.Create(c.who); err != nil {
		return record.Token{}, err
	}
	token, err := s.Accounts.RenewToken(ctx, c.who)
	return record.OfToken(token, ""), err
}

type keyBody struct {
	Name string `json:"name,omitempty" maxLength:"100"`
	Key  string `json:"key" maxLength:"20000" doc:"a line as in authorized_keys"`
}

func (s *server) addKeyRoutes() {
	keys := route{tag: "keys", scope: relay.ScopeAccount, unlimitedOnly: true}
	list := func(ctx context.Context, c *requestInfo) ([]relay.Key, error) {
		return s.Accounts.Keys(ctx, c.who, c.who.AccountName)
	}
	addList(s, keys.on("GET /keys", "list-keys", "SSH keys"), record.OfKey, list)
	addJSON(s, keys.on("POST /keys", "create-key", "Register an SSH key", 201, 409),
		func(ctx context.Context, c *requestInfo, in *jsonBody[keyBody]) (key record.Key, err error) {
			if fault := record.NameFault(in.Body.Name); fault != "" {
				return key, invalid("body.name", fault, nil)
			}
			// Without a name in the request, the comment of the key becomes its name. The error of
			// ParseAuthorizedKey is ignored here, because the store reports mistakes in the key itself.
			_, comment, _, _, _ := ssh.ParseAuthorizedKey(record.DecodeText([]byte(in.Body.Key)))
			if fault := record.NameFault(comment); in.Body.Name == "" && fault != "" {
				return key, invalid("body.key", "the comment of the line "+fault+", or give a name", nil)
			}
			added, err := s.grants().AddKey(ctx, c.who, in.Body.Name, in.Body.Key)
			return record.OfKey(added), err
		})
	key := found(keys, "id", func(k relay.Key) string { return k.ID }, list)
	addAction(s, key.on("DELETE /keys/{id}", "delete-key", "Remove an SSH key", 404),
		func(ctx context.Context, c *requestInfo) error { return s.Accounts.RemoveKey(ctx, c.who, c.path("id")) })
}
