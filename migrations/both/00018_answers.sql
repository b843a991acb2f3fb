-- +goose Up
-- Settings of an alias: names of registration challenges with spaces between, and the answers while it is
-- offline as JSON; empty = none.
ALTER TABLE aliases ADD COLUMN handshakes TEXT NOT NULL DEFAULT '';
ALTER TABLE aliases ADD COLUMN answers TEXT NOT NULL DEFAULT '';
-- The challenge that the relay has answered, and the one that was queued without an answer; empty = none.
ALTER TABLE events ADD COLUMN handshake TEXT NOT NULL DEFAULT '';
ALTER TABLE events ADD COLUMN missed_handshake TEXT NOT NULL DEFAULT '';
