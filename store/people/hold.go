package people

import (
	"relay"
	"relay/store/db"
)

// An operation that reads a row to decide what to write locks the row first and then reads it again.
// Otherwise two operations at once decide by the same old state, and one of them undoes the other.
// On Postgres each function below takes the lock and then reads. SQLite has one writer and needs no
// locks. Rows are locked in one order everywhere: nodes, accounts, tunnels, aliases, events, attempts, queue.

// LockAlias locks an alias, so that its settings, owner and members do not change.
func LockAlias(c *db.Tx, id int64) error {
	return c.Lock(`SELECT 1 FROM aliases WHERE id = ?`, id)
}

// LockAccount locks an account that was not removed, so that only one operation at a time counts its
// aliases or keys.
func LockAccount(c *db.Tx, id int64) error {
	return c.Lock(`SELECT 1 FROM accounts WHERE id = ? AND removed_at = 0`, id)
}

// AliasForUpdate locks the alias that the function find returns, and returns the result of a second call of
// find.
func AliasForUpdate(c *db.Tx, find func() (*relay.Alias, error)) (*relay.Alias, error) {
	before, err := find()
	if err != nil {
		return nil, err
	}
	if err := LockAlias(c, before.ID); err != nil {
		return nil, err
	}
	a, err := find()
	if err == nil && a.ID != before.ID { // a different alias has this name now
		return nil, relay.ErrNotFound
	}
	return a, err
}

// ownAliasForUpdate is ownAlias for an alias that the transaction changes.
func ownAliasForUpdate(c *db.Tx, who relay.Actor, name string) (*relay.Alias, error) {
	return AliasForUpdate(c, func() (*relay.Alias, error) { return ownAlias(c.Query, who, name) })
}

// accountForUpdate is findAccount for a transaction that counts the aliases or keys of the account: it also
// locks the account.
func accountForUpdate(c *db.Tx, name string) (relay.Account, error) {
	a, err := findAccount(c.Query, name)
	if err != nil {
		return a, err
	}
	if err := LockAccount(c, a.ID); err != nil {
		return a, err
	}
	return findAccount(c.Query, name)
}
