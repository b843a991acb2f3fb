package cli

import (
	"bytes"
	"context"
	"net/http"
	"net/url"

	"golang.org/x/crypto/ssh"

	"relay"
	"relay/record"
)

// tokenLife is how long the token of a login stays valid after its last use.
const tokenLife = "90d"

// Me returns the account and the limits of the credential.
func (a *API) Me(ctx context.Context) (*record.Me, error) {
	me := &record.Me{}
	return me, a.Get(ctx, "/me", me)
}

// MakeToken makes an API token with all scopes of the account. The token expires when it has not been used
// for tokenLife.
func (a *API) MakeToken(ctx context.Context, name string) (*record.Token, error) {
	token := &record.Token{}
	wanted := map[string]any{"name": name, "expiresIn": tokenLife, "renew": true}
	err := a.Decode(ctx, http.MethodPost, "/tokens", wanted, token)
	if err == nil && token.Token == "" {
		err = Errorf(ExitFailure, "the relay made no token").WithHint("make one in its dashboard and run: relay login URL --with-token")
	}
	return token, err
}

// RegisterKey registers a public key with the account. Registering a key twice is no error.
func (a *API) RegisterKey(ctx context.Context, name string, key ssh.PublicKey) error {
	// An error of keyID is ignored: the POST fails for the same reason.
	if id, err := a.keyID(ctx, key); err == nil && id != "" {
		return nil
	}
	wanted := map[string]string{"name": name, "key": string(bytes.TrimSpace(ssh.MarshalAuthorizedKey(key)))}
	return a.Decode(ctx, http.MethodPost, "/keys", wanted, &record.Key{})
}

// keyID returns the id of a key of the account, or "" if the key is not registered.
func (a *API) keyID(ctx context.Context, key ssh.PublicKey) (id string, err error) {
	var list record.List[record.Key]
	if err := a.Get(ctx, "/keys", &list); err != nil {
		return "", err
	}
	for _, k := range list.Data {
		if k.Fingerprint == ssh.FingerprintSHA256(key) {
			return k.ID, nil
		}
	}
	return "", nil
}

// RemoveKey removes a key from the account. Removing an unknown key is no error.
func (a *API) RemoveKey(ctx context.Context, key ssh.PublicKey) error {
	id, err := a.keyID(ctx, key)
	if err != nil || id == "" {
		return err
	}
	return a.remove(ctx, "/keys/"+url.PathEscape(id))
}

// RevokeToken revokes the API's own token, which has the given id. Revoking it twice is no error. revoked is
// false when the token lacks the scope to revoke a token.
func (a *API) RevokeToken(ctx context.Context, id string) (revoked bool, err error) {
	err = a.remove(ctx, "/tokens/"+url.PathEscape(id))
	if HasCode(err, relay.CodeForbidden) {
		return false, nil
	}
	return err == nil, err
}

func (a *API) remove(ctx context.Context, path string) error {
	_, err := a.Call(ctx, http.MethodDelete, path, nil)
	if HasCode(err, relay.CodeNotFound) || HasCode(err, relay.CodeUnauthorized) {
		return nil // the relay answers unauthorized if the token was already revoked
	}
	return err
}
