-- +goose Up
-- 1: the first replay ends the share.
ALTER TABLE shares ADD COLUMN one_use INTEGER NOT NULL DEFAULT 0;
