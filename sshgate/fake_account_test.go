package sshgate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
)

func (f *fakeStore) KeyOwner(_ context.Context, fingerprint string) (relay.Actor, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return relay.Actor{}, errors.New("connection refused")
	}
	who, ok := f.keys[fingerprint]
	if !ok {
		return relay.Actor{}, relay.ErrNotFound
	}
	return who, nil
}

func (f *fakeStore) mayUse(a *relay.Alias, who relay.Actor) bool {
	if a.Owner == who.Account {
		return true
	}
	for _, m := range f.members[a.Name] {
		if m == who.Account {
			return true
		}
	}
	return false
}

func (f *fakeStore) ClaimAlias(ctx context.Context, who relay.Actor, name string) (*relay.Alias, error) {
	if f.slow != nil {
		select {
		case <-f.slow:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !relay.ValidLabel(name) || relay.ReservedLabel(name) {
		return nil, relay.Errorf(relay.CodeValidationFailed, "%s is not a valid name", name)
	}
	a := f.aliases[name]
	switch {
	case a == nil && f.claiming:
		a = f.add(name, who.Account)
	case a == nil || !f.mayUse(a, who):
		return nil, relay.ErrNotFound
	}
	own := *a // a copy, because tests change the alias
	return &own, nil
}

func (f *fakeStore) add(name string, owner int64) *relay.Alias {
	f.nextID++
	a := &relay.Alias{ID: f.nextID, Name: name, Owner: owner, Settings: relay.DefaultSettings()}
	f.aliases[name] = a
	return a
}

// alias creates an alias.
func (f *fakeStore) alias(name string, owner int64) *relay.Alias {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.add(name, owner)
}

func (f *fakeStore) Aliases(_ context.Context, who relay.Actor) ([]relay.Alias, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []relay.Alias
	for _, a := range f.aliases {
		if f.mayUse(a, who) {
			list = append(list, *a)
		}
	}
	return list, nil
}

func (f *fakeStore) NoteLogin(relay.Actor, string) {}

func (f *fakeStore) NoteRefusedLogin(keys, detail string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refusedLogins = append(f.refusedLogins, keys+" "+detail)
}

func (f *fakeStore) NoteRefusedForward(account int64, x relay.RefusedForward) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused[account] = append(f.refused[account], x)
}

func (f *fakeStore) NoteAllowedForward(account int64, bind string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused[account] = slices.DeleteFunc(f.refused[account], func(x relay.RefusedForward) bool { return x.Bind == bind })
}

func (f *fakeStore) Revoked(_ context.Context, rights []relay.Right) (revoked []relay.Right, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, rights)
	if f.down {
		return nil, errors.New("connection refused")
	}
	stands := func(r relay.Right) bool {
		for _, known := range f.keys {
			if r.Alias == 0 && known.Credential == r.Key {
				return true
			}
		}
		for _, a := range f.aliases {
			if a.ID == r.Alias && f.mayUse(a, relay.Actor{Account: r.Account}) {
				return true
			}
		}
		return false
	}
	return slices.DeleteFunc(slices.Clone(rights), stands), nil
}

func (f *fakeStore) StillValid(_ context.Context, who relay.Actor) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return errors.New("connection refused")
	}
	for _, proofs := range []map[string]relay.Actor{f.keys, f.tokens} {
		for _, known := range proofs {
			if known.Credential == who.Credential {
				return nil
			}
		}
	}
	return relay.ErrNotFound
}

func (f *fakeStore) AddKey(_ context.Context, who relay.Actor, _, _, line string) (relay.Key, error) {
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil {
		return relay.Key{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	fp := ssh.FingerprintSHA256(key)
	if _, taken := f.keys[fp]; taken {
		return relay.Key{}, relay.Errorf(relay.CodeConflict, "this key is registered already")
	}
	f.keys[fp] = relay.Actor{
		Account: who.Account, AccountName: who.AccountName, Kind: relay.ActorSSH, Name: who.AccountName,
		Scopes: relay.AllScopes, Credential: "key_" + fp,
	}
	return relay.Key{Fingerprint: fp}, nil
}

func (f *fakeStore) TokenOwner(_ context.Context, secret string) (relay.Actor, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	who, ok := f.tokens[secret]
	if !ok {
		return relay.Actor{}, relay.ErrNotFound
	}
	return who, nil
}

func (f *fakeStore) CreateLoginLink(_ context.Context, who relay.Actor, user string, _ time.Duration) (string, error) {
	return "secret-for-" + user, nil
}

// fakeEnrolment is a waiting key. Its code is always fakeCode.
type fakeEnrolment struct {
	relay.Enrolment
	ended string
}

const fakeCode = "AAAABBBB"

func (f *fakeStore) AddEnrolment(_ context.Context, e relay.Enrolment) (link, code string, err error) {
	f.mu.Lock()
	e.KeyType, e.Link = strings.Fields(e.AuthorizedKey)[0], fmt.Sprintf("a%d", len(f.waiting))
	var earlier []string
	for link, w := range f.waiting {
		if w.Fingerprint == e.Fingerprint {
			earlier = append(earlier, link)
		}
	}
	f.waiting[e.Link] = &fakeEnrolment{Enrolment: e}
	f.mu.Unlock()
	for _, link := range earlier {
		f.endEnrolment(link, relay.EnrolmentReplaced)
	}
	return e.Link, fakeCode, nil
}

func (f *fakeStore) EndEnrolment(_ context.Context, link, how string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w := f.waiting[link]; w.ended == "" {
		w.ended = how
	}
	return f.waiting[link].ended, nil
}

// endEnrolment ends an enrolment and publishes the change, as if another node had ended it.
func (f *fakeStore) endEnrolment(link, how string) {
	_, _ = f.EndEnrolment(context.Background(), link, how)
	f.mu.Lock()
	defer f.mu.Unlock()
	go f.changed([]relay.Change{{Kind: relay.ChangeEnrolment, Credential: f.waiting[link].Fingerprint}})
}

func (f *fakeStore) Enrolment(_ context.Context, link string) (relay.Enrolment, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if w := f.waiting[link]; w != nil && w.ended == "" {
		return w.Enrolment, nil
	}
	return relay.Enrolment{}, relay.ErrNotFound
}

func (f *fakeStore) ApproveEnrolment(ctx context.Context, who relay.Actor, link, _ string) error {
	e, err := f.Enrolment(ctx, link)
	if err == nil {
		_, err = f.AddKey(ctx, who, "", "", e.AuthorizedKey)
	}
	if err == nil {
		f.endEnrolment(link, relay.EnrolmentApproved)
	}
	return err
}
