package events

import (
	"context"

	"relay"
	"relay/store/db"
)

// AllShares lists the shares of everybody, for the operator: those of one alias and of one account
// where these are not "". The newest come first.
func (s *Store) AllShares(ctx context.Context, who relay.Actor, alias, owner string) (list []relay.Share, err error) {
	if who.Kind != relay.ActorSystem {
		return nil, relay.Errorf(relay.CodeForbidden, "only the operator sees the shares of everybody")
	}
	fields := func(x *relay.Share) []any {
		return []any{&x.ID, &x.Event, &x.View, &x.OneUse, (*db.Time)(&x.CreatedAt), (*db.Time)(&x.ExpiresAt), &x.Uses, &x.Alias, &x.Owner}
	}
	return db.ReadRows(ctx, s.db, "read shares", fields, `SELECT sh.id, sh.event_id, sh.view, sh.one_use, sh.created_at, sh.expires_at, sh.uses, al.name, ac.name
		FROM shares sh JOIN aliases al ON al.id = sh.alias_id JOIN accounts ac ON ac.id = al.owner_id
		WHERE (sh.expires_at = 0 OR sh.expires_at > ?) AND (? = '' OR al.name = ?) AND (? = '' OR ac.name = ?)
		ORDER BY sh.created_at DESC, sh.id DESC`, db.Micros(s.db.Now()), alias, alias, owner, owner)
}
