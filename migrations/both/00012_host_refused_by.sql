-- +goose Up
-- The framework that refused the Host header in the last attempt that ended, as its name is shown; empty = none did.
ALTER TABLE events ADD COLUMN host_refused_by TEXT NOT NULL DEFAULT '';
