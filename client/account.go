package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"golang.org/x/crypto/ssh"

	"relay/record"
)

// Me returns the account and the limits of the token.
func (a *API) Me(ctx context.Context) (*record.Me, error) {
	me := &record.Me{}
	return me, a.get(ctx, "/me", me)
}

// RegisterKey registers a public key with the account and returns the id by which it
// can be removed. A key that is registered already is no error.
func (a *API) RegisterKey(ctx context.Context, name string, key ssh.PublicKey) (id string, err error) {
	body, err := json.Marshal(map[string]string{
		"name": name, "key": string(bytes.TrimSpace(ssh.MarshalAuthorizedKey(key))),
	})
	if err != nil {
		return "", err
	}
	// An error of the list is ignored: the POST fails for the same reason.
	if id, err = a.keyID(ctx, key); err == nil && id != "" {
		return id, nil
	}
	var made record.Key
	var answer bytes.Buffer
	if err := a.copy(ctx, http.MethodPost, "/keys", body, &answer); err != nil {
		return "", err
	}
	return made.ID, json.Unmarshal(answer.Bytes(), &made)
}

// keyID returns the id of a key of the account, or "" if the key is not registered.
func (a *API) keyID(ctx context.Context, key ssh.PublicKey) (id string, err error) {
	var list record.List[record.Key]
	if err := a.get(ctx, "/keys", &list); err != nil {
		return "", err
	}
	for _, k := range list.Data {
		if k.Fingerprint == ssh.FingerprintSHA256(key) {
			return k.ID, nil
		}
	}
	return "", nil
}

// RemoveKey removes a key from the account. A key that is not registered is no error.
func (a *API) RemoveKey(ctx context.Context, key ssh.PublicKey) error {
	id, err := a.keyID(ctx, key)
	if err != nil || id == "" {
		return err
	}
	return a.remove(ctx, "/keys/"+url.PathEscape(id))
}

// RevokeToken revokes the API's own token, whose id it takes. A token that is revoked
// already is no error. revoked is false when the token lacks the scope to revoke one.
func (a *API) RevokeToken(ctx context.Context, id string) (revoked bool, err error) {
	err = a.remove(ctx, "/tokens/"+url.PathEscape(id))
	var e *Error
	if errors.As(err, &e) && e.forbidden {
		return false, nil
	}
	return err == nil, err
}

func (a *API) remove(ctx context.Context, path string) error {
	resp, err := a.request(ctx, http.MethodDelete, path, nil)
	var e *Error
	if errors.As(err, &e) && (e.Exit == ExitNotFound || e.Exit == ExitRefused) {
		return nil // a revoked token is unauthorized
	}
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
