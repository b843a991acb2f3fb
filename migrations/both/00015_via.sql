-- +goose Up
-- The program by which an actor acts, such as "mcp claude-code 2.1"; '' = none was named.
ALTER TABLE attempts ADD COLUMN via TEXT NOT NULL DEFAULT '';
ALTER TABLE audit ADD COLUMN via TEXT NOT NULL DEFAULT '';
