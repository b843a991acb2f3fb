-- +goose Up
-- When a mark was moved last. A relayd of the version before makes marks without it.
ALTER TABLE spool_marks ADD COLUMN moved_at BIGINT NOT NULL DEFAULT (EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT;
