package storetest

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"relay"
	"relay/store"
)

// testLives checks the lifetimes of secrets and of other limited grants, with a clock that the test sets.
// They are valid a minute before their end, and invalid a second after it.
func testLives(t *testing.T, fresh func(testing.TB) store.Options) {
	var offset atomic.Int64
	start := time.Now().Round(0)
	wall := func() time.Time { return start.Add(time.Duration(offset.Load())) }
	b := setup(t, fresh, func(o *store.Options) { o.Now = wall })
	ctx, day := t.Context(), 24*time.Hour
	event := b.capture(b.hooks, "/", "x", 200)

	login, err := b.CreateLoginLink(ctx, b.alice, "", 0)
	b.must(err)
	invite, err := b.CreateInvite(ctx, b.root, "bob", 0)
	b.must(err)
	entry, err := b.CreateLoginLink(ctx, b.alice, "", 0)
	b.must(err)
	session, _, err := b.UseLoginLink(ctx, entry, "", "")
	b.must(err)
	_, token, err := b.CreateToken(ctx, b.alice, relay.Token{ExpiresAt: start.Add(10 * day)})
	b.must(err)
	_, forever, err := b.CreateToken(ctx, b.alice, relay.Token{})
	b.must(err)
	_, share, err := b.CreateShare(ctx, b.alice, event, relay.Share{View: true, ExpiresAt: start.Add(20 * day)})
	b.must(err)
	asking := b.alice
	asking.Credential = "tok_lives"
	once := func() (int, error) {
		status, _, err := b.BeginIdempotent(ctx, asking, "key", "POST /x")
		return status, err
	}
	if status, err := once(); status != 0 || err != nil {
		t.Fatal(status, err)
	}
	b.must(b.EndIdempotent(ctx, asking, "key", 201, []byte("{}")))
	errAgain := errors.New("the call is made again")

	for _, c := range []lifeCase{
		{"a login link", 15 * time.Minute, func() error { _, err := b.LoginLink(ctx, login); return err }, relay.ErrNotFound},
		{"an answer by its idempotency key", day, func() error {
			status, err := once()
			if err == nil && status != 201 {
				err = errAgain
			}
			return err
		}, errAgain},
		{"an invite", 3 * day, func() error { _, err := b.Invite(ctx, invite); return err }, relay.ErrNotFound},
		{"a token", 10 * day, func() error { _, err := b.TokenOwner(ctx, token); return err }, relay.ErrNotFound},
		{"a share", 20 * day, func() error { _, _, err := b.ShareActor(ctx, share, false); return err }, relay.ErrNotFound},
		{"a session", 30 * day, func() error { _, err := b.SessionOwner(ctx, session); return err }, relay.ErrNotFound},
	} {
		c.check(t, &offset)
	}
	offset.Store(int64(1000 * day))
	_, err = b.TokenOwner(ctx, forever)
	b.must(err)
	_, _, err = b.UseLoginLink(ctx, login, "", "")
	b.want(relay.CodeNotFound, err)
	_, _, err = b.UseInvite(ctx, invite, b.ed25519(), "", "")
	b.want(relay.CodeNotFound, err)
}

// lifeCase is an operation that needs a secret or another grant that expires.
type lifeCase struct {
	what string
	life time.Duration
	use  func() error
	gone error // the error of the function use after the grant has expired
}

// check calls the operation shortly before and shortly after the grant expires. offset is the time by which the
// clock is ahead of the start of the test.
func (c lifeCase) check(t *testing.T, offset *atomic.Int64) {
	t.Helper()
	offset.Store(int64(c.life - time.Minute)) // a minute before the end, because the test itself takes less than a minute
	if err := c.use(); err != nil {
		t.Errorf("%s before its end: %v", c.what, err)
	}
	// The clock first jumps beyond the end and is then set back a little, because the store doubts a
	// clock that has just jumped, but not a clock that was corrected.
	offset.Store(int64(c.life + time.Hour))
	_ = c.use()
	offset.Store(int64(c.life + time.Second))
	if err := c.use(); !errors.Is(err, c.gone) {
		t.Errorf("%s after its end: %v", c.what, err)
	}
}
