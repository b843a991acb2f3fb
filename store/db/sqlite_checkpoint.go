package db

import (
	"context"
	"time"

	"github.com/jmoiron/sqlx"
)

// The write-ahead log of SQLite is checkpointed over a separate connection, so that commits of the
// journal need not do it. Sizes are pages of 4 KiB in the log.
const (
	checkpointPages    = 1000                  // from this size on a checkpoint is worthwhile
	walMaxPages        = 8000                  // from this size on a commit of the writer checkpoints too; see needsRestart
	checkpointInterval = 20 * time.Millisecond // time between two checks
)

// checkpointer checkpoints the log. Its zero value does nothing.
type checkpointer struct {
	db   *sqlx.DB
	wake chan struct{} // gets a signal when the log may have grown
}

// CheckpointLoop checkpoints the log as it grows, until ctx ends. Commits are durable without it,
// because the log itself is synced.
func (s *DB) CheckpointLoop(ctx context.Context) {
	pause := time.NewTicker(checkpointInterval)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.checkpointer.wake:
		}
		s.checkpoint(ctx, walState.worthCheckpoint)
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

// walState is the result of a checkpoint: the number of pages in the log, and how many of these are
// already in the database file.
type walState struct {
	Busy int `db:"busy"`
	Log  int `db:"log"`
	Done int `db:"checkpointed"`
}

// worthCheckpoint reports whether enough pages wait for a checkpoint.
func (l walState) worthCheckpoint() bool { return l.Log-l.Done >= checkpointPages }

// pending reports whether any page waits for a checkpoint.
func (l walState) pending() bool { return l.Log > l.Done }

// needsRestart reports whether the log is too long and still has pages that wait for a checkpoint. When no page
// waits, SQLite can begin to write the log from its start again.
func (l walState) needsRestart() bool { return l.Log >= walMaxPages && l.pending() }

// HasLog reports whether this process checkpoints the log of SQLite.
func (s *DB) HasLog() bool { return s.checkpointer.db != nil }

// CheckpointAll checkpoints the log if any page waits, so that the file can shrink. It ignores errors.
func (s *DB) CheckpointAll(ctx context.Context) { s.checkpoint(ctx, walState.pending) }

// CheckpointLong checkpoints the log if needsRestart returns true. It ignores errors.
func (s *DB) CheckpointLong(ctx context.Context) { s.checkpoint(ctx, walState.needsRestart) }

// checkpoint runs a passive checkpoint if the function due returns true for the present log. Readers and the
// writer do not wait for it. It ignores errors: the remaining pages are checkpointed after a later commit.
func (s *DB) checkpoint(ctx context.Context, due func(walState) bool) {
	if s.checkpointer.db == nil {
		return
	}
	var log walState
	err := s.checkpointer.db.GetContext(ctx, &log, `PRAGMA wal_checkpoint(NOOP)`)
	if err == nil && due(log) {
		err = s.checkpointer.db.GetContext(ctx, &log, `PRAGMA wal_checkpoint(PASSIVE)`)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Debug("the write-ahead log was not checkpointed", "err", err)
	}
}
