package store

import (
	"context"
	"time"

	"relay"
)

type shareRow struct {
	ID        string   `db:"id"`
	Event     relay.ID `db:"event_id"`
	AliasID   int64    `db:"alias_id"`
	Alias     string   `db:"alias"`
	Owner     int64    `db:"owner_id"`
	View      int      `db:"view"`
	OneUse    int      `db:"one_use"`
	CreatedAt int64    `db:"created_at"`
	ExpiresAt int64    `db:"expires_at"`
	Uses      int      `db:"uses"`
}

const shareQuery = `SELECT sh.id, sh.event_id, sh.alias_id, al.name AS alias, al.owner_id, sh.view, sh.one_use, sh.created_at, sh.expires_at, sh.uses
	FROM shares sh JOIN aliases al ON al.id = sh.alias_id WHERE `

func (r *shareRow) share() relay.Share {
	return relay.Share{
		ID: r.ID, Event: r.Event, View: r.View != 0, OneUse: r.OneUse != 0, CreatedAt: fromMicros(r.CreatedAt), ExpiresAt: fromMicros(r.ExpiresAt), Uses: r.Uses,
	}
}

// CreateShare creates a secret whose holder may replay one event, and see it when
// want.View is set. Of want only View, OneUse and ExpiresAt count (zero = never). Only
// the owner of the alias can create shares. The secret is returned once.
// event-not-replayable when the event could neither be replayed nor be seen.
func (s *Store) CreateShare(ctx context.Context, who relay.Actor, id relay.ID, want relay.Share) (sh relay.Share, secret string, err error) {
	if err := allow(who, relay.ScopeEventsShare); err != nil {
		return sh, "", err
	}
	if !want.ExpiresAt.IsZero() && !want.ExpiresAt.After(s.now()) {
		return sh, "", invalid("expiresIn", nil, "must be in the future")
	}
	if secret, err = newSecret(""); err != nil {
		return sh, "", err
	}
	err = s.update(ctx, "create share", func(c *writeTx) error {
		if err := c.lockEvents([]relay.ID{id}); err != nil { // retention waits, or has removed the event
			return err
		}
		e, err := c.ownEvent(who, id)
		if err != nil {
			return err
		}
		if e.Blocker != "" && !want.View {
			return notReplayable(&e)
		}
		account := who.Account
		if who.Kind == relay.ActorSystem {
			if err := c.get(&account, `SELECT owner_id FROM aliases WHERE id = ?`, e.AliasID); err != nil {
				return err
			}
		}
		name := newName("shr_")
		if _, err := c.exec(`INSERT INTO shares (id, hash, event_id, alias_id, account_id, view, one_use, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			name, hash(secret), id, e.AliasID, account, boolToInt(want.View), boolToInt(want.OneUse), micros(s.now()), micros(want.ExpiresAt)); err != nil {
			return err
		}
		var row shareRow
		if err := c.get(&row, shareQuery+`sh.id = ?`, name); err != nil {
			return err
		}
		sh = row.share()
		return c.audit(who, account, "share.add", name, id.String())
	})
	if err != nil {
		return relay.Share{}, "", err
	}
	return sh, secret, nil
}

// Shares lists the shares of an event that the actor may see.
func (s *Store) Shares(ctx context.Context, who relay.Actor, id relay.ID) (list []relay.Share, err error) {
	err = s.view(ctx, "read shares", func(q session) error {
		if _, err := q.event(who, id); err != nil {
			return err
		}
		list, err = rowsAs(q, (*shareRow).share, shareQuery+`sh.event_id = ? ORDER BY sh.created_at, sh.id`, id)
		return err
	})
	return list, err
}

// RemoveShare revokes one share of an event.
func (s *Store) RemoveShare(ctx context.Context, who relay.Actor, id relay.ID, share string) error {
	if err := allow(who, relay.ScopeEventsShare); err != nil {
		return err
	}
	return s.update(ctx, "remove share", func(c *writeTx) error {
		e, err := c.ownEvent(who, id)
		if err != nil {
			return err
		}
		n, err := c.exec(`DELETE FROM shares WHERE id = ? AND event_id = ?`, storableText(share), id)
		if err != nil {
			return err
		}
		if n == 0 {
			return relay.ErrNotFound
		}
		var owner int64
		if err := c.get(&owner, `SELECT owner_id FROM aliases WHERE id = ?`, e.AliasID); err != nil {
			return err
		}
		c.announce(relay.Change{Kind: relay.ChangeAccount, Account: owner, Credential: share})
		return c.audit(who, owner, "share.remove", share, id.String())
	})
}

// usedShareGrace is how long a share for one use keeps its rights after the use: the
// replay that used it needs them until it ends, and waits for at most a minute.
const usedShareGrace = 2 * time.Minute

// ShareActor gives the actor and the share of a share token. ErrNotFound for unknown,
// expired, revoked and used-up ones alike. use counts a replay, and uses a share for
// one use up: its token is unknown from then on.
func (s *Store) ShareActor(ctx context.Context, secret string, use bool) (relay.Actor, relay.Share, error) {
	const valid = `(sh.expires_at = 0 OR sh.expires_at > ?) AND (sh.one_use = 0 OR sh.uses = 0)`
	var row shareRow
	now := s.now()
	err := s.view(ctx, "read share", func(q session) error {
		return q.get(&row, shareQuery+`sh.hash = ? AND `+valid, hash(secret), micros(now))
	})
	if err == nil && use {
		err = s.update(ctx, "count use of a share", func(c *writeTx) error {
			end := micros(now.Add(usedShareGrace))
			n, err := c.exec(`UPDATE shares AS sh SET uses = uses + 1, expires_at = CASE WHEN one_use = 1 AND (expires_at = 0 OR expires_at > ?) THEN ? ELSE expires_at END
				WHERE id = ? AND `+valid, end, end, row.ID, micros(now))
			if err != nil {
				return err
			}
			if n == 0 {
				return relay.ErrNotFound
			}
			if err := c.get(&row, shareQuery+`sh.id = ?`, row.ID); err != nil {
				return err
			}
			who := relay.Actor{Kind: relay.ActorShare, Name: row.ID, Account: row.Owner}
			return c.audit(who, row.Owner, "share.use", row.ID, row.Event.String())
		})
	}
	if err != nil {
		return relay.Actor{}, relay.Share{}, err
	}
	return relay.Actor{
		Account: row.Owner, Kind: relay.ActorShare, Name: row.ID, Scopes: relay.ScopeEventsRead | relay.ScopeEventsReplay,
		Alias: row.AliasID, AliasName: row.Alias, Credential: row.ID, ExpiresAt: fromMicros(row.ExpiresAt), Shared: row.Event,
	}, row.share(), nil
}
