package store

import (
	"context"
	"time"

	"github.com/jmoiron/sqlx"
)

// The log of SQLite goes into the file by a connection of its own, so that commits
// don't have to carry it there. Sizes are pages in the log, of 4 KiB.
const (
	moveFrom   = 1000                  // worth moving
	moveAtLast = 8000                  // the writer moves the rest behind a commit, and begins the log anew: commits came without a gap
	movePause  = 20 * time.Millisecond // between two looks
)

// mover moves the log. Its zero value does nothing.
type mover struct {
	db   *sqlx.DB
	wake chan struct{}
}

// grown says that the log may have grown. It never blocks.
func (m *mover) grown() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// keepMoving moves the log as it grows, until ctx ends. No commit needs that to be
// durable: what is in the log is.
func (s *Store) keepMoving(ctx context.Context) {
	pause := time.NewTicker(movePause)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.mover.wake:
		}
		s.moveLog(ctx, logState.worthMoving)
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

// logState is the answer to a checkpoint: pages in the log, and how many of them are
// in the file.
type logState struct {
	Busy int `db:"busy"`
	Log  int `db:"log"`
	Done int `db:"checkpointed"`
}

// worthMoving is true when enough waits to be moved.
func (l logState) worthMoving() bool { return l.Log-l.Done >= moveFrom }

// waits is true when anything does.
func (l logState) waits() bool { return l.Log > l.Done }

// long is true when the log should begin anew, which it can once all of it is moved.
func (l logState) long() bool { return l.Log >= moveAtLast && l.waits() }

// moveLog moves what is in the log when that is due. Neither readers nor the writer
// wait for it. Best effort: what stays there is moved behind some commit.
func (s *Store) moveLog(ctx context.Context, due func(logState) bool) {
	if s.mover.db == nil {
		return
	}
	var log logState
	err := s.mover.db.GetContext(ctx, &log, `PRAGMA wal_checkpoint(NOOP)`)
	if err == nil && due(log) {
		err = s.mover.db.GetContext(ctx, &log, `PRAGMA wal_checkpoint(PASSIVE)`)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Debug("the log of the database stays as it is for now", "err", err)
	}
}
