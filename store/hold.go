package store

import (
	"relay"
)

// Who reads a row to decide what to write locks the row first, and reads it again once it has the
// lock: otherwise two operations at once decide by the same old state, and one of them undoes
// the other. SQLite has one writer and needs none of this; on Postgres each function below takes the lock and
// then reads. Rows are locked in one order everywhere: nodes, accounts, tunnels, aliases, events,
// attempts, queue.

// lock locks the row that a query selects, until the transaction ends, against others that lock
// or change it. Statements that only refer to the row do not wait. No row is sql.ErrNoRows.
func (c *writeTx) lock(query string, args ...any) error {
	if !c.d.isPostgres {
		return nil
	}
	var one int
	return c.get(&one, query+` FOR NO KEY UPDATE`, args...)
}

// lockAlias locks an alias: its settings and owner, and who else may use it, stay as they are.
func (c *writeTx) lockAlias(id int64) error {
	return c.lock(`SELECT 1 FROM aliases WHERE id = ?`, id)
}

// lockAccount locks an account that was not removed: what it has is counted by one operation
// at a time.
func (c *writeTx) lockAccount(id int64) error {
	return c.lock(`SELECT 1 FROM accounts WHERE id = ? AND removed_at = 0`, id)
}

// lockText makes the operations of one kind on one text wait for each other, where the text has no row
// that could be locked.
func (c *writeTx) lockText(kind, text string) {
	if c.d.isPostgres {
		c.do(`SELECT pg_advisory_xact_lock(hashtext(current_schema() || CAST(? AS TEXT)), hashtext(CAST(? AS TEXT)))`, kind, text)
	}
}

// aliasForUpdate locks the alias that find returns, and returns what find makes of it then.
func (c *writeTx) aliasForUpdate(find func() (*relay.Alias, error)) (*relay.Alias, error) {
	before, err := find()
	if err != nil {
		return nil, err
	}
	if err := c.lockAlias(before.ID); err != nil {
		return nil, err
	}
	a, err := find()
	if err == nil && a.ID != before.ID { // another one of this name
		return nil, relay.ErrNotFound
	}
	return a, err
}

// ownAliasForUpdate is ownAlias of an alias that the transaction changes.
func (c *writeTx) ownAliasForUpdate(who relay.Actor, name string) (*relay.Alias, error) {
	return c.aliasForUpdate(func() (*relay.Alias, error) { return c.ownAlias(who, name) })
}

// ownEventForUpdate is ownEvent of an event that the transaction changes. It locks the alias too,
// so that the actor owns it until the transaction ends.
func (c *writeTx) ownEventForUpdate(who relay.Actor, id relay.ID) (relay.Event, error) {
	e, err := c.ownEvent(who, id)
	if err != nil {
		return e, err
	}
	if err := c.lockAlias(e.AliasID); err != nil {
		return e, err
	}
	if err := c.lockEvents([]relay.ID{id}); err != nil { // replays, retention and others wait
		return e, err
	}
	return c.ownEvent(who, id)
}

// accountForUpdate is account of an account of which the transaction counts what it has.
func (c *writeTx) accountForUpdate(name string) (relay.Account, error) {
	a, err := c.account(name)
	if err != nil {
		return a, err
	}
	if err := c.lockAccount(a.ID); err != nil {
		return a, err
	}
	return c.account(name)
}
