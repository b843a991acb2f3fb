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
	id, known := a.keyID(ctx, key)
	if known {
		return id, nil
	}
	var made record.Key
	var answer bytes.Buffer
	if err := a.copy(ctx, http.MethodPost, "/keys", body, &answer); err != nil {
		return "", err
	}
	return made.ID, json.Unmarshal(answer.Bytes(), &made)
}

// keyID finds a key among those of the account.
func (a *API) keyID(ctx context.Context, key ssh.PublicKey) (id string, known bool) {
	var list record.List[record.Key]
	if a.get(ctx, "/keys", &list) != nil {
		return "", false
	}
	for _, k := range list.Data {
		if k.Fingerprint == ssh.FingerprintSHA256(key) {
			return k.ID, true
		}
	}
	return "", false
}

// RemoveKey takes a key from the account; one that is not there is fine.
func (a *API) RemoveKey(ctx context.Context, key ssh.PublicKey) error {
	id, known := a.keyID(ctx, key)
	if !known {
		return nil
	}
	return a.remove(ctx, "/keys/"+url.PathEscape(id))
}

// RemoveToken revokes a token by its id; one that is gone already is fine.
func (a *API) RemoveToken(ctx context.Context, id string) error {
	return a.remove(ctx, "/tokens/"+url.PathEscape(id))
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
