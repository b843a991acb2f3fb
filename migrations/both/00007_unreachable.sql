-- +goose Up
-- The ids of the nodes that this one has no connection to, one a line.
ALTER TABLE nodes ADD COLUMN unreachable TEXT NOT NULL DEFAULT '';
