-- +goose Up
-- When a mark was moved last. SQLite needs no spool, so the table stays empty.
ALTER TABLE spool_marks ADD COLUMN moved_at INTEGER NOT NULL DEFAULT 0;
