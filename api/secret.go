package api

import (
	"bytes"
	"context"
	"encoding/json"

	"relay"
	"relay/record"
)

type secretInput struct {
	Body struct {
		Provider string       `json:"provider" maxLength:"100" doc:"name of the sender, one of GET /providers"`
		Secret   string       `json:"secret,omitempty" doc:"stored sealed, and never shown again"`
		From     string       `json:"from,omitempty" maxLength:"100" doc:"in place of secret: an event of the alias whose challenge contains it (asana, notion)"`
		Path     nullableText `json:"path,omitzero" doc:"prefix of the request targets that it is for; null = all"`
		Custom   anyJSON      `json:"custom,omitzero" doc:"the scheme, where the provider is custom: header, template, and perhaps hash, form, key, prefix and toleranceSeconds; null = none"`
		Sign     bool         `json:"sign,omitempty" doc:"requests may be signed with it: whoever may send through the alias can then have anything signed"`
	}
}

// addSecretRoutes adds the routes for the secrets of senders that an alias has.
func (s *server) addSecretRoutes() {
	reads := route{tag: "signatures", scope: relay.ScopeAliasesRead, resolve: s.resolveAlias}
	writes := reads
	writes.scope, writes.takesSecret = relay.ScopeAliasesWrite, true
	list := func(ctx context.Context, c *requestInfo) ([]relay.SenderSecret, error) {
		return s.Accounts.Secrets(ctx, c.who, c.alias.Name)
	}
	addList(s, reads.on("GET /aliases/{alias}/secrets", "list-secrets", "Secrets of the senders of an alias, without their values"), record.OfSecret, list)
	addJSON(s, writes.on("POST /aliases/{alias}/secrets", "add-secret", "Keep the secret of a sender, to judge the signatures of its requests", 201, 409), s.addSecret)
	secret := found(writes, "id", func(x relay.SenderSecret) string { return x.ID }, list)
	addAction(s, secret.on("DELETE /aliases/{alias}/secrets/{id}", "remove-secret", "Remove the secret of a sender"),
		func(ctx context.Context, c *requestInfo) error {
			return s.Accounts.RemoveSecret(ctx, c.who, c.alias.Name, c.path("id"))
		})
}

func (s *server) addSecret(ctx context.Context, c *requestInfo, in *secretInput) (record.SenderSecret, error) {
	want := relay.SenderSecret{Provider: in.Body.Provider, Sign: in.Body.Sign}
	in.Body.Path.set(&want.Path)
	if custom := in.Body.Custom.text(); custom != "" {
		var compact bytes.Buffer // the definition is stored and shown as compact JSON
		if err := json.Compact(&compact, []byte(custom)); err != nil {
			return record.SenderSecret{}, invalid("body.custom", "this is not JSON", nil)
		}
		want.Custom = compact.String()
	}
	value := relay.NewSecretText(in.Body.Secret)
	if in.Body.From != "" {
		sent, err := s.sentSecret(ctx, c, in.Body.From, want.Provider)
		if err != nil {
			return record.SenderSecret{}, err
		}
		if in.Body.Secret != "" {
			return record.SenderSecret{}, invalid("body.from", "give either secret or from", nil)
		}
		value = sent
	}
	made, err := s.Accounts.AddSecret(ctx, c.who, c.alias.Name, want, value)
	return record.OfSecret(made), err
}

// sentSecret returns the secret that the challenge of an event contains.
func (s *server) sentSecret(ctx context.Context, c *requestInfo, event, provider string) (value relay.SecretText, err error) {
	id, err := relay.ParseID(event)
	if err != nil {
		return value, relay.ErrNotFound
	}
	e, err := s.Events.Request(ctx, c.who, id, maxSecretBody)
	if err == nil && e.AliasID != c.alias.ID {
		err = relay.ErrNotFound
	}
	if err != nil {
		return value, err
	}
	sender, value := record.SentSecret(e)
	if sender == "" || sender != provider {
		return value, invalid("body.from", "this event contains no secret of that provider", nil)
	}
	return value, nil
}

// maxSecretBody is the largest number of bytes that are read of the body of a challenge, to find a secret in
// it.
const maxSecretBody = 64 << 10
