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

// Me says whom the token belongs to.
func (a *API) Me(ctx context.Context) (*record.Me, error) {
	me := &record.Me{}
	return me, a.get(ctx, "/me", me)
}

// RegisterKey makes a public key one of the account; one that is registered already
// is fine. It gives the id by which the key can be removed.
func (a *API) RegisterKey(ctx context.Context, name string, key ssh.PublicKey) (id string, err error) {
	body, err := json.Marshal(map[string]string{
		"name": name, "key": string(bytes.TrimSpace(ssh.MarshalAuthorizedKey(key))),
	})
	if err != nil {
		return "", err
	}
	// Where the list cannot be read, making the key says why.
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

// keyID finds a key among those of the account; "" = it is none of them.
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

// RemoveKey takes a key from the account; one that is not there is fine.
func (a *API) RemoveKey(ctx context.Context, key ssh.PublicKey) error {
	id, err := a.keyID(ctx, key)
	if err != nil || id == "" {
		return err
	}
	return a.remove(ctx, "/keys/"+url.PathEscape(id))
}

// RevokeToken revokes the API's own token, whose id it takes; one that is gone already
// is fine. It gives false when the token may not revoke any.
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
		return nil // a token that is not known any more cannot revoke itself
	}
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
