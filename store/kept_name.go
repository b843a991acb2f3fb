package store

import (
	"context"
	"time"

	"relay"
)

// KeptName says for which account the name of a removed alias is kept, and until when;
// for the operator and admins. user is empty when that account was removed meanwhile.
// ErrNotFound: the name is not kept.
func (s *Store) KeptName(ctx context.Context, who relay.Actor, name string) (user string, until time.Time, err error) {
	if err := allowAdmin(who); err != nil {
		return "", time.Time{}, err
	}
	var kept struct {
		User    string `db:"name"`
		Removed int64  `db:"removed_at"`
		Until   int64  `db:"until"`
	}
	err = s.view(ctx, "look for a kept name", func(q session) error {
		return q.get(&kept, `SELECT acc.name, acc.removed_at, k.until FROM kept_names k JOIN accounts acc ON acc.id = k.account_id
			WHERE k.name = ? AND k.until > ?`, plain(name), micros(s.now()))
	})
	if err != nil {
		return "", time.Time{}, err
	}
	if kept.Removed > 0 {
		kept.User = ""
	}
	return kept.User, moment(kept.Until), nil
}
