package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jmoiron/sqlx"

	"relay"
)

// Batch runs statements for many rows in one transaction.
type Batch struct {
	*Tx
	tx   *sqlx.Tx
	db   *DB
	conn *sqlx.Conn // connection of the transaction, on SQLite only
}

// Run executes a statement for rows.
func (b *Batch) Run(st *Statement, rows [][]any) error {
	if len(rows) == 0 {
		return nil
	}
	return b.Dialect.run(b, st, rows)
}

// Prepare prepares statements that return rows. Call it before the first batch.
func (s *DB) Prepare(ctx context.Context, statements ...*Statement) error {
	if s.Dialect.Remote() { // prepared statements do not survive a pooler
		return nil
	}
	s.prepared = map[*Statement]*sql.Stmt{}
	for _, st := range statements {
		stmt, err := s.Write.PrepareContext(ctx, st.SQLite)
		if err != nil {
			return fmt.Errorf("prepare journal: %w", err)
		}
		s.prepared[st] = stmt
	}
	return nil
}

// Single returns a Batch for one statement, which begins and commits its own transaction: one round
// trip instead of three. It returns nil if the engine needs an explicit transaction.
func (s *DB) Single(ctx context.Context) *Batch {
	if !s.Dialect.Remote() || s.viaPooler { // through a pooler, a transaction needs a further statement, which sets its settings
		return nil
	}
	return &Batch{Tx: &Tx{Query: s.Session(ctx, s.Journal)}, db: s}
}

// Batch runs fn in one transaction over a handle, and returns the changes to publish after it.
func (s *DB) Batch(ctx context.Context, handle *sqlx.DB, fn func(*Batch) error) ([]relay.Change, error) {
	b := &Batch{db: s}
	begin := handle.BeginTxx
	if !s.Dialect.SeveralNodes() {
		s.commitMu.Lock()
		defer s.commitMu.Unlock()
		conn, err := handle.Connx(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { _ = conn.Close() }()
		b.conn, begin = conn, conn.BeginTxx
	}
	tx, err := begin(ctx, nil)
	if err != nil {
		return nil, s.Dialect.wrapCommit(err)
	}
	b.Tx, b.tx = &Tx{Query: s.Session(ctx, tx)}, tx
	if err = s.prepareTx(b.Query, journalReadTimeout); err == nil {
		if err = fn(b); b.Err != nil {
			err = b.Err
		}
	}
	if err != nil {
		return nil, errors.Join(err, Rollback(tx))
	}
	if err := tx.Commit(); err != nil {
		return nil, s.Dialect.wrapCommit(err)
	}
	Signal(s.checkpointer.wake)
	return b.Changes, nil
}

// Returning executes a statement for rows and returns the rows of its result. fields returns the destinations
// of the columns. tail are the arguments for the parameters after the rows; see NewStatement.
func Returning[T any](b *Batch, st *Statement, rows [][]any, fields func(*T) []any, tail ...any) (out []T, err error) {
	if len(rows) == 0 {
		return nil, nil
	}
	prepared := b.db.prepared[st]
	if prepared == nil {
		return RowsOf(b.Query, fields, st.Postgres, st.Args(rows, tail...)...)
	}
	stmt := b.tx.StmtContext(b.Ctx, prepared)
	for _, row := range rows {
		var r T
		err := stmt.QueryRowContext(b.Ctx, append(row[:len(row):len(row)], tail...)...).Scan(fields(&r)...)
		if err == nil {
			out = append(out, r)
		} else if err != sql.ErrNoRows {
			return nil, err
		}
	}
	return out, nil
}
