package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/jmoiron/sqlx"

	"relay"
)

// Tx is a transaction of one operation, with the changes to publish after its commit.
type Tx struct {
	Query
	Changes   []relay.Change     // published in this process after the commit
	Announced []relay.Change     // the part of Changes that other processes have to learn about
	Freed     map[int64]int64    // bytes that the transaction removes from the storage of each alias
	Audited   []relay.AuditEntry // entries that the transaction added to the audit log
	Err       error              // error of the first failed Do
}

// Do executes a statement whose only result is its success. After an error, all further calls do
// nothing, and the transaction is rolled back with that error.
func (c *Tx) Do(query string, args ...any) {
	if c.Err == nil {
		_, c.Err = c.Exec(query, args...)
	}
}

// Publish adds changes for this process.
func (c *Tx) Publish(changes ...relay.Change) { c.Changes = append(c.Changes, changes...) }

// Announce adds changes for all processes.
func (c *Tx) Announce(changes ...relay.Change) {
	c.Publish(changes...)
	c.Announced = append(c.Announced, changes...)
}

// Update runs one operation in a transaction and publishes its changes after the commit. The end of ctx does not
// cancel it, because the connection of a canceled statement cannot be used again. fn may run more than once, if
// the engine asks for a retry.
func (s *DB) Update(ctx context.Context, what string, fn func(*Tx) error) error {
	return s.UpdateBy(ctx, what, s.Begin, fn)
}

// UpdateIf is Update if the parameter may is nil. Otherwise the operation is not allowed: UpdateIf returns
// may and runs nothing.
func (s *DB) UpdateIf(ctx context.Context, may error, what string, fn func(*Tx) error) error {
	if may != nil {
		return may
	}
	return s.Update(ctx, what, fn)
}

// Execute is Update for one statement.
func (s *DB) Execute(ctx context.Context, what, query string, args ...any) error {
	return s.Update(ctx, what, func(c *Tx) error {
		c.Do(query, args...)
		return nil
	})
}

// beginner begins a transaction. The caller calls end after the end of the transaction.
type beginner func(context.Context) (tx *sqlx.Tx, end func(), err error)

// Begin begins a transaction with the usual settings.
func (s *DB) Begin(ctx context.Context) (*sqlx.Tx, func(), error) {
	tx, err := s.Write.BeginTxx(ctx, nil)
	return tx, func() {}, err
}

// UpdateBy is Update in a transaction from the function begin.
func (s *DB) UpdateBy(ctx context.Context, what string, begin beginner, fn func(*Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.Away(); err != nil {
		return s.Fault(what, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), OpTimeout)
	defer cancel()
	var published <-chan struct{}
	var err error
	for range 3 {
		if published, err = s.UpdateOnce(ctx, begin, fn); !Retriable(err) {
			break
		}
	}
	if err != nil {
		return s.operationFault(what, err)
	}
	select { // the change is committed, so a slow feed must not make the operation fail
	case <-published:
	case <-ctx.Done():
	}
	return nil
}

// UpdateOnce runs fn in one transaction, once. The returned channel is closed when the changes of the
// transaction are published.
func (s *DB) UpdateOnce(ctx context.Context, begin beginner, fn func(*Tx) error) (<-chan struct{}, error) {
	if !s.Dialect.SeveralNodes() {
		s.commitMu.Lock()
		defer s.commitMu.Unlock()
	}
	tx, end, err := begin(ctx)
	if err != nil {
		return nil, s.Dialect.wrapCommit(err)
	}
	defer end()
	defer func() { _ = Rollback(tx) }() // Rollback ends the transaction if fn panics, so that end finds the connection free
	c := &Tx{Query: s.Session(ctx, tx)}
	if err = s.prepareTx(c.Query, readTimeout); err == nil {
		if err = fn(c); c.Err != nil {
			err = c.Err
		}
	}
	committed := func() <-chan struct{} { return Published }
	if err == nil && s.Finish != nil {
		committed, err = s.Finish(c)
	}
	if err != nil {
		return nil, errors.Join(err, Rollback(tx))
	}
	if err := tx.Commit(); err != nil {
		return nil, s.Dialect.wrapCommit(s.unanswered(err))
	}
	Signal(s.checkpointer.wake)
	return committed(), nil
}

// Published is a closed channel. An update returns it if there is no publication to wait for.
var Published = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Rollback ends a transaction without its changes. It returns no error if the transaction has already ended.
func Rollback(tx *sqlx.Tx) error {
	if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) && !errors.Is(err, driver.ErrBadConn) {
		return err
	}
	return nil
}

// Lock locks the row that a query selects until the transaction ends. Transactions that lock or change the row
// wait; statements that only insert rows with a foreign key to it do not. The error is sql.ErrNoRows if there is
// no row.
func (c *Tx) Lock(query string, args ...any) error {
	return c.lockFor(` FOR NO KEY UPDATE`, query, args...)
}

// Hold keeps the row that a query selects from being changed or deleted until the transaction ends.
// The error is sql.ErrNoRows if there is no row.
func (c *Tx) Hold(query string, args ...any) error {
	return c.lockFor(c.Dialect.ForShare(), query, args...)
}

// Refer keeps the row that a query selects from being deleted until the transaction ends. The error is
// sql.ErrNoRows if there is no row.
func (c *Tx) Refer(query string, args ...any) error {
	return c.lockFor(` FOR KEY SHARE`, query, args...)
}

func (c *Tx) lockFor(how, query string, args ...any) error {
	if !c.Dialect.SeveralNodes() { // SQLite has only one writer
		return nil
	}
	var one int
	return c.Get(&one, query+how, args...)
}

// LockText makes the transactions that lock the same kind and text wait for each other. It is for operations
// for which there is no row to lock.
func (c *Tx) LockText(kind, text string) {
	if c.Dialect.SeveralNodes() {
		c.Do(`SELECT pg_advisory_xact_lock(hashtext(current_schema() || CAST(? AS TEXT)), hashtext(CAST(? AS TEXT)))`, kind, text)
	}
}

// LockKey makes the transactions that lock the same number wait for each other.
func (c *Tx) LockKey(key int) {
	if c.Dialect.SeveralNodes() {
		c.Do(`SELECT pg_advisory_xact_lock(?, hashtext(current_schema()))`, key)
	}
}

// fullSync makes commits of the writer wait for the disk and checkpoint a long log. relaxedSync turns
// off both for a removal.
const (
	relaxedSync = `PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0`
	fullSync    = `PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = %d`
)

// BeginRelaxedSync begins a transaction on SQLite whose commit does not wait for the disk, because the
// fsync can take longer than the deletes. After a power loss the rows can reappear; the next retention
// pass deletes them again. The next commit of the journal makes this commit durable too.
func (s *DB) BeginRelaxedSync(ctx context.Context) (*sqlx.Tx, func(), error) {
	conn, err := s.Write.Connx(ctx)
	if err != nil {
		return nil, nil, err
	}
	end := func() {
		if _, err := conn.ExecContext(context.WithoutCancel(ctx), fmt.Sprintf(fullSync, walMaxPages)); err != nil {
			s.log.Error("fsync could not be turned on again for the writer; its connection is replaced", "err", err)
			_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // the error drops the connection from the pool
		}
		_ = conn.Close() // returns the connection to the pool
	}
	if _, err := conn.ExecContext(ctx, relaxedSync); err != nil {
		end()
		return nil, nil, err
	}
	tx, err := conn.BeginTxx(ctx, nil)
	if err != nil {
		end()
		return nil, nil, err
	}
	return tx, end, nil
}

// NoteFreed notes that the transaction frees bytes of an alias' storage.
func (c *Tx) NoteFreed(alias, bytes int64) {
	if c.Freed == nil {
		c.Freed = map[int64]int64{}
	}
	c.Freed[alias] += bytes
}
