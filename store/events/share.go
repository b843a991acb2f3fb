package events

import (
	"context"
	"time"

	"relay"
	"relay/store/db"
	"relay/store/people"
)

// shareRow is a share with the alias of its event and the owner of that alias.
type shareRow struct {
	relay.Share
	AliasID, OwnerID int64
}

const shareQuery = `SELECT sh.id, sh.event_id, sh.view, sh.one_use, sh.created_at, sh.expires_at, sh.uses, al.name, ac.name, sh.alias_id, al.owner_id
	FROM shares sh JOIN aliases al ON al.id = sh.alias_id JOIN accounts ac ON ac.id = al.owner_id WHERE `

func shareFields(r *shareRow) []any {
	return []any{
		&r.ID, &r.Event, &r.View, &r.OneUse, (*db.Time)(&r.CreatedAt), (*db.Time)(&r.ExpiresAt), &r.Uses, &r.Alias, &r.Owner,
		&r.AliasID, &r.OwnerID,
	}
}

// CreateShare creates a secret whose holder may replay one event, and see it if want.View is set. Of want it
// uses only View, OneUse and ExpiresAt (zero = never). A share lasts at most for the bound given to New; the
// result contains its end. Only the owner of the alias can create shares. The secret is returned once. The
// error is event-not-replayable if the event could neither be replayed nor seen.
func (s *Store) CreateShare(ctx context.Context, who relay.Actor, id relay.ID, want relay.Share) (relay.Share, string, error) {
	may := people.Allow(who, relay.ScopeEventsShare)
	if may == nil && !want.ExpiresAt.IsZero() && !want.ExpiresAt.After(s.db.Now()) {
		may = people.Invalid("expiresIn", nil, "must be in the future")
	}
	if most := s.maxShareAge; most > 0 {
		if end := s.db.Now().Add(most); want.ExpiresAt.IsZero() || want.ExpiresAt.After(end) {
			want.ExpiresAt = end
		}
	}
	var made shareRow
	secret := people.NewSecret("")
	err := s.db.UpdateIf(ctx, may, "create share", func(c *db.Tx) error {
		e, err := ownEvent(c.Query, who, id)
		if err != nil {
			return err
		}
		account, err := ownerOf(c.Query, e.AliasID)
		if err != nil {
			return err
		}
		if err := people.HoldAccount(c, account); err != nil { // before the event is locked, because all transactions lock accounts before events
			return err
		}
		if e, err = OwnEventForUpdate(c, who, id); err != nil {
			return err
		}
		before := account
		if account, err = ownerOf(c.Query, e.AliasID); err == nil && account != before { // the alias has just been transferred, so the share belongs to its new owner
			err = people.HoldAccount(c, account)
		}
		if err != nil {
			return err
		}
		if e.Blocker != "" && !want.View {
			return NotReplayable(&e)
		}
		name := people.NewName("shr_")
		c.Do(`INSERT INTO shares (id, hash, event_id, alias_id, account_id, view, one_use, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			name, people.Hash(secret), id, e.AliasID, account, db.BoolToInt(want.View), db.BoolToInt(want.OneUse), db.Micros(s.db.Now()), db.Micros(want.ExpiresAt))
		if made, err = db.RowOf(c.Query, shareFields, shareQuery+`sh.id = ?`, name); err != nil {
			return err
		}
		return people.Audit(c, who, account, "share.add", name, id.String())
	})
	return made.Share, secret, err
}

// ownerOf returns the account that owns an alias.
func ownerOf(q db.Query, alias int64) (account int64, err error) {
	err = q.Get(&account, `SELECT owner_id FROM aliases WHERE id = ?`, alias)
	return account, err
}

// Shares lists the shares of an event, for the owner of its alias.
func (s *Store) Shares(ctx context.Context, who relay.Actor, id relay.ID) (list []relay.Share, err error) {
	if err := people.Allow(who, relay.ScopeEventsShare); err != nil {
		return nil, err
	}
	err = s.db.View(ctx, "read shares", func(q db.Query) error {
		if _, err := ownEvent(q, who, id); err != nil {
			return err
		}
		rows, err := db.RowsOf(q, shareFields, shareQuery+`sh.event_id = ? ORDER BY sh.created_at, sh.id`, id)
		list = sharesOf(rows)
		return err
	})
	return list, err
}

// AllShares lists the shares of all accounts for the operator, limited to one alias and one account if
// these are not "". The newest come first.
func (s *Store) AllShares(ctx context.Context, who relay.Actor, alias, owner string) ([]relay.Share, error) {
	if who.Kind != relay.ActorSystem {
		return nil, relay.Errorf(relay.CodeForbidden, "only the operator can list all shares; run relayd share list")
	}
	rows, err := db.ReadRows(ctx, s.db, "read shares", shareFields, shareQuery+`(sh.expires_at = 0 OR sh.expires_at > ?)
		AND (? = '' OR al.name = ?) AND (? = '' OR ac.name = ?) ORDER BY sh.created_at DESC, sh.id DESC`, db.Micros(s.db.Now()), alias, alias, owner, owner)
	return sharesOf(rows), err
}

func sharesOf(rows []shareRow) []relay.Share {
	list := make([]relay.Share, len(rows))
	for i, r := range rows {
		list[i] = r.Share
	}
	return list
}

// RemoveShare revokes one share of an event.
func (s *Store) RemoveShare(ctx context.Context, who relay.Actor, id relay.ID, share string) error {
	return s.db.UpdateIf(ctx, people.Allow(who, relay.ScopeEventsShare), "remove share", func(c *db.Tx) error {
		if _, err := OwnEventForUpdate(c, who, id); err != nil {
			return err
		}
		var owner int64
		if err := c.Get(&owner, `DELETE FROM shares WHERE id = ? AND event_id = ?
			RETURNING (SELECT owner_id FROM aliases WHERE aliases.id = shares.alias_id)`, db.StorableText(share), id); err != nil {
			return err
		}
		c.Announce(relay.Change{Kind: relay.ChangeAccount, Account: owner, Credential: share})
		return people.Audit(c, who, owner, "share.remove", share, id.String())
	})
}

// usedShareGrace is the time for which a one-use share keeps its rights after its use. The request that
// begins the replay needs them until it has read the result, for which it waits at most a minute.
const usedShareGrace = 2 * time.Minute

// ShareActor returns the actor and the share for a share token. If the parameter use is true, it counts a replay
// and uses up a one-use share, whose token is unknown from then on. The error is ErrNotFound for unknown,
// expired, revoked and used-up tokens alike.
func (s *Store) ShareActor(ctx context.Context, secret string, use bool) (relay.Actor, relay.Share, error) {
	const valid = `(sh.expires_at = 0 OR sh.expires_at > ?) AND (sh.one_use = 0 OR sh.uses = 0)`
	now := s.db.Now()
	row, err := db.Read(ctx, s.db, "read share", func(q db.Query) (shareRow, error) {
		return db.RowOf(q, shareFields, shareQuery+`sh.hash = ? AND `+valid, people.Hash(secret), db.Micros(now))
	})
	if err == nil && use {
		err = s.db.Update(ctx, "count use of a share", func(c *db.Tx) error {
			end := db.Micros(now.Add(usedShareGrace))
			err := c.RequireRow(relay.ErrNotFound, `UPDATE shares AS sh SET uses = uses + 1, expires_at = CASE WHEN one_use = 1 AND (expires_at = 0 OR expires_at > ?) THEN ? ELSE expires_at END
				WHERE id = ? AND `+valid, end, end, row.ID, db.Micros(now))
			if err != nil {
				return err
			}
			if row, err = db.RowOf(c.Query, shareFields, shareQuery+`sh.id = ?`, row.ID); err != nil {
				return err
			}
			who := relay.Actor{Kind: relay.ActorShare, Name: row.ID, Account: row.OwnerID}
			return people.Audit(c, who, row.OwnerID, "share.use", row.ID, row.Event.String())
		})
	}
	if err != nil {
		return relay.Actor{}, relay.Share{}, err
	}
	return relay.Actor{
		Account: row.OwnerID, Kind: relay.ActorShare, Name: row.ID, Scopes: relay.ScopeEventsRead | relay.ScopeEventsReplay,
		Alias: row.AliasID, AliasName: row.Alias, Credential: row.ID, ExpiresAt: row.ExpiresAt, Shared: row.Event,
	}, row.Share, nil
}

// UsedShare returns the actor of a one-use share that was used a moment ago, so that a form that is sent
// again gets the first response again. The actor has no rights. The error is ErrNotFound for every other
// token.
func (s *Store) UsedShare(ctx context.Context, secret string) (relay.Actor, error) {
	row, err := db.Read(ctx, s.db, "read share", func(q db.Query) (shareRow, error) {
		return db.RowOf(q, shareFields, shareQuery+`sh.hash = ? AND sh.one_use = 1 AND sh.uses > 0 AND sh.expires_at > ?`, people.Hash(secret), db.Micros(s.db.Now()))
	})
	return relay.Actor{Kind: relay.ActorShare, Name: row.ID, Credential: row.ID}, err
}

// ReturnShareUse undoes the use of a share if the error why, which its replay returned, shows that no replay
// was begun. A one-use share is then valid again. share is the share before the use.
func (s *Store) ReturnShareUse(ctx context.Context, share relay.Share, why error) error {
	switch relay.AsError(why).Code {
	case relay.CodeQueueFull, relay.CodeStopping: // after other errors, the replay may have been stored
	default:
		return nil
	}
	return s.db.Update(ctx, "return use of a share", func(c *db.Tx) error {
		_, err := c.Exec(`UPDATE shares SET uses = uses - 1, expires_at = ? WHERE id = ? AND uses > 0`, db.Micros(share.ExpiresAt), share.ID)
		return err
	})
}
