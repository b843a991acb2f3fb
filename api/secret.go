package api

import (
	"context"

	"relay"
	"relay/record"
)

type secretInput struct {
	Body struct {
		Provider string       `json:"provider" maxLength:"100" doc:"name of the sender, one of GET /providers"`
		Secret   string       `json:"secret" doc:"kept sealed, and never shown again"`
		Path     nullableText `json:"path,omitzero" doc:"prefix of the request targets that it is for; null = all"`
		Sign     bool         `json:"sign,omitempty" doc:"requests may be signed with it: whoever may send through the alias can then have anything signed"`
	}
}

// addSecretRoutes adds the secrets of senders that an alias keeps.
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
	made, err := s.Accounts.AddSecret(ctx, c.who, c.alias.Name, want, relay.NewSecretText(in.Body.Secret))
	return record.OfSecret(made), err
}
