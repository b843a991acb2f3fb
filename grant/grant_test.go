package grant_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"relay"
	"relay/grant"
)

// recorder is a fake of both the accounts and the limits. It records the names of the calls in order, and the
// call named failAt returns an error.
type recorder struct {
	accounts
	asked  []string
	failAt string
}

type accounts = relay.Accounts

var errRefused = errors.New("refused")

func (r *recorder) note(call string) error {
	r.asked = append(r.asked, call)
	if call == r.failAt {
		return errRefused
	}
	return nil
}

func (r *recorder) Create(relay.Actor) error { return r.note("limit") }

func (r *recorder) ShareReplay(string) error                                 { return r.note("limit") }
func (r *recorder) LookUpSecret(_, _ string, look func() error) error        { return look() }
func (r *recorder) ReturnShareUse(context.Context, relay.Share, error) error { return r.note("return") }

func (r *recorder) ShareActor(context.Context, string, bool) (relay.Actor, relay.Share, error) {
	return relay.Actor{}, relay.Share{}, r.note("use")
}

func (r *recorder) CreateShare(context.Context, relay.Actor, relay.ID, relay.Share) (relay.Share, string, error) {
	return relay.Share{}, "", r.note("create")
}

func (r *recorder) CreateToken(_ context.Context, _ relay.Actor, t relay.Token) (relay.Token, string, error) {
	return t, "", r.note("create")
}

func (r *recorder) AddKey(context.Context, relay.Actor, string, string, string) (relay.Key, error) {
	return relay.Key{}, r.note("create")
}

// The lines of two keys, and the fingerprint of the first one, which is registered.
const (
	key1         = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINsMJwxUMIoXsA/wrNU4zyRKcewPhJ0rdZAfVdF2XBv3"
	fingerprint1 = "SHA256:yVZR8ujw0iNbC0dYCoeuQ1FwbTLqaP6vC8TW3a/Tvk8"
	key2         = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
)

func (r *recorder) Accounts(context.Context, relay.Actor) ([]relay.Account, error) {
	return []relay.Account{{Name: "bob"}}, nil
}

func (r *recorder) Alias(_ context.Context, _ relay.Actor, name string) (*relay.Alias, error) {
	if name != "shop" {
		return nil, relay.ErrNotFound
	}
	return &relay.Alias{Name: name}, nil
}

func (r *recorder) Keys(context.Context, relay.Actor, string) ([]relay.Key, error) {
	return []relay.Key{{Fingerprint: fingerprint1}}, nil
}

func (r *recorder) CreateInvite(context.Context, relay.Actor, string, time.Duration) (string, error) {
	return "", r.note("create")
}

// TestCreationsAreLimited: each creation is counted against the limit before anything is created. Beyond the
// limit, nothing is created.
func TestCreationsAreLimited(t *testing.T) {
	t.Parallel()
	for name, create := range map[string]func(g grant.Grants) error{
		"share": func(g grant.Grants) error {
			_, _, err := g.CreateShare(t.Context(), relay.Actor{}, grant.ShareRequest{View: true})
			return err
		},
		"token": func(g grant.Grants) error {
			_, _, err := g.CreateToken(t.Context(), relay.Actor{}, grant.TokenRequest{Alias: "shop"})
			return err
		},
		"key": func(g grant.Grants) error {
			_, err := g.AddKey(t.Context(), relay.Actor{}, "", key2)
			return err
		},
		"invite": func(g grant.Grants) error {
			_, _, err := g.CreateInvite(t.Context(), relay.Actor{}, "bob")
			return err
		},
	} {
		for _, failAt := range []string{"", "limit"} {
			r := &recorder{failAt: failAt}
			err := create(grant.Grants{Accounts: r, Limits: r, Events: blockedEvents{}})
			want := []string{"limit", "create"}
			if failAt != "" {
				want = want[:1]
			}
			if !slices.Equal(r.asked, want) || (err != nil) != (failAt != "") {
				t.Errorf("%s, failing at %q: %v, %v", name, failAt, r.asked, err)
			}
		}
	}
}

// TestReplaySharedKeepsItsOrder: a replay with a share is first counted against the limit, then as a use of the
// share, and only then begins. If it could not begin, the use is taken back. If the event cannot be replayed,
// nothing is counted.
func TestReplaySharedKeepsItsOrder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		failAt, blocker string
		want            []string
	}{
		{"", "", []string{"limit", "use", "replay"}},
		{"limit", "", []string{"limit"}},
		{"use", "", []string{"limit", "use"}},
		{"replay", "", []string{"limit", "use", "replay", "return"}},
		{"", "upgraded", nil},
	} {
		r := &recorder{failAt: c.failAt}
		g := grant.Grants{Accounts: r, Limits: r}
		_, _, err := g.ReplayShared(t.Context(), grant.Held{Event: &relay.Event{Blocker: c.blocker}}, func(context.Context, relay.Actor, relay.ID) (*relay.Event, int, error) {
			return nil, 1, r.note("replay")
		})
		if !slices.Equal(r.asked, c.want) || (err != nil) != (c.failAt != "" || c.blocker != "") {
			t.Errorf("%+v: %v, %v", c, r.asked, err)
		}
	}
}

type events = relay.Events

// blockedEvents is a store of events that cannot be replayed.
type blockedEvents struct{ events }

func (blockedEvents) Request(context.Context, relay.Actor, relay.ID, int) (*relay.Event, error) {
	return &relay.Event{Blocker: "upgraded"}, nil
}

// TestRefusalsAreNotCounted: a request that the checks refuse creates nothing and does not count
// against the limit.
func TestRefusalsAreNotCounted(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	g := grant.Grants{Accounts: r, Limits: r}
	for _, want := range []grant.TokenRequest{{Name: "a\nb"}, {Scopes: []string{"none"}}, {Renew: true}, {Alias: "shpo"}} {
		if _, _, err := g.CreateToken(t.Context(), relay.Actor{}, want); err == nil || len(r.asked) > 0 {
			t.Errorf("%+v: %v, %v", want, err, r.asked)
		}
	}
	if _, _, err := g.CreateInvite(t.Context(), relay.Actor{}, "nobody"); !errors.Is(err, relay.ErrNotFound) || len(r.asked) > 0 {
		t.Errorf("an invitation of nobody: %v, %v", err, r.asked)
	}
	for _, line := range []string{"no key", key1} { // the store refuses both
		if _, err := g.AddKey(t.Context(), relay.Actor{}, "", line); err != nil || !slices.Equal(r.asked, []string{"create"}) {
			t.Errorf("%s: %v, %v", line, err, r.asked)
		}
		r.asked = nil
	}
	g.Events = blockedEvents{}
	if _, _, err := g.CreateShare(t.Context(), relay.Actor{}, grant.ShareRequest{}); err == nil || len(r.asked) > 0 {
		t.Errorf("a share that can do nothing: %v, %v", err, r.asked)
	}
	if _, _, err := g.CreateShare(t.Context(), relay.Actor{}, grant.ShareRequest{View: true}); err != nil {
		t.Errorf("a share that can be viewed: %v", err)
	}
}
