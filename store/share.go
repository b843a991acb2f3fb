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
	CreatedAt int64    `db:"created_at"`
	ExpiresAt int64    `db:"expires_at"`
	Uses      int      `db:"uses"`
}

const shareQuery = `SELECT sh.id, sh.event_id, sh.alias_id, al.name AS alias, al.owner_id, sh.view, sh.created_at, sh.expires_at, sh.uses
	FROM shares sh JOIN aliases al ON al.id = sh.alias_id WHERE `

func (r *shareRow) share() relay.Share {
	return relay.Share{
		ID: r.ID, Event: r.Event, View: r.View != 0, CreatedAt: moment(r.CreatedAt), ExpiresAt: moment(r.ExpiresAt), Uses: r.Uses,
	}
}

// CreateShare creates a secret that allows to replay one event and, with view, to see it, for
// the owner of the alias. A zero expires means never. The secret is returned only here.
// event-not-replayable when it could neither be replayed nor be seen.
func (s *Store) CreateShare(ctx context.Context, who relay.Actor, id relay.ID, view bool, expires time.Time) (sh relay.Share, secret string, err error) {
	if err := allow(who, relay.ScopeEventsShare); err != nil {
		return sh, "", err
	}
	if !expires.IsZero() && !expires.After(s.now()) {
		return sh, "", invalid("expiresIn", nil, "must be in the future")
	}
	if secret, err = newSecret(""); err != nil {
		return sh, "", err
	}
	err = s.update(ctx, "create share", func(c *change) error {
		e, err := c.ownEvent(who, id)
		if err != nil {
			return err
		}
		if e.Blocker != "" && !view {
			return notReplayable(&e)
		}
		var there []int // on Postgres retention waits for us then, or we find nothing
		if err := c.all(&there, `SELECT 1 FROM events WHERE id = ?`+c.d.forUpdate, id); err != nil || len(there) == 0 {
			return firstError(err, relay.ErrNotFound)
		}
		account := who.Account
		if who.Kind == relay.ActorSystem {
			if err := c.get(&account, `SELECT owner_id FROM aliases WHERE id = ?`, e.AliasID); err != nil {
				return err
			}
		}
		name := newName("shr_")
		if _, err := c.exec(`INSERT INTO shares (id, hash, event_id, alias_id, account_id, view, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
			name, hash(secret), id, e.AliasID, account, flag(view), micros(s.now()), micros(expires)); err != nil {
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
		var rows []shareRow
		if err := q.all(&rows, shareQuery+`sh.event_id = ? ORDER BY sh.created_at, sh.id`, id); err != nil {
			return err
		}
		list = make([]relay.Share, len(rows))
		for i := range rows {
			list[i] = rows[i].share()
		}
		return nil
	})
	return list, err
}

// RemoveShare revokes one share of an event.
func (s *Store) RemoveShare(ctx context.Context, who relay.Actor, id relay.ID, share string) error {
	if err := allow(who, relay.ScopeEventsShare); err != nil {
		return err
	}
	return s.update(ctx, "remove share", func(c *change) error {
		e, err := c.ownEvent(who, id)
		if err != nil {
			return err
		}
		n, err := c.exec(`DELETE FROM shares WHERE id = ? AND event_id = ?`, plain(share), id)
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

// ShareActor returns the actor of a share's secret, which acts for the owner on one
// event; ErrNotFound for unknown, expired and revoked alike. use counts one use.
func (s *Store) ShareActor(ctx context.Context, secret string, use bool) (relay.Actor, relay.Share, error) {
	const stands = `sh.hash = ? AND (sh.expires_at = 0 OR sh.expires_at > ?)`
	var row shareRow
	read := func(q session) error { return q.get(&row, shareQuery+stands, hash(secret), micros(s.now())) }
	err := s.view(ctx, "read share", read)
	if err == nil && use {
		err = s.update(ctx, "count use of a share", func(c *change) error {
			if _, err := c.exec(`UPDATE shares SET uses = uses + 1 WHERE id = ?`, row.ID); err != nil {
				return err
			}
			if err := read(c.session); err != nil {
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
		Alias: row.AliasID, AliasName: row.Alias, Credential: row.ID, ExpiresAt: moment(row.ExpiresAt), Shared: row.Event,
	}, row.share(), nil
}
