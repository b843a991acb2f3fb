package storetest

import (
	"sync"
	"time"

	"relay"
)

// invites checks invitations: each works once, only with a valid and unused key, and not as
// another kind of link.
func (b *fixture) invites() {
	ctx := b.Context()
	line := b.ed25519()
	invite, err := b.CreateInvite(ctx, b.root, "bob", 0)
	b.must(err)
	for range 2 {
		if a, err := b.Invite(ctx, invite); err != nil || a.Name != "bob" {
			b.Errorf("invitation of %+v, %v", a, err)
		}
	}
	use := func(secret, key string) (string, error) {
		session, _, err := b.UseInvite(ctx, secret, key, "127.0.0.1", "browser\x00")
		return session, err
	}
	taken := b.ed25519()
	_, err = b.AddKey(ctx, b.alice, "", "", taken)
	b.must(err)
	for key, code := range map[string]string{
		"": relay.CodeValidationFailed, "ssh-ed25519 AAAA": relay.CodeValidationFailed, taken: relay.CodeConflict,
	} {
		_, err := use(invite, key)
		b.want(code, err)
	}
	login, err := b.CreateLoginLink(ctx, system, "bob", 0)
	b.must(err)
	for _, other := range []string{"", login, invite + "x"} {
		_, err = b.Invite(ctx, other)
		b.want(relay.CodeNotFound, err)
		_, err = use(other, line)
		b.want(relay.CodeNotFound, err)
	}
	b.usedOnce(invite, line)

	again, err := b.CreateInvite(ctx, b.root, "bob", 0)
	b.must(err)
	if _, err = use(again, line); err != nil {
		b.Errorf("a key that is his already: %v", err)
	}
	brief, err := b.CreateInvite(ctx, b.root, "bob", time.Microsecond)
	b.must(err)
	b.eventually("an invite expires", func() bool { _, err := b.Invite(ctx, brief); return err != nil })
	_, err = use(brief, b.ed25519())
	b.want(relay.CodeNotFound, err)
}

// usedOnce tries to use an invitation many times at once.
func (b *fixture) usedOnce(invite, line string) {
	ctx := b.Context()
	sessions := make(chan string, 8)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if s, acc, err := b.UseInvite(ctx, invite, line+" bob@laptop", "127.0.0.1", "browser"); err == nil && acc.Name == "bob" {
				sessions <- s
			} else {
				b.want(relay.CodeNotFound, err)
			}
		})
	}
	wg.Wait()
	if close(sessions); len(sessions) != 1 {
		b.Fatalf("an invitation was used %d times", len(sessions))
	}
	who, err := b.SessionOwner(ctx, <-sessions)
	if err != nil || who.AccountName != "bob" {
		b.Errorf("session of %+v, %v", who, err)
	}
	keys, err := b.Keys(ctx, who, "")
	if err != nil || len(keys) == 0 || keys[len(keys)-1].Name != "bob@laptop" {
		b.Errorf("keys %+v, %v", keys, err)
	}
}
